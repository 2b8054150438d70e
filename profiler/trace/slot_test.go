package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// What a slot was given last lives as long as the checkpoint that the slot was captured by, and
// what is computed again takes its place. Each tensor has 4 KiB.
func TestSlotsLiveAsLongAsCheckpointsThatCaptureThem(t *testing.T) {
	for _, offload := range []bool{false, true} {
		tape := trace.New(trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, rules, trace.Options{Warm: true})
		f := tape.Frame()
		x := f.Bind(tape.New("randn", program.Batch, trace.F32, 1024).Leaf())
		filled := 0
		var y *tensor
		run := func() {
			g := f.FunctionFrame()
			slot := g.NewSlot()
			y = g.Checkpoint(func(h *trace.Frame, in []*tensor) *tensor {
				first := h.Bind(in[0].MulScalar())
				slot.Fill(first)
				filled++
				require.Same(t, first, slot.Value())
				return first.Tanh()
			}, x, slot.Handle())
			g.End(y)
			f.Bind(y)
		}
		if offload {
			tape.SaveOnCPU(false, run)
		} else {
			run()
		}
		require.EqualValues(t, 3*4096, tape.Program().LeftBytes(), "the leaf, what the slot holds and the result")
		f.Bind(y.Sum(false)).Backward()
		require.Equal(t, 2, filled)
		require.EqualValues(t, 3*4096+4, tape.Program().LeftBytes(), "the leaf, its gradient, the result and its sum")
		f.End()
	}
}

package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// Whoever looks at the GPU may do anything by it: the recording serves no other then.
func TestWhoLooksAtTheGPUHasTheRecordingForItAlone(t *testing.T) {
	own := trace.GPU{Name: "own", Capability: 80, SMs: 100, ThreadsPerSM: 2048, Memory: 1 << 34}
	other := own
	other.Name = "other"
	for _, looks := range []bool{false, true} {
		tape := trace.New(own, stack.Default().Rules(), trace.Options{Others: []trace.GPU{other}})
		tape.Hold(tape.New("to", program.Batch, trace.U8, 1<<20))
		if looks {
			require.Equal(t, own, tape.GPU())
		}
		p, others := tape.FinishAll()
		require.Len(t, p.Instructions, 1)
		require.Equal(t, looks, others.ProgramOf(0) == nil)
	}
}

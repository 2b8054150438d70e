package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// What LinearNF4 of bitsandbytes 0.42 asked PyTorch's caching allocator for, of 300 rows
// through 512 to 1024 features, in forward and backward (whose first gradient, of y's size, is
// made and freed by the caller): its input, h, lives as long as the graph.
func TestEarlyLayersKeepInputs(t *testing.T) {
	const h, y, half, scales = 300 * 512 * 2, 300 * 1024 * 2, 512 * 1024 * 2, 512 * 1024 / 64 * 4
	for _, want := range []struct {
		q      nn.Quantization
		events []int64
	}{
		{nn.NF4, []int64{h, half, half, -half, y, -half, y, half, half, -half, h, -half, h, -h, -y}},
		{nn.NF4Double, []int64{
			h, scales, half, -scales, half, -half, y, -half, y, scales, half, -scales, half, -half,
			h, -half, h, -h, -y,
		}},
	} {
		tape := trace.New(trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, stack.Default().Rules(),
			trace.Options{})
		q := nn.NewQuantizer(want.q, trace.BF16)
		q.UseEarlyRelease()
		l := nn.NewLinear(512, 1024, false)
		l.Weight.DType = trace.BF16
		model := nn.NewSequential(l)
		require.Equal(t, 1, nn.QuantizeLinears(model, q))
		nn.NewTree(model).MoveToDevice(tape)
		packed := model.Layers[0]
		x := tape.Hold(tape.New("x", program.Batch, trace.BF16, 300, 512)).Leaf()
		from := len(tape.Program().Instructions)
		f := tape.Frame()
		out := f.Bind(packed.Forward(f, x.MulScalar()))
		out.Backward()
		require.Equal(t, want.events, events(tape.Program(), from))
		from = len(tape.Program().Instructions)
		f.End(out)
		f.Discard(out)
		require.ElementsMatch(t, []int64{-h, -y}, events(tape.Program(), from))
	}
}

// A packed weight stays on the device that packed it, but for models whose weights come there in parts:
// it waits on the host then, with its scales left behind.
func TestPackedWeightsOfModelsInPartsWaitOnTheHost(t *testing.T) {
	const stored, packed, scales = 512 * 1024 * 2, 512 * 1024 / 2, 512 * 1024 / 64 * 4
	whole := []int64{stored, scales, packed, -stored}
	for inParts, want := range map[bool][]int64{false: whole, true: {stored, scales, packed, -packed, -stored}} {
		tape := trace.New(trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, stack.Default().Rules(),
			trace.Options{})
		l := nn.NewLinear(512, 1024, false)
		l.Weight.DType = trace.BF16
		model := nn.NewSequential(l)
		nn.QuantizeLinears(model, nn.NewQuantizer(nn.NF4, trace.BF16))
		place := func() { nn.NewTree(model).MoveToDevice(tape) }
		if inParts {
			tape.WithoutWeightMemory(place)
		} else {
			place()
		}
		require.Equal(t, want, events(tape.Program(), 0))
	}
}

// events returns the sizes of what is allocated and, negative, freed, without what is below 32 KiB
// and without cuBLAS's workspace.
func events(p *program.Program, from int) (all []int64) {
	for _, i := range p.Instructions[from:] {
		if i.Kind != program.Alloc && i.Kind != program.Free {
			continue
		}
		size := p.Buffers[i.Arg].Bytes
		if size < 32<<10 || size > 4<<20 {
			continue
		}
		if i.Kind == program.Free {
			size = -size
		}
		all = append(all, size)
	}
	return all
}

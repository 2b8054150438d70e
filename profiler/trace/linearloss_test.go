package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The bytes that PyTorch's allocator was asked for by linear_cross_entropy with its default options, of the code of
// releases 2.13 and 2.15 (2.14 has the same), on a driver without a GPU: the highest in forward, what is left of it,
// and the highest of forward and backward. The few bytes of scalars aside.
func TestLinearCrossEntropyNeedsWhatPyTorchAllocates(t *testing.T) {
	v13 := trace.LinearLossRules{Known: true, Halved: true, Materializes: true}
	v14 := trace.LinearLossRules{Known: true}
	for _, k := range []struct {
		rules                trace.LinearLossRules
		dtype                trace.DType
		trained              bool
		rows, width, classes int64
		forward, kept, both  int64
	}{
		{v13, trace.BF16, true, 300, 256, 3000, 2094014, 1689602, 3379204},
		{v13, trace.F32, true, 300, 256, 3000, 3591616, 3379204, 6758408},
		{v13, trace.F16, true, 300, 256, 3000, 1814208, 1689602, 3379204},
		{v13, trace.BF16, false, 300, 256, 3000, 541630, 153602, 541630},
		{v13, trace.BF16, true, 512, 512, 384, 2302978, 917506, 2302978},
		{v13, trace.F32, true, 512, 512, 384, 3285508, 1835012, 3670024},
		{v14, trace.BF16, true, 300, 256, 3000, 2494526, 1689602, 2494526},
		{v14, trace.F32, true, 300, 256, 3000, 3800128, 3379204, 3800128},
		{v14, trace.F16, true, 300, 256, 3000, 1934912, 1689602, 1934912},
		{v14, trace.BF16, false, 300, 256, 3000, 925758, 153602, 925758},
		{v14, trace.BF16, true, 512, 512, 384, 1268866, 917506, 1268866},
		{v14, trace.F32, true, 512, 512, 384, 2202628, 1835012, 2202628},
	} {
		r := rules
		r.LinearLoss = k.rules
		tape := trace.New(hopper, r, trace.Options{Warm: true})
		f := tape.Frame()
		x := f.Bind(tape.New("x", program.Activations, k.dtype, k.rows, k.width)).Leaf()
		w := f.Bind(tape.New("w", program.Weights, k.dtype, k.classes, k.width))
		if k.trained {
			w.Leaf()
		}
		target := f.Bind(tape.New("target", program.Batch, trace.I64, k.rows))
		before := requested(tape)
		loss := f.Bind(f.LinearCrossEntropy(x, w, target))
		forward := requested(tape)
		loss.Backward()
		both := requested(tape)
		const scalars = 64
		require.InDelta(t, k.forward, forward.peak-before.now, scalars, "%v", k)
		require.InDelta(t, k.kept, forward.now-before.now, scalars, "%v", k)
		require.InDelta(t, k.both, both.peak-before.now, scalars, "%v", k)
		f.End()
	}
}

// bytesAt are bytes that were asked for: at the highest, and now.
type bytesAt struct{ peak, now int64 }

// requested sums what a recording has allocated so far.
func requested(t *trace.Tape) bytesAt {
	p := t.Program()
	return bytesAt{peak: p.Peak(), now: p.LeftBytes()}
}

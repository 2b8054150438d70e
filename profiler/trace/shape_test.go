package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// rearrangers make a tensor of at least one dimension out of another: views, copies, selections.
var rearrangers = map[string]func(f *trace.Frame, x *tensor) *tensor{
	"flatten":    func(_ *trace.Frame, x *tensor) *tensor { return x.Flatten(0, -1) },
	"unsqueeze":  func(_ *trace.Frame, x *tensor) *tensor { return x.Unsqueeze(-1) },
	"transpose":  func(_ *trace.Frame, x *tensor) *tensor { return x.Transpose(0, -1) },
	"move":       func(_ *trace.Frame, x *tensor) *tensor { return x.MoveDim(0, -1) },
	"narrow":     func(_ *trace.Frame, x *tensor) *tensor { return x.Narrow(-1, x.Size(-1)/2, (x.Size(-1)+1)/2) },
	"every 2nd":  func(_ *trace.Frame, x *tensor) *tensor { return x.SliceStep(0, 0, x.Size(0), 2) },
	"first":      func(_ *trace.Frame, x *tensor) *tensor { return x.Unsqueeze(0).Select(1, 0) },
	"expand":     func(_ *trace.Frame, x *tensor) *tensor { return x.Unsqueeze(0).Expand(grown(x)...) },
	"windows":    func(_ *trace.Frame, x *tensor) *tensor { return x.Unfold(-1, (x.Size(-1)+1)/2, 1) },
	"contiguous": func(_ *trace.Frame, x *tensor) *tensor { return x.Transpose(0, -1).Contiguous() },
	"chunk": func(f *trace.Frame, x *tensor) *tensor {
		parts := x.Chunk(2, 0)
		f.Discard(parts[1:]...)
		return parts[0]
	},
	"unbind":     func(_ *trace.Frame, x *tensor) *tensor { return x.Unsqueeze(0).Unbind(0)[0] },
	"cat":        func(_ *trace.Frame, x *tensor) *tensor { return trace.Cat(0, x, x.Flip(0)) },
	"stack":      func(_ *trace.Frame, x *tensor) *tensor { return trace.Stack(-1, x, x.Roll(0)) },
	"repeat":     func(_ *trace.Frame, x *tensor) *tensor { return x.Tile(2) },
	"interleave": func(_ *trace.Frame, x *tensor) *tensor { return x.RepeatInterleave(2, 0) },
	"pick":       func(_ *trace.Frame, x *tensor) *tensor { return x.IndexSelect(0, x.Tape().Arange(3)) },
	"index":      func(_ *trace.Frame, x *tensor) *tensor { return x.Index(x.Tape().Arange(5)) },
	"sorted": func(f *trace.Frame, x *tensor) *tensor {
		values, indices := x.Sort(-1)
		f.Discard(indices)
		return values
	},
	"top": func(f *trace.Frame, x *tensor) *tensor {
		values, indices := x.TopK(1, 0)
		f.Discard(indices)
		return values
	},
}

// grown returns the shape of x with three times as many leading elements.
func grown(x *tensor) []int64 { return append([]int64{3}, x.Shape()...) }

// writers change a tensor in place.
var writers = map[string]func(f *trace.Frame, x *tensor) *tensor{
	"relu_": func(_ *trace.Frame, x *tensor) *tensor { return x.ReLUInPlace() },
	"mul_":  func(_ *trace.Frame, x *tensor) *tensor { return x.MulScalarInPlace() },
	"copy_": func(_ *trace.Frame, x *tensor) *tensor { return x.CopyInPlace(x.ZerosLike()) },
	"set_":  func(f *trace.Frame, x *tensor) *tensor { f.Discard(x.Select(0, 0).ZeroInPlace()); return x },
}

// Views, copies and writes to views, in any order, free what they allocate,
// and a gradient of its own shape comes back to the leaf.
func TestRearrangedStepLeavesNothingBehind(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		shape := rapid.SliceOfN(rapid.Int64Range(1, 70), 1, 3).Draw(rt, "shape")
		leaf := tape.Frame().Bind(tape.New("leaf", program.Weights, trace.F32, shape...).Leaf())
		before := tape.Program().LeftBytes()
		f := tape.Frame()
		x := f.Bind(leaf.MulScalar())
		for range rapid.IntRange(1, 6).Draw(rt, "operators") {
			if rapid.IntRange(0, 2).Draw(rt, "write") == 0 && writable(x) {
				f.Set(&x, writers[rapid.SampledFrom(names(writers)).Draw(rt, "writer")](f, x))
				continue
			}
			y := rearrangers[rapid.SampledFrom(names(rearrangers)).Draw(rt, "op")](f, x)
			if y.NDim() > 6 || y.Numel() > 1<<22 {
				f.Discard(y)
				break
			}
			f.Set(&x, y)
		}
		x.Sum(false).Backward()
		f.End()
		require.NotNil(rt, leaf.Grad())
		require.Equal(rt, shape, leaf.Grad().Shape())
		leaf.ZeroGrad()
		require.NoError(rt, tape.Program().Validate())
		require.Equal(rt, before, tape.Program().LeftBytes())
	})
}

// writable reports whether x may be written to: expanded and unfolded tensors have elements that share a place.
func writable(x *tensor) bool {
	last := int64(1)
	for d, s := range x.Shape() {
		last += (s - 1) * x.Strides()[d]
	}
	return last >= x.Numel()
}

// Cutting a tensor up and putting it together again gives its shape back, and the cuts cost nothing.
func TestCatUndoesSplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		f := tape.Frame()
		shape := rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 4).Draw(rt, "shape")
		d := rapid.IntRange(-len(shape), len(shape)-1).Draw(rt, "dimension")
		x := f.Bind(tape.New("x", program.Batch, trace.F16, shape...))
		before := tape.Program().LeftBytes()
		parts := f.BindList(x.Split(rapid.Int64Range(1, 10).Draw(rt, "size"), d))
		require.Equal(rt, before, tape.Program().LeftBytes())
		require.Equal(rt, shape, trace.Cat(d, parts...).Shape())
		require.Equal(rt, shape, trace.Stack(d, x.Unbind(d)...).Shape())
	})
}

// Writing to a view gives its base a history. The base, the view and earlier views then lead to the written tensor.
func TestWriteToViewReachesBaseAndSiblings(t *testing.T) {
	for name, read := range map[string]func(base, sibling *tensor) *tensor{
		"base":    func(base, _ *tensor) *tensor { return base.Sum(false) },
		"sibling": func(_, sibling *tensor) *tensor { return sibling.Sum(false) },
	} {
		t.Run(name, func(t *testing.T) {
			tape := trace.New(hopper, rules, trace.Options{Warm: true})
			f := tape.Frame()
			x := f.Bind(tape.New("x", program.Weights, trace.F32, 6, 5).Leaf())
			w := f.Bind(tape.New("w", program.Weights, trace.F32, 2, 5).Leaf())
			base := f.Bind(x.MulScalar())
			sibling := f.Bind(base.Narrow(0, 3, 3))
			f.Discard(base.Narrow(0, 0, 2).CopyInPlace(w))
			read(base, sibling).Backward()
			require.NotNil(t, x.Grad())
			require.NotNil(t, w.Grad())
			require.Equal(t, w.Shape(), w.Grad().Shape())
		})
	}
}

// Slices follow Python: negative positions count from the end, and what is beyond an end is cut.
func TestSliceFollowsPython(t *testing.T) {
	tape := trace.New(hopper, rules, trace.Options{Warm: true})
	x := tape.Frame().Bind(tape.New("x", program.Batch, trace.F32, 10))
	for _, c := range []struct{ from, to, step, want int64 }{
		{0, 10, 1, 10}, {-3, 10, 1, 3}, {0, -3, 1, 7}, {2, 99, 1, 8}, {7, 3, 1, 0}, {0, 10, 3, 4}, {-99, 4, 2, 2},
	} {
		require.Equal(t, c.want, x.SliceStep(0, c.from, c.to, c.step).Size(0), "x[%d:%d:%d]", c.from, c.to, c.step)
	}
}

// An embedding of few indices adds its gradient up in place; one of many sorts
// them, and takes several times their size.
func TestEmbeddingOfManyIndicesSorts(t *testing.T) {
	scratch := func(n int64) int64 {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		f := tape.Frame()
		weight := f.Bind(tape.New("weight", program.Weights, trace.F32, 100, 8).Leaf())
		indices := f.Bind(tape.New("indices", program.Batch, trace.I64, n))
		y := f.Bind(indices.Embedding(weight))
		from := len(tape.Program().Buffers)
		trace.Backward([]*tensor{y}, []*tensor{y.NewGradient()})
		total := int64(0)
		for _, b := range tape.Program().Buffers[from+1:] {
			total += b.Bytes
		}
		return total - weight.Bytes()
	}
	require.Zero(t, scratch(3072))
	require.Greater(t, scratch(3073), int64(4*8*3073))
}

func BenchmarkViews(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		f := tape.Frame()
		x := f.Bind(tape.New("x", program.Weights, trace.F32, 8, 16, 32).Leaf())
		for range 100 {
			f.Set(&x, x.Transpose(1, 2).Reshape(8, -1).View(8, 16, 32))
		}
		f.End()
	}
}

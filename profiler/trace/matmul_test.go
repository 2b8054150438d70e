package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

func leaf(t *trace.Tape, grad bool, shape ...int64) *tensor {
	x := t.Frame().Bind(t.New("input", program.Batch, trace.F32, shape...))
	if grad {
		x.Leaf()
	}
	return x
}

// allocated returns the sum of all a program ever asks for.
func allocated(p *program.Program) int64 {
	n := int64(0)
	for _, b := range p.Buffers {
		n += b.Bytes
	}
	return n
}

// The product of a graph keeps each operand for the gradient of the other: the
// temporary x+1 (100 x 30 floats) outlives the call only if w wants one.
func TestLinearKeepsItsInputForTheWeightAlone(t *testing.T) {
	for _, trained := range []bool{true, false} {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		x, w := leaf(tape, true, 100, 30), leaf(tape, trained, 7, 30)
		before := tape.Program().LeftBytes()
		f := tape.Frame()
		y := f.Bind(x.AddScalar().Linear(w, nil))
		kept := tape.Program().LeftBytes() - before - y.Bytes()
		if trained {
			require.EqualValues(t, 100*30*4, kept)
		} else {
			require.Zero(t, kept)
		}
		f.End()
		require.Equal(t, before, tape.Program().LeftBytes())
	}
}

// The first product brings the cuBLAS workspace of the thread to life, a bias
// that of cuBLASLt; backward runs on a thread of its own.
func TestFirstProductsBringTheirWorkspaces(t *testing.T) {
	const blas, lt = 33_554_432, 1_048_576
	tape := trace.New(hopper, rules, trace.Options{})
	x, w, b := leaf(tape, true, 8, 8), leaf(tape, true, 8, 8), leaf(tape, true, 8)
	workspaces := func() (sizes []int64) {
		for _, b := range tape.Program().Buffers {
			if b.Class == program.Workspace {
				sizes = append(sizes, b.Bytes)
			}
		}
		return sizes
	}
	f := tape.Frame()
	y := f.Bind(x.Linear(w, nil))
	require.Equal(t, []int64{blas}, workspaces())
	f.Set(&y, y.Linear(w, b))
	require.Equal(t, []int64{blas, lt}, workspaces())
	y.Sum(false).Backward()
	require.Equal(t, []int64{blas, lt, blas}, workspaces())
	f.End()
}

// matmul over any shapes that broadcast: nothing is left behind, and the gradients have the shapes of the operands.
func TestMatmulOfAnyShapes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := func(what string) int64 { return rapid.Int64Range(1, 6).Draw(rt, what) }
		m, k, n := size("m"), size("k"), size("n")
		lead := rapid.SliceOfN(rapid.Int64Range(1, 4), 0, 3).Draw(rt, "batch")
		batch := func(what string) []int64 {
			cut := rapid.IntRange(0, len(lead)).Draw(rt, what)
			out := append([]int64(nil), lead[cut:]...)
			for i := range out {
				if rapid.Bool().Draw(rt, "one") {
					out[i] = 1
				}
			}
			return out
		}
		left, right := append(batch("left"), m, k), append(batch("right"), k, n)
		if len(left) == 2 && rapid.Bool().Draw(rt, "left vector") {
			left = left[1:]
		}
		if len(right) == 2 && rapid.Bool().Draw(rt, "right vector") {
			right = right[:1]
		}
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		a, b := leaf(tape, true, left...), leaf(tape, rapid.Bool().Draw(rt, "right grad"), right...)
		before := tape.Program().LeftBytes()
		f := tape.Frame()
		f.Bind(a.Matmul(b)).Sum(false).Backward()
		f.End()
		require.Equal(rt, a.Shape(), a.Grad().Shape())
		a.ZeroGrad()
		b.ZeroGrad()
		require.NoError(rt, tape.Program().Validate())
		require.Equal(rt, before, tape.Program().LeftBytes())
	})
}

// An einsum that is a product of matrices costs what the product costs.
func TestEinsumCostsWhatItsProductCosts(t *testing.T) {
	record := func(f func(a, b *tensor) *tensor) int64 {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		a, b := leaf(tape, true, 5, 7, 9), leaf(tape, true, 5, 9, 11)
		f(a, b).Sum(false).Backward()
		return allocated(tape.Program())
	}
	for _, equation := range []string{"bij,bjk->bik", "...ij,...jk->...ik", "... i j, ... j k"} {
		einsum := func(a, b *tensor) *tensor { return ops.Einsum(equation, a, b) }
		require.Equal(t, record((*tensor).BMM), record(einsum), equation)
	}
}

// Where what the right operand has of the output comes first there, it is the left factor of the product, which is then
// laid out as the output: nothing is copied, in whatever order the operands come.
func TestEinsumMultipliesInTheOrderOfItsOutput(t *testing.T) {
	record := func(f func(x, y *tensor) *tensor) int64 {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		z := f(leaf(tape, true, 3, 50, 40), leaf(tape, true, 3, 40, 60))
		require.Equal(t, []int64{3000, 60, 1}, z.Strides())
		return allocated(tape.Program())
	}
	ordered := record(func(x, y *tensor) *tensor { return ops.Einsum("bnk,bkd->bnd", x, y) })
	require.Equal(t, ordered, record(func(x, y *tensor) *tensor { return ops.Einsum("bkd,bnk->bnd", y, x) }))
}

// The parts of a complex number are saved for a backward that has no use for them.
func TestComplexSavesWhatNeedsGradients(t *testing.T) {
	for _, trains := range []bool{true, false} {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		x, y := leaf(tape, true, 1000), leaf(tape, trains, 1000)
		f := tape.Frame()
		before := tape.Program().LeftBytes()
		re, im := f.Bind(x.MulScalar()), f.Bind(y.MulScalar())
		z := f.Bind(trace.Complex(re, im))
		f.Del(&re)
		f.Del(&im)
		kept := int64(8000 + 4000)
		if trains {
			kept += 4000
		}
		require.Equal(t, kept, tape.Program().LeftBytes()-before)
		f.Del(&z)
		require.Equal(t, before, tape.Program().LeftBytes())
	}
}

// A path of opt_einsum names pairs of the operands that are left; what comes of a pair is the last of them.
func TestEinsumGoesAlongItsPath(t *testing.T) {
	record := func(f func(x, y, z *tensor) *tensor) int64 {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		f(leaf(tape, true, 2, 3, 5), leaf(tape, true, 2, 3, 7), leaf(tape, true, 2, 3, 5)).Sum(false).Backward()
		return allocated(tape.Program())
	}
	const three = "abc,abd,abc->abcd"
	along := func(path ...int64) int64 {
		return record(func(x, y, z *tensor) *tensor { return ops.EinsumAlong(path, three, x, y, z) })
	}
	require.Equal(t, record(func(x, y, z *tensor) *tensor {
		return ops.Einsum("abd,abc->abcd", y, ops.Einsum("abc,abc->abc", x, z))
	}), along(2, 0, 0, 1))
	require.Equal(t, record(func(x, y, z *tensor) *tensor { return ops.Einsum(three, x, y, z) }), along(0, 1, 1, 0))
	require.PanicsWithValue(t, "trace: einsum: the path [0 1] leaves 2 operands", func() { along(0, 1) })
	require.PanicsWithValue(t, "trace: einsum: the path [0 3 0 1] has a pair that is not among 3 operands",
		func() { along(0, 3, 0, 1) })
}

func TestEinsumNamesWhatIsWrong(t *testing.T) {
	tape := trace.New(hopper, rules, trace.Options{Warm: true})
	a := leaf(tape, false, 5, 7)
	require.PanicsWithValue(t, `trace: einsum "ij,jk->ik" has 2 operands, got 1`, func() {
		ops.Einsum("ij,jk->ik", a)
	})
	require.PanicsWithValue(t, `trace: einsum "ijk->i": operand 0 has 2 dimensions`, func() {
		ops.Einsum("ijk->i", a)
	})
}

// Contracting three operands, summing labels of one of them alone, and transposing by einsum leave nothing behind.
func TestEinsumLeavesNothingBehind(t *testing.T) {
	for _, c := range []struct {
		equation string
		shapes   [][]int64
		want     []int64
	}{
		{"bi,ij,bj->b", [][]int64{{4, 5}, {5, 6}, {4, 6}}, []int64{4}},
		{"ijk,j->i", [][]int64{{3, 4, 5}, {4}}, []int64{3}},
		{"ij->ji", [][]int64{{3, 4}}, []int64{4, 3}},
		{"ij->i", [][]int64{{3, 4}}, []int64{3}},
		{"i,j->ij", [][]int64{{3}, {4}}, []int64{3, 4}},
		{"ij,jk", [][]int64{{3, 4}, {4, 5}}, []int64{3, 5}},
	} {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		var operands []*tensor
		for _, s := range c.shapes {
			operands = append(operands, leaf(tape, true, s...))
		}
		before := tape.Program().LeftBytes()
		f := tape.Frame()
		y := f.Bind(ops.Einsum(c.equation, operands...))
		require.Equal(t, c.want, y.Shape(), c.equation)
		y.Sum(false).Backward()
		f.End()
		for _, x := range operands {
			x.ZeroGrad()
		}
		require.Equal(t, before, tape.Program().LeftBytes(), c.equation)
	}
}

package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// What is solved for is laid out by columns, and both operands get gradients of their shapes.
func TestTrianglesAreSolvedByColumns(t *testing.T) {
	tape := trace.New(hopper, rules, trace.Options{Warm: true})
	f := tape.Frame()
	a := f.Bind(tape.New("a", program.Activations, trace.F32, 2, 4, 4))
	b := f.Bind(tape.New("b", program.Activations, trace.F32, 2, 4, 3))
	a.Leaf()
	b.Leaf()
	x := f.Bind(ops.SolveTriangular(a, b, true))
	require.Equal(t, []int64{2, 4, 3}, x.Shape())
	require.Equal(t, []int64{12, 1, 4}, x.Strides())
	x.Sum(false).Backward()
	require.Equal(t, a.Shape(), a.Grad().Shape())
	require.Equal(t, b.Shape(), b.Grad().Shape())
	f.End()
}

// Solvers of cuBLAS use the workspace of its handle. Where each call allocates it, a batch of
// matrices does so once, and each of few large ones once. Solvers of cuSOLVER have none.
func TestSolversOfCuBLASHaveItsWorkspace(t *testing.T) {
	perCall := rules
	perCall.Products.PerCall = true
	for _, c := range []struct {
		batch, n int64
		solve    func(a, b *tensor) *tensor
		want     int
	}{
		{9, 64, func(a, b *tensor) *tensor { return ops.SolveTriangular(a, b, true) }, 1},
		{2, 64, func(a, b *tensor) *tensor { return ops.SolveTriangular(a, b, true) }, 2},
		{2, 8, func(a, b *tensor) *tensor { return ops.SolveTriangular(a, b, true) }, 1},
		{2, 8, func(a, _ *tensor) *tensor { return ops.Cholesky(a) }, 0},
		{2, 8, func(a, _ *tensor) *tensor { return ops.LinalgDet(a) }, 1},
	} {
		tape := trace.New(hopper, perCall, trace.Options{})
		f := tape.Frame()
		f.Bind(c.solve(leaf(tape, false, c.batch, c.n, c.n), leaf(tape, false, c.batch, c.n, 3)))
		n := 0
		for _, b := range tape.Program().Buffers {
			if b.Class == program.Workspace {
				n++
			}
		}
		require.Equal(t, c.want, n, c)
	}
}

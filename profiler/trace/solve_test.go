package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// What is solved for is laid out by columns, and both operands get gradients of their
// shapes.
func TestTrianglesAreSolvedByColumns(t *testing.T) {
	tape := trace.New(hopper, rules, trace.Options{Warm: true})
	f := tape.Frame()
	a := f.Let(tape.New("a", program.Activations, trace.F32, 2, 4, 4))
	b := f.Let(tape.New("b", program.Activations, trace.F32, 2, 4, 3))
	a.Leaf()
	b.Leaf()
	x := f.Let(a.SolveTriangular(b, true))
	require.Equal(t, []int64{2, 4, 3}, x.Shape())
	require.Equal(t, []int64{12, 1, 4}, x.Strides())
	x.Sum(false).Backward()
	require.Equal(t, a.Shape(), a.Grad().Shape())
	require.Equal(t, b.Shape(), b.Grad().Shape())
	f.End()
}

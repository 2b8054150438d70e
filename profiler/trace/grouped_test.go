package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Rows begin at multiples of 16 bytes, and the gradient of the weight is laid out as the weight is.
func TestGroupedProductsPadTheirRows(t *testing.T) {
	tape := trace.New(hopper, rules, trace.Options{Warm: true})
	f := tape.Frame()
	x := f.Bind(tape.New("x", program.Activations, trace.BF16, 10, 8))
	weight := f.Bind(tape.New("weight", program.Weights, trace.BF16, 3, 5, 8))
	ends := f.Bind(tape.New("ends", program.Activations, trace.I32, 3))
	x.Leaf()
	weight.Leaf()
	y := f.Bind(x.GroupedMM(weight.Transpose(-2, -1), ends))
	require.Equal(t, []int64{10, 5}, y.Shape())
	require.Equal(t, []int64{8, 1}, y.Strides())
	y.Sum(false).Backward()
	require.Equal(t, weight.Shape(), weight.Grad().Shape())
	require.Equal(t, weight.Strides(), weight.Grad().Strides())
	require.Equal(t, x.Shape(), x.Grad().Shape())
	f.End()
}

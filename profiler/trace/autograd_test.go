package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// A leaf that nobody names lives as long as the graph that leads to it, as does its gradient: 4 KiB each.
func TestGraphsHoldTheLeavesTheyLeadTo(t *testing.T) {
	tape := trace.New(trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, rules, trace.Options{Warm: true})
	f := tape.Frame()
	x := tape.New("randn", program.Batch, trace.F32, 1024).Leaf()
	loss := f.Bind(x.MulScalar().Sum(false))
	require.EqualValues(t, 4096+4, tape.Program().LeftBytes(), "leaf and loss")
	loss.Backward()
	require.EqualValues(t, 4096+4096+4, tape.Program().LeftBytes(), "leaf, its gradient and loss")
	f.Del(&loss)
	require.Zero(t, tape.Program().LeftBytes())
	f.End()
}

// A hook on what no backward reaches ends with it: graphs that come later have hooks of their own alone.
func TestHooksEndWithTheirGraph(t *testing.T) {
	tape := trace.New(trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, rules, trace.Options{})
	called, own := 0, 0
	for range 3 {
		f := tape.Frame()
		x := f.Bind(tape.New("randn", program.Batch, trace.F32, 8).Leaf())
		dropped := f.Bind(x.MulScalar())
		dropped.OnGradient(func() { called++ })
		f.Del(&dropped)
		y := f.Bind(x.MulScalar())
		y.OnGradient(func() { own++ })
		y.Sum(false).Backward()
		f.End()
	}
	require.Zero(t, called)
	require.Equal(t, 3, own)
}

// What is assigned by index gives its gradient in its own shape; one row of
// leading size one is summed up to it, which takes a copy.
func TestAssignedValuesGetTheirGradient(t *testing.T) {
	for _, shape := range [][]int64{{3, 8}, {1, 8}, {8}} {
		tape := trace.New(trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, rules, trace.Options{})
		f := tape.Frame()
		values := f.Bind(tape.New("randn", program.Batch, trace.F32, shape...).Leaf())
		x := f.Bind(tape.Zeros(trace.F32, 5, 8))
		rows := int64(1)
		if len(shape) == 2 {
			rows = shape[0]
		}
		x.SetItem(values.MulScalar(), tape.Arange(rows))
		require.True(t, x.RequiresGrad())
		x.Sum(false).Backward()
		require.Equal(t, shape, values.Grad().Shape())
		f.End()
	}
}

// A released tensor cannot be used again, however many others have taken its place since.
func TestEndedTensorsAreFoundOut(t *testing.T) {
	for _, others := range []int{0, 1, 100} {
		tape := trace.New(trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, rules, trace.Options{})
		f := tape.Frame()
		x := f.Bind(tape.Zeros(trace.F32, 16))
		y := x.MulScalar()
		y.MulScalar()
		for range others {
			f.Discard(x.MulScalar())
		}
		require.Panics(t, func() { y.ReLU() }, "after %d others", others)
	}
}

func TestBackwardOfNothingTrainedIsAnError(t *testing.T) {
	tape := trace.New(trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, rules, trace.Options{})
	err := tape.Try(func() {
		f := tape.Frame()
		f.Bind(tape.New("randn", program.Batch, trace.F32, 8)).Sum(false).Backward()
	})
	require.ErrorContains(t, err, "does not require grad")
}

package pt2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// Python's indexing leaves out slices that take all; others are the operator's.
func TestIndexingLeavesOutSlicesThatTakeAll(t *testing.T) {
	op, ok := aten.ByTarget(sliceTarget)
	require.True(t, ok)
	tape := trace.New(trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, stack.Default().Rules(),
		trace.Options{})
	f := tape.Frame()
	x := f.Bind(tape.New("input", program.Batch, trace.F32, 4, 6))
	for _, c := range []struct {
		whole bool
		args  []aten.Arg
	}{
		{true, nil},
		{true, []aten.Arg{
			{Name: "dim", Value: int64(-1)},
			{Name: "start", Value: int64(0)},
			{Name: "end", Value: int64(6)},
		}},
		{true, []aten.Arg{{Name: "dim", Value: int64(1)}, {Name: "end", Value: int64(1 << 62)}}},
		{false, []aten.Arg{{Name: "dim", Value: int64(1)}, {Name: "end", Value: int64(5)}}},
		{false, []aten.Arg{{Name: "dim", Value: int64(1)}, {Name: "start", Value: int64(1)}}},
		{false, []aten.Arg{{Name: "step", Value: int64(2)}}},
		{false, []aten.Arg{{Name: "dim", Value: int64(2)}}}, // there is no such dimension: the operator says so
	} {
		args, err := op.Bind(append([]aten.Arg{{Name: "self", Value: x}}, c.args...)...)
		require.NoError(t, err)
		require.Equal(t, c.whole, identitySlice(&export.Node{Target: sliceTarget}, &args) != nil, "%v", c.args)
		require.Nil(t, identitySlice(&export.Node{Target: linearTarget}, &args))
	}
}

// What runs on the host takes no memory of the device, until it is moved there: also where its type stays.
func TestWhatRunsOnTheHostIsAllocatedWhereItMoves(t *testing.T) {
	gpu := trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}
	tape := trace.New(gpu, stack.Default().Rules(), trace.Options{})
	w := &nodeRunner{frame: tape.Frame()}
	compute := func(target string, onHost bool, given ...aten.Arg) *trace.Tensor {
		op, ok := aten.ByTarget(target)
		require.True(t, ok)
		args, err := op.Bind(given...)
		require.NoError(t, err)
		out, err := w.compute(&export.Node{Target: target}, &plannedCall{op: op, onHost: onHost}, args)
		require.NoError(t, err)
		return w.frame.Bind(out[0].(*trace.Tensor))
	}
	made := func() int { return len(tape.Program().Buffers) }
	steps := compute("torch.ops.aten.arange.default", true, aten.Arg{Name: "end", Value: int64(100)})
	twice := compute("torch.ops.aten.add.Tensor", true, aten.Arg{Name: "self", Value: steps},
		aten.Arg{Name: "other", Value: steps})
	require.Zero(t, made())
	require.True(t, twice.OnHost())
	there := compute("torch.ops.aten.to.dtype_layout", false, aten.Arg{Name: "self", Value: twice})
	require.Equal(t, 1, made())
	require.False(t, there.OnHost())
	again := compute("torch.ops.aten.to.dtype_layout", false, aten.Arg{Name: "self", Value: there})
	require.Equal(t, 1, made())
	require.Same(t, there, again)
}

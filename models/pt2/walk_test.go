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
	op, ok := aten.ByTarget(slice)
	require.True(t, ok)
	tape := trace.New(trace.Board{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, stack.Default().Rules(),
		trace.Options{})
	f := tape.Frame()
	x := f.Let(tape.New("input", program.Batch, trace.F32, 4, 6))
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
		require.Equal(t, c.whole, wholeSlice(&export.Node{Target: slice}, &args) != nil, "%v", c.args)
		require.Nil(t, wholeSlice(&export.Node{Target: linear}, &args))
	}
}

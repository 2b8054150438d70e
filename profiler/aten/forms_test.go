package aten_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/aten"
)

func TestFormsFollowFromTheFunctionalOne(t *testing.T) {
	for name, arguments := range map[string][]string{
		"div.out":            {"self", "other", "out"},
		"div.Scalar_out":     {"self", "other", "out"},
		"bmm.out":            {"self", "mat2", "out"},
		"index_add.out":      {"self", "dim", "index", "source", "alpha", "out"},
		"slice_scatter_":     {"self", "src", "dim", "start", "end", "step"},
		"scatter_reduce.two": {"self", "dim", "index", "src", "reduce", "include_self"},
	} {
		op, known := aten.ByTarget("torch.ops.aten." + name)
		require.True(t, known, name)
		var names []string
		for _, a := range op.Arguments {
			names = append(names, a.Name)
		}
		require.Equal(t, arguments, names, name)
	}
	for _, name := range []string{"no_such_thing_", "no_such_thing.out", "topk.values_out", "", "__and__"} {
		require.False(t, aten.Known("torch.ops.aten."+name) && name != "__and__", name)
	}
}

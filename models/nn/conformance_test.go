package nn_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

var (
	update   = flag.Bool("update", false, "rewrite golden files")
	onlyOps  = flag.String("op", "", "look at these operators alone (comma-separated)")
	bareConv = flag.Bool("bare", false, "show differences but for cuDNN's workspaces")
	show     = flag.Int("show", 0, "print this many differences of each operator")
)

type (
	vector = opvectors.Vector
	tensor = trace.Tensor
	params = map[string]*trace.Tensor
)

// operators knows how to call each operator of the vectors; the families are
// in conformance_*_test.go.
func operators() map[string]opvectors.Call {
	all := map[string]opvectors.Call{}
	for _, family := range families {
		for name, call := range family() {
			if all[name] != nil {
				panic("two calls for operator " + name)
			}
			all[name] = call
		}
	}
	return all
}

// one adapts an operator with one output.
func one(f func(v *vector, in []*tensor, p params) *tensor) opvectors.Call {
	return func(_ *trace.Frame, v *vector, in []*tensor, p params) []*tensor { return []*tensor{f(v, in, p)} }
}

// unary adapts a method of one tensor.
func unary(f func(*tensor) *tensor) opvectors.Call {
	return one(func(_ *vector, in []*tensor, _ params) *tensor { return f(in[0]) })
}

// binary adapts a method of two tensors.
func binary(f func(a, b *tensor) *tensor) opvectors.Call {
	return one(func(_ *vector, in []*tensor, _ params) *tensor { return f(in[0], in[1]) })
}

// TestOperatorsAllocateAsPyTorchDoes sets every recorded vector against the
// recorder and compares the share of identical ones with the committed table.
func TestOperatorsAllocateAsPyTorchDoes(t *testing.T) {
	vectors, err := opvectors.Load("testdata/ops.jsonl.gz")
	require.NoError(t, err)
	calls := operators()
	var only []string
	if *onlyOps != "" {
		only = strings.Split(*onlyOps, ",")
	}
	total, good, bare := map[string]int{}, map[string]int{}, map[string]int{}
	shown := map[string]int{}
	for _, v := range vectors {
		if only != nil && !slices.Contains(only, v.Op) {
			continue
		}
		total[v.Op]++
		call, procedure := calls[v.Op], procedures[v.Op]
		var diff string
		switch {
		case call != nil:
			diff = v.Compare(call)
		case procedure != nil:
			diff = v.CompareProcedure(procedure)
		default:
			continue
		}
		if diff == "" {
			good[v.Op]++
			continue
		}
		if call != nil {
			but := v.CompareBut("run_conv_plan", call)
			if but == "" {
				bare[v.Op]++
			}
			if *bareConv {
				diff = but
			}
		}
		if diff != "" && shown[v.Op] < *show {
			shown[v.Op]++
			t.Logf("%s %v %s %s %v grad %v %s\n   %s", v.Op, v.Args, v.Regime, v.GPU, v.In, v.Grad, v.Layout, diff)
		}
	}
	var table strings.Builder
	sumGood, sumTotal := 0, 0
	for _, op := range slices.Sorted(maps.Keys(total)) {
		sumGood += good[op]
		sumTotal += total[op]
		fmt.Fprintf(&table, "%-32s %5d of %5d", op, good[op], total[op])
		if bare[op] > 0 {
			fmt.Fprintf(&table, "  (but for cuDNN's workspaces %d)", good[op]+bare[op])
		}
		table.WriteByte('\n')
	}
	fmt.Fprintf(&table, "%-32s %5d of %5d\n", "all", sumGood, sumTotal)
	if only != nil {
		t.Log("\n" + table.String())
		return
	}
	const golden = "testdata/conformance.golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(table.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), table.String(), "the conformance table changed; run with -update if that is right")
}

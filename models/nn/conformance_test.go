package nn_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/golden"
	"github.com/vprof/vprof/tools/opvectors"
	"github.com/vprof/vprof/tools/sample"
)

var (
	onlyOps  = flag.String("op", "", "look at these operators alone (comma-separated)")
	bareConv = flag.Bool("bare", false, "show differences but for cuDNN's workspaces")
	show     = flag.Int("show", 0, "print this many differences of each operator")
)

// recorded are the vectors of each release that there are any of; they are read once for all tests.
var recorded = map[string]func() ([]*vector, error){"2.11": vectorsOf("2.11"), "2.15": vectorsOf("2.15")}

func vectorsOf(release string) func() ([]*vector, error) {
	return sync.OnceValues(func() ([]*vector, error) {
		s, err := stack.Lookup(release)
		if err != nil {
			return nil, err
		}
		all, err := opvectors.Load("testdata/ops-"+release+".jsonl.bz2", s)
		return sample.Of(all), err
	})
}

type (
	vector = opvectors.Vector
	tensor = trace.Tensor
	frame  = trace.Frame
	params = map[string]*trace.Tensor
)

// operators knows how to call each operator of the vectors; the families are in conformance_*_test.go.
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

// operator adapts an operator of the table: the inputs are its tensors, in the
// order of the schema; the other arguments follow.
func operator(target string, more ...aten.Arg) opvectors.Call {
	return operatorWith(target, func(*vector, *tensor, params) []aten.Arg { return more })
}

// operatorWith returns operator with arguments that depend on the vector, on its first input, and on its parameters.
func operatorWith(target string, more func(v *vector, x *tensor, p params) []aten.Arg) opvectors.Call {
	op, ok := aten.ByTarget("torch.ops.aten." + target)
	if !ok {
		panic("not in the operator table: " + target)
	}
	return func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
		return call(f.Tape(), op, in, more(v, in[0], p))
	}
}

// call calls an operator: tensors fill the arguments of its schema that are not given, in its order.
func call(t *trace.Tape, op *aten.Operator, in []*tensor, more []aten.Arg) []*tensor {
	given := slices.Clone(more)
	has := func(name string) bool {
		return slices.ContainsFunc(given, func(a aten.Arg) bool { return a.Name == name })
	}
	for _, p := range op.Arguments {
		switch {
		case len(in) == 0 || has(p.Name) || !strings.HasPrefix(p.Type, "Tensor"):
		case strings.HasSuffix(p.Type, "[]"):
			given, in = append(given, aten.Arg{Name: p.Name, Value: in}), nil
		default:
			given, in = append(given, aten.Arg{Name: p.Name, Value: in[0]}), in[1:]
		}
	}
	args, err := op.Bind(given...)
	if err != nil {
		panic(err)
	}
	values, err := op.Call(t, args)
	if err != nil {
		panic(err)
	}
	var out []*tensor
	for _, v := range values {
		switch v := v.(type) {
		case *tensor:
			out = append(out, v)
		case []*tensor:
			out = append(out, v...)
		}
	}
	return out
}

// at returns the result of an operator of the table, in an expression of several: operands are
// tensors, in the order of the schema, and its other arguments.
func at(target string, operands ...any) *tensor {
	op, ok := aten.ByTarget("torch.ops.aten." + target)
	if !ok {
		panic("not in the operator table: " + target)
	}
	var in []*tensor
	var more []aten.Arg
	for _, o := range operands {
		switch o := o.(type) {
		case *tensor:
			in = append(in, o)
		case aten.Arg:
			more = append(more, o)
		}
	}
	return call(in[0].Tape(), op, in, more)[0]
}

// ints returns an argument that is a list of numbers.
func ints(name string, values ...int64) aten.Arg { return aten.Arg{Name: name, Value: values} }

// arg returns any other argument.
func arg(name string, value any) aten.Arg { return aten.Arg{Name: name, Value: value} }

// learned returns the layer's parameters and buffers as arguments; None where it has none.
func learned(p params, names ...string) []aten.Arg {
	var given []aten.Arg
	for _, name := range names {
		if x := p[name]; x != nil {
			given = append(given, arg(name, x))
		} else {
			given = append(given, arg(name, nil))
		}
	}
	return given
}

// last returns the normalized_shape of a normalization over the last n dimensions.
func last(x *tensor, n int) aten.Arg {
	return ints("normalized_shape", x.Shape()[len(x.Shape())-n:]...)
}

// number returns the second operand of an operator, whose value does not matter.
func number(v float64) aten.Arg { return aten.Arg{Name: "other", Value: v} }

// whole returns an argument that is one number.
func whole(name string, v int64) aten.Arg { return aten.Arg{Name: name, Value: v} }

// positive returns where a tensor is above zero.
func positive(x *tensor) *tensor { return at("gt.Scalar", x, number(0)) }

// along returns the dimension of an operator.
func along(dim int64) aten.Arg { return aten.Arg{Name: "dim", Value: dim} }

// one adapts an operator with one output.
func one(f func(v *vector, in []*tensor, p params) *tensor) opvectors.Call {
	return func(_ *trace.Frame, v *vector, in []*tensor, p params) []*tensor { return []*tensor{f(v, in, p)} }
}

// unary adapts an expression of one tensor: operators of the table, or what
// torch.nn.functional makes of several in Python and no ATen schema names.
func unary(f func(*tensor) *tensor) opvectors.Call {
	return one(func(_ *vector, in []*tensor, _ params) *tensor { return f(in[0]) })
}

// binary adapts an expression of two tensors.
func binary(f func(a, b *tensor) *tensor) opvectors.Call {
	return one(func(_ *vector, in []*tensor, _ params) *tensor { return f(in[0], in[1]) })
}

// tally counts the vectors of one operator.
type tally struct {
	total, identical int
	// bare counts vectors that differ in workspaces of cuDNN's convolutions alone.
	bare int
}

// TestOperatorsAllocateAsPyTorchDoes sets every recorded vector against the recorder. Nothing may differ but the
// workspaces of convolutions, whose share docs/lab/conformance.md tells.
func TestOperatorsAllocateAsPyTorchDoes(t *testing.T) {
	pages := ""
	for _, release := range slices.Sorted(maps.Keys(recorded)) {
		t.Run(release, func(t *testing.T) { pages += section(release, compareAll(t, release)) })
	}
	if *onlyOps == "" && sample.All() {
		golden.Equal(t, "../../docs/lab/conformance.md", []byte(intro+pages))
	}
}

func compareAll(t *testing.T, release string) map[string]*tally {
	vectors, err := recorded[release]()
	require.NoError(t, err)
	var only []string
	if *onlyOps != "" {
		only = strings.Split(*onlyOps, ",")
	}
	calls, tallies, shown := operators(), map[string]*tally{}, map[string]int{}
	for _, v := range vectors {
		if only != nil && !slices.Contains(only, v.Op) {
			continue
		}
		if tallies[v.Op] == nil {
			tallies[v.Op] = &tally{}
		}
		diff := tallies[v.Op].compare(v, calls[v.Op])
		if diff != "" && shown[v.Op] < *show {
			shown[v.Op]++
			t.Logf("%s %v %s %s %v grad %v %s\n   %s", v.Op, v.Args, v.Regime, v.GPU, v.In, v.Grad, v.Layout, diff)
		}
	}
	for op, c := range tallies {
		require.Equal(t, c.total, c.identical+c.bare,
			"%s: vectors that differ in more than workspaces of convolutions (-op %s -show 3 shows them)", op, op)
	}
	return tallies
}

// compare records a vector and counts it. The difference is "" if there is none, or with -bare none but in workspaces.
func (c *tally) compare(v *vector, call opvectors.Call) string {
	c.total++
	var diff string
	switch {
	case call != nil:
		diff = v.Compare(call)
	case procedures[v.Op] != nil:
		diff = v.CompareProcedure(procedures[v.Op])
	default:
		return "no such operator"
	}
	if diff == "" {
		c.identical++
		return ""
	}
	if call == nil {
		return diff
	}
	but := v.CompareBut("run_conv_plan", call)
	if but == "" {
		c.bare++
	}
	if *bareConv {
		return but
	}
	return diff
}

// keptOtherwise are operators whose kept storages are recorded in a way that cannot be compared, and why.
var keptOtherwise = map[string]string{
	"argsort":             "the graph hangs on the values, which the call does not return",
	"graph_detach_branch": "what a detached branch keeps is not reached from the output",
	"vq_distance":         "the output is an index; the graph is not reached from it",
	"gru":                 "weights not yet flattened are one storage there and several here",
	"lstm":                "weights not yet flattened are one storage there and several here",
	"rnn":                 "weights not yet flattened are one storage there and several here",
}

// TestGraphsKeepWhatPyTorchKeeps compares the storages saved for backward.
// Regions that are recomputed keep their inputs outside the graph.
func TestGraphsKeepWhatPyTorchKeeps(t *testing.T) {
	for release, read := range recorded {
		t.Run(release, func(t *testing.T) {
			vectors, err := read()
			require.NoError(t, err)
			requireKept(t, vectors)
		})
	}
}

func requireKept(t *testing.T, vectors []*vector) {
	calls := operators()
	for _, v := range vectors {
		call := calls[v.Op]
		if call == nil || keptOtherwise[v.Op] != "" || strings.HasPrefix(v.Op, "checkpoint") ||
			strings.HasPrefix(v.Op, "ckpt_") || strings.HasPrefix(v.Op, "block2_") {
			continue
		}
		v.CompareBut("run_conv_plan", call)
		require.Empty(t, v.SavedDifference(), "%s %v %s %s %v grad %v", v.Op, v.Args, v.Regime, v.GPU, v.In, v.Grad)
	}
}

const intro = `# Conformance

For maintainers: what single operators allocate and free, forward and backward, compared with PyTorch. The comparison is
event for event, in order and in size.

The recorded calls (vectors) of each release are in models/nn/testdata. The test that compares them writes this page
(` + "`make golden`" + `) and fails if a vector differs in anything but the workspace of a convolution. That workspace
depends on the engine that cuDNN's heuristic chooses, and on the number of splits of its sum. vprof models both
(profiler/trace/cudnn). Where cuDNN chose another engine, one size in the list differs.

Whole steps of other people's models: [models.md](models.md).

`

// section returns the part of docs/lab/conformance.md on a release.
func section(release string, tallies map[string]*tally) string {
	var sum tally
	var off strings.Builder
	for _, op := range slices.Sorted(maps.Keys(tallies)) {
		c := tallies[op]
		sum.total, sum.identical, sum.bare = sum.total+c.total, sum.identical+c.identical, sum.bare+c.bare
		if c.identical < c.total {
			fmt.Fprintf(&off, ", %s %d/%d", op, c.identical, c.total)
		}
	}
	return "## PyTorch " + release +
		fmt.Sprintf("\n\nOf %d vectors of %d operators, %d are identical (%.1f %%), and %d (%.1f %%) but for "+
			"workspaces of convolutions.\n\n",
			sum.total, len(tallies), sum.identical, 100*float64(sum.identical)/float64(sum.total),
			sum.identical+sum.bare, 100*float64(sum.identical+sum.bare)/float64(sum.total)) +
		"Identical among the vectors of operators that differ: " + strings.TrimPrefix(off.String(), ", ") + ".\n\n"
}

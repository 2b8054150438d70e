package pt2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/pt2/export"
)

func TestFunctionsAreFoundInStacks(t *testing.T) {
	model := export.Frame{File: "/home/me/model.py", Line: 7, Func: "forward", Source: "y = Swish.apply(x)"}
	forward := export.Frame{File: "/home/me/model.py", Line: 3, Func: "forward", Source: "return x * x.sigmoid()"}
	apply := export.Frame{
		File: "/x/site-packages/torch/autograd/function.py", Line: 583, Func: "apply",
		Source: "return super().apply(*args, **kwargs)",
	}
	for _, c := range []struct {
		stack      []export.Frame
		name, line string
	}{
		{[]export.Frame{model, forward}, "Swish", "model.py:7:forward"},
		{[]export.Frame{model, apply, forward}, "Swish", "model.py:7:forward"},
		{[]export.Frame{forward}, "", ""},
		// an operator of that very line
		{[]export.Frame{model}, "", ""},
		// not a Function's forward
		{[]export.Frame{model, {File: "/home/me/model.py", Line: 9, Func: "helper"}}, "", ""},
		{[]export.Frame{{
			File: "/x/site-packages/torch/utils/checkpoint.py", Line: 1, Func: "checkpoint",
			Source: "CheckpointFunction.apply(f, x)",
		}, forward}, "", ""},
	} {
		a := callSiteOf(c.stack)
		require.Equal(t, []string{c.name, c.line}, []string{a.name, a.caller.line})
	}
}

// A module that is called on the line of a Function is not part of it; one that the Function's own forward calls is.
func TestModulesBesideFunctionsAreNotTheirs(t *testing.T) {
	at := func(line int, source string) export.Frame {
		return export.Frame{File: "/home/me/model.py", Line: line, Func: "forward", Source: source}
	}
	line := at(9, "y = self.proj(Swish.apply(self.block, x))")
	swish, proj, linear := at(3, "return run(x).sigmoid()"), at(5, "return self.l(x)"),
		export.Frame{File: "/x/site-packages/torch/nn/modules/linear.py", Line: 134, Func: "forward"}
	node := func(modules []string, frames ...export.Frame) export.Node {
		return export.Node{
			Target: "torch.ops.aten.sin.default", Module: modules[len(modules)-1], Stack: modules,
			Trace: append([]export.Frame{line}, frames...),
		}
	}
	p := &export.Program{Nodes: []export.Node{
		node([]string{"", "block"}, swish, linear),
		node([]string{""}, swish),
		node([]string{"", "proj"}, proj),
		node([]string{"", "proj", "proj.l"}, proj, linear),
		node([]string{""}, swish),
		node([]string{"", "proj"}, linear),
	}}
	var found []int
	for _, c := range customFunctions(p) {
		require.Equal(t, "Swish", c.Name)
		for i := c.Begin; i < c.End; i++ {
			found = append(found, i)
		}
	}
	require.Equal(t, []int{0, 1, 4}, found)
}

// A number that depends on data and is only checked is not needed; one that something is computed with is.
func TestNumbersThatAreOnlyCheckedAreLeftOut(t *testing.T) {
	ref := func(v int32) export.Argument { return export.Argument{Kind: export.Ref, Ref: v} }
	node := func(target string, in, out int32) export.Node {
		n := export.Node{Target: target, Inputs: []export.NamedArgument{{Name: "self", Argument: ref(in)}}}
		if out >= 0 {
			n.Outputs = []export.Argument{ref(out)}
		}
		return n
	}
	p := &export.Program{Values: 5, Nodes: []export.Node{
		node(itemTarget, 0, 1), node("_operator.le", 1, 2), node("torch.ops.aten._assert_scalar.default", 2, -1),
	}}
	require.Equal(t, []bool{true, true, true}, onlyUsedInChecks(p))
	p.Nodes = append(p.Nodes, node("torch.ops.aten.mul.Scalar", 1, 3))
	require.Equal(t, []bool{false, true, true, false}, onlyUsedInChecks(p))
	_, err := newGraph(p)
	require.ErrorContains(t, err, "aten.item.default (1 times)")
	rows := node(selectTarget, 4, 3)
	rows.Inputs = append(rows.Inputs, export.NamedArgument{Name: "index", Argument: ref(1)})
	p.Nodes[3] = rows
	require.Equal(t, []bool{true, true, true, false}, onlyUsedInChecks(p), "every row is as large")
	p.Nodes, p.Results = p.Nodes[:3], []export.Result{{Value: 1}}
	require.Equal(t, []bool{false, true, true}, onlyUsedInChecks(p))
}

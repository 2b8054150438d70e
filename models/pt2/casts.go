package pt2

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
)

// followTypes makes casts follow the types that tensors have in a run. Export
// writes the type of a cast as it was in the export: where a model in fp32 says
// x.to(input_dtype), the graph says fp32, and under autocast or with weights in
// half precision that is wrong. So a cast that changed nothing in the export,
// and whose source line names no type, takes that of what the module was called
// with.
func followTypes(p *export.Program) {
	known := map[int32]int64{} // types of values in the export
	for i := range p.Nodes {
		n := &p.Nodes[i]
		switch name := strings.TrimPrefix(n.Target, "torch.ops.aten."); name {
		case "_assert_tensor_metadata.default":
			if v, ok := find(n, "a"), find(n, "dtype"); v != nil && ok != nil && v.Kind == export.Ref && ok.Kind == export.Type {
				known[v.Ref] = ok.Int
			}
		case "to.dtype", "to.dtype_layout", "to.device":
			x, d := find(n, "self"), find(n, "dtype")
			if x == nil || d == nil || x.Kind != export.Ref || d.Kind != export.Type || d.Int != int64(export.Float) {
				continue
			}
			if was, ok := known[x.Ref]; ok && was == d.Int && !namesType(n) {
				*d = export.Argument{Kind: export.TypeOf, List: calledWith(p, i)}
			}
		}
	}
}

// find is an argument by its name, nil if it is absent.
func find(n *export.Node, name string) *export.Argument {
	for i := range n.Inputs {
		if n.Inputs[i].Name == name {
			return &n.Inputs[i].Argument
		}
	}
	return nil
}

// typeNames are how source lines name fp32. A line that is not known may.
var typeNames = []string{"torch.float", ".float()", "dtype=float"}

func namesType(n *export.Node) bool {
	if len(n.Trace) == 0 {
		return true
	}
	source := n.Trace[len(n.Trace)-1].Source
	return source == "" || slices.ContainsFunc(typeNames, func(t string) bool { return strings.Contains(source, t) })
}

// calledWith are the values from outside that the call of node i's module has
// used so far, but for parameters and buffers.
func calledWith(p *export.Program, i int) []export.Argument {
	stack := p.Nodes[i].Stack
	first := i
	for first > 0 && isPrefix(stack, p.Nodes[first-1].Stack) {
		first--
	}
	own := map[int32]bool{}
	for k := range p.Inputs {
		own[p.Inputs[k].Value] = p.Inputs[k].Role != export.UserInput
	}
	var out []export.Argument
	for k := first; k <= i; k++ {
		n := &p.Nodes[k]
		for _, a := range n.Inputs {
			values(a.Argument, func(v int32) {
				if !own[v] {
					out = append(out, export.Argument{Kind: export.Ref, Ref: v})
				}
				own[v] = true
			})
		}
		for _, o := range n.Outputs {
			values(o, func(v int32) { own[v] = true })
		}
	}
	return out
}

func isPrefix(a, b []string) bool { return len(a) <= len(b) && slices.Equal(a, b[:len(a)]) }

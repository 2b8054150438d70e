package pt2

import (
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
)

// castProducts inserts casts to the weight's dtype where a module has computed in fp32, multiplies by a weight of its
// own, and passes the product to a linear layer. In half precision PyTorch has no such layer for fp32, so the code
// casts under a condition that was false in the export, as T5's norm does: if self.weight.dtype in [float16, bfloat16].
func castProducts(p *export.Program) {
	weights := map[int32]bool{}
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Role == export.Parameter {
			weights[in.Value] = true
		}
	}
	u := findUses(p)
	casts := map[int]export.Node{} // by the products that they go before
	in32 := false                  // the module's code has cast to fp32, which changed nothing in the export
	for i := range p.Nodes {
		n := &p.Nodes[i]
		in32 = in32 && slices.Equal(n.Stack, p.Nodes[i-1].Stack)
		if n.Target == multiply && len(n.Trace) > 0 && in32 {
			if weight, factor := weightOperands(n, weights); factor != nil && !isCast(p, u, factor.Ref) &&
				goesToLinear(p, u, soleResult(n)) {
				casts[i] = castBefore(p, n, weight, factor)
			}
		}
		in32 = in32 || n.CastsNothing && namesType(n)
	}
	if len(casts) == 0 {
		return
	}
	nodes := make([]export.Node, 0, len(p.Nodes)+len(casts))
	for i, n := range p.Nodes {
		if cast, ok := casts[i]; ok {
			nodes = append(nodes, cast)
		}
		nodes = append(nodes, n)
	}
	p.Nodes = nodes
}

const multiply = "torch.ops.aten.mul.Tensor"

// weightOperands returns the two factors of a product if exactly one of them is a weight, else nil.
func weightOperands(n *export.Node, weights map[int32]bool) (weight, factor *export.Argument) {
	a, b := findArgument(n, "self"), findArgument(n, "other")
	if a == nil || b == nil || a.Kind != export.Ref || b.Kind != export.Ref || weights[a.Ref] == weights[b.Ref] {
		return nil, nil
	}
	if weights[b.Ref] {
		a, b = b, a
	}
	return a, b
}

// castBefore returns a node that casts a product's factor to the dtype of its weight, and makes the product use its
// result.
func castBefore(p *export.Program, product *export.Node, weight, factor *export.Argument) export.Node {
	cast := *product
	cast.Target, cast.Dies = "torch.ops.aten.to.dtype", nil
	cast.Inputs = []export.Named{{Name: "self", Argument: *factor}, {Name: "dtype", Argument: typeOfValues(weight.Ref)}}
	cast.Outputs = []export.Argument{{Kind: export.Ref, Ref: int32(p.Values)}}
	cast.Trace = assignedFrames(cast.Trace)
	factor.Ref = int32(p.Values)
	p.Values++
	return cast
}

// isCast reports whether a value is the result of a cast, so that the code itself determines its dtype.
func isCast(p *export.Program, u uses, v int32) bool {
	i := u.maker[v]
	return i >= 0 && len(p.Nodes[i].Outputs) == 1 && strings.HasPrefix(p.Nodes[i].Target, "torch.ops.aten.to.")
}

// goesToLinear reports whether a value is used only by linear layers, directly or after dropout or scaling.
func goesToLinear(p *export.Program, u uses, v int32) bool {
	found := false
	for v >= 0 {
		next := int32(-1)
		for _, k := range u.takers[v] {
			n := &p.Nodes[k]
			switch {
			case n.Target == linear && inputOf(n, "input") == v:
				found = true
				continue
			case n.Target == "torch.ops.aten.dropout.default", n.Target == multiply && inputOf(n, "other") < 0:
				next = soleResult(n)
			default:
				return false
			}
			break
		}
		v = next
	}
	return found
}

// assignedFrames returns the trace of a product's line as if that line assigned the factor's name, as the cast does: y
// = y.to(self.weight.dtype).
func assignedFrames(trace []export.Frame) []export.Frame {
	out := slices.Clone(trace)
	last := &out[len(out)-1]
	if m := factor.FindStringSubmatch(last.Source); m != nil {
		last.Source = m[1] + " = " + m[1] + ".to(self.weight.dtype)"
	}
	return out
}

var factor = regexp.MustCompile(`self\.\w+ \* (\w+)$`)

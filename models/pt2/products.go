package pt2

import (
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
)

// castProducts inserts casts to the weight's data type where a module has computed in fp32, multiplies by a weight of
// its own, and passes the product to a linear layer. In half precision a linear layer rejects fp32, so the model's code
// casts under a condition that was false during export, as T5's norm does: if self.weight.dtype in [float16, bfloat16].
func castProducts(p *export.Program) {
	weights := map[int32]bool{}
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Role == export.Parameter {
			weights[in.Value] = true
		}
	}
	u := findUses(p)
	casts := map[int]export.Node{} // the cast to insert before each product
	in32 := false                  // the module has cast to fp32, without effect during export
	for i := range p.Nodes {
		n := &p.Nodes[i]
		in32 = in32 && slices.Equal(n.Stack, p.Nodes[i-1].Stack)
		if n.Target == multiplyTarget && len(n.Trace) > 0 && in32 {
			if weight, factor := weightOperands(n, weights); factor != nil && !isCast(p, u, factor.Ref) &&
				isUsedByLinearOnly(p, u, soleResult(n)) {
				casts[i] = castBefore(p, n, weight, factor)
			}
		}
		in32 = in32 || n.CastsNothing && mentionsFP32(n)
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

const multiplyTarget = "torch.ops.aten.mul.Tensor"

// weightOperands returns both factors of a product if exactly one of them is a weight; nil otherwise.
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

// castBefore returns a new node that casts a product's factor to the weight's dtype, and makes the product use it.
func castBefore(p *export.Program, product *export.Node, weight, factor *export.Argument) export.Node {
	cast := *product
	cast.Target, cast.Dies = "torch.ops.aten.to.dtype", nil
	cast.Inputs = []export.NamedArgument{
		{Name: "self", Argument: *factor},
		{Name: "dtype", Argument: typeLikeValues(weight.Ref)},
	}
	cast.Outputs = []export.Argument{{Kind: export.Ref, Ref: int32(p.Values)}}
	cast.Trace = castTrace(cast.Trace)
	factor.Ref = int32(p.Values)
	p.Values++
	return cast
}

// isCast reports whether a value is the result of a cast in the model's code.
func isCast(p *export.Program, u valueUses, v int32) bool {
	i := u.producer[v]
	return i >= 0 && len(p.Nodes[i].Outputs) == 1 && strings.HasPrefix(p.Nodes[i].Target, "torch.ops.aten.to.")
}

// isUsedByLinearOnly reports whether only linear layers use a value, directly or after dropout or scaling.
func isUsedByLinearOnly(p *export.Program, u valueUses, v int32) bool {
	found := false
	for v >= 0 {
		next := int32(-1)
		for _, k := range u.users[v] {
			n := &p.Nodes[k]
			switch {
			case n.Target == linearTarget && inputOf(n, "input") == v:
				found = true
				continue
			case n.Target == "torch.ops.aten.dropout.default", n.Target == multiplyTarget && inputOf(n, "other") < 0:
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

// castTrace returns a stack trace for an inserted cast, as if the product's line were y = y.to(self.weight.dtype).
func castTrace(trace []export.Frame) []export.Frame {
	out := slices.Clone(trace)
	last := &out[len(out)-1]
	if m := factorPattern.FindStringSubmatch(last.Source); m != nil {
		last.Source = m[1] + " = " + m[1] + ".to(self.weight.dtype)"
	}
	return out
}

var factorPattern = regexp.MustCompile(`self\.\w+ \* (\w+)$`)

package pt2

import (
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
)

// castProducts puts casts to the type of the weight where a module has computed in fp32,
// multiplies by a weight of its own, and gives the product to a linear layer. In half
// precision PyTorch has no such layer for fp32, so the code casts under a condition that was
// false in the export, as T5's norm does: if self.weight.dtype in [float16, bfloat16].
func castProducts(p *export.Program) {
	weights := map[int32]bool{}
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Role == export.Parameter {
			weights[in.Value] = true
		}
	}
	for i := 0; i < len(p.Nodes); i++ {
		n := &p.Nodes[i]
		if n.Target != multiply || len(n.Trace) == 0 || !computesIn32(p, i) {
			continue
		}
		a, b := find(n, "self"), find(n, "other")
		if b == nil || a.Kind != export.Ref || b.Kind != export.Ref {
			continue
		}
		if weights[b.Ref] {
			a, b = b, a
		}
		if !weights[a.Ref] || weights[b.Ref] || isCast(p, b.Ref, i) || !goesToLinear(p, i) {
			continue
		}
		cast := *n
		cast.Target, cast.Dies = "torch.ops.aten.to.dtype", nil
		cast.Inputs = []export.Named{{Name: "self", Argument: *b}, {Name: "dtype", Argument: typeOfValues(a.Ref)}}
		cast.Outputs = []export.Argument{{Kind: export.Ref, Ref: int32(p.Values)}}
		b.Ref = int32(p.Values)
		cast.Trace = assigned(cast.Trace)
		p.Values++
		p.Nodes = slices.Insert(p.Nodes, i, cast)
		i++
	}
}

const multiply = "torch.ops.aten.mul.Tensor"

// computesIn32 reports whether the module whose code node i is has cast to fp32 before, which
// changed nothing in the export.
func computesIn32(p *export.Program, i int) bool {
	stack := p.Nodes[i].Stack
	for k := i - 1; k >= 0 && slices.Equal(p.Nodes[k].Stack, stack); k-- {
		if n := &p.Nodes[k]; n.CastsNothing && namesType(n) {
			return true
		}
	}
	return false
}

// isCast reports whether a node before i has made a value by a cast: the code says itself
// which type the factor has.
func isCast(p *export.Program, v int32, i int) bool {
	for k := i - 1; k >= 0; k-- {
		n := &p.Nodes[k]
		if len(n.Outputs) == 1 && isRef(&n.Outputs[0], v) {
			return strings.HasPrefix(n.Target, "torch.ops.aten.to.")
		}
	}
	return false
}

// goesToLinear reports whether linear layers take what node i makes, after a dropout or scaled or
// as it is.
func goesToLinear(p *export.Program, i int) bool {
	made, found := p.Nodes[i].Outputs[0].Ref, false
	for k := i + 1; k < len(p.Nodes); k++ {
		n := &p.Nodes[k]
		for _, in := range n.Inputs {
			switch {
			case !isRef(&in.Argument, made):
			case n.Target == linear && in.Name == "input":
				found = true
			case n.Target == "torch.ops.aten.dropout.default", n.Target == multiply && find(n, "other").Kind != export.Ref:
				made = n.Outputs[0].Ref
			default:
				return false
			}
		}
	}
	return found
}

// assigned is the trace of a product's line as if that line gave the factor's name another
// value, as the cast's own does: y = y.to(self.weight.dtype).
func assigned(trace []export.Frame) []export.Frame {
	out := slices.Clone(trace)
	last := &out[len(out)-1]
	if m := factor.FindStringSubmatch(last.Source); m != nil {
		last.Source = m[1] + " = " + m[1] + ".to(self.weight.dtype)"
	}
	return out
}

var factor = regexp.MustCompile(`self\.\w+ \* (\w+)$`)

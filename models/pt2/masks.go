package pt2

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/pt2/export"
)

// dropMasks removes attention masks that exist only because the graph was traced. Outside of tracing, transformers'
// mask functions return None if a mask would hide nothing, or if a causal mask equals attention's is_causal
// (masking_utils.py: _ignore_bidirectional_mask_sdpa, _ignore_causal_mask_sdpa). Such masks depend on positions alone;
// masks of padding or packing have other inputs.
func dropMasks(p *export.Program) {
	for i := 0; i < len(p.Nodes); i++ {
		end := i
		for end < len(p.Nodes) && isInMaskFunction(&p.Nodes[end]) && p.Nodes[end].Line == p.Nodes[i].Line {
			end++
		}
		if end > i {
			dropMask(p, i, end)
			i = end - 1
		}
	}
}

// maskFunctions are transformers' two mask functions, and the method of BERT-like models that calls them.
var maskFunctions = []string{"create_bidirectional_mask(", "create_causal_mask(", "._create_attention_masks("}

func isInMaskFunction(n *export.Node) bool {
	if len(n.Trace) == 0 {
		return false
	}
	source := n.Trace[len(n.Trace)-1].Source
	return slices.ContainsFunc(maskFunctions, func(name string) bool { return strings.Contains(source, name) })
}

// The operators that compare positions.
const (
	lessOrEqual    = "le.Tensor"
	greaterOrEqual = "ge.Scalar"
)

// positionComparisons are the operators in masks that depend on positions alone.
var positionComparisons = map[string]bool{
	"arange.default": true, "arange.start": true, "add.Tensor": true, "unsqueeze.default": true, "expand.default": true,
	lessOrEqual: true, greaterOrEqual: true,
}

// dropMask removes the mask that the nodes from begin to end make, if it depends on positions alone and only
// attention uses it.
func dropMask(p *export.Program, begin, end int) {
	made, causal, ok := findPositions(p.Nodes[begin:end])
	if !ok {
		return
	}
	var uses []*export.Node
	chosen := false // a causal mask selects elements of a position bias
	for i := end; i < len(p.Nodes); i++ {
		n := &p.Nodes[i]
		for _, a := range n.Inputs {
			taken := false
			eachValue(a.Argument, func(v int32) { taken = taken || made[v] })
			if !taken {
				continue
			}
			if !usesAsMask(n, a.Name) {
				return
			}
			uses, chosen = append(uses, n), chosen || n.Target == whereTarget && causal
		}
	}
	for _, r := range p.Results {
		if made[r.Value] {
			return
		}
	}
	if chosen {
		keepMaskUnexpanded(p, begin, end)
		return
	}
	for i := begin; i < end; i++ {
		p.Nodes[i].Inputs, p.Nodes[i].Outputs, p.Nodes[i].Target = nil, nil, ""
	}
	for _, n := range uses {
		removeMask(p, n, causal)
	}
}

// findPositions returns the values that depend on positions alone, and whether positions are compared with each other
// (causal). ok is false if the mask has other inputs.
func findPositions(nodes []export.Node) (made map[int32]bool, causal, ok bool) {
	made = map[int32]bool{}
	all := false
	for i := range nodes {
		n := &nodes[i]
		name := shortTarget(n.Target)
		if !positionComparisons[name] && !strings.HasPrefix(name, "_assert_") {
			return nil, false, false
		}
		causal, all = causal || name == lessOrEqual, all || name == greaterOrEqual
		for _, a := range n.Inputs {
			if a.Kind == export.Ref && !made[a.Ref] && name != "arange.default" && name != "arange.start" {
				return nil, false, false // an input other than positions
			}
		}
		eachOutput(n, func(v int32) { made[v] = true })
	}
	return made, causal, causal != all
}

// keepMaskUnexpanded keeps a causal mask at batch size 1 if attention adds a position bias to it
// (create_position_bias_mask).
func keepMaskUnexpanded(p *export.Program, begin, end int) {
	for i := begin; i < end; i++ {
		if n := &p.Nodes[i]; n.Target == "torch.ops.aten.expand.default" {
			bypassNode(p, n)
		}
	}
}

// bypassNode replaces a node's result by its argument self everywhere, and removes the node.
func bypassNode(p *export.Program, n *export.Node) {
	if v, x := soleResult(n), inputOf(n, "self"); v >= 0 && x >= 0 {
		replaceValue(p, v, x)
		n.Inputs, n.Outputs, n.Target = nil, nil, ""
	}
}

func usesAsMask(n *export.Node, argument string) bool {
	return n.Target == attentionTarget && argument == "attn_mask" || n.Target == whereTarget && argument == "condition"
}

const (
	attentionTarget = "torch.ops.aten.scaled_dot_product_attention.default"
	whereTarget     = "torch.ops.aten.where.ScalarOther"
)

// removeMask changes a node to run without the mask.
func removeMask(p *export.Program, n *export.Node, causal bool) {
	if n.Target == whereTarget {
		bypassNode(p, n)
		return
	}
	keeps := func(a export.NamedArgument) bool { return a.Name != "attn_mask" && a.Name != "is_causal" }
	kept := lists.Filter(n.Inputs, keeps)
	if causal {
		yes := export.Argument{Kind: export.Boolean, Int: 1}
		kept = append(kept, export.NamedArgument{Name: "is_causal", Argument: yes})
	}
	n.Inputs = kept
}

func replaceValue(p *export.Program, old, other int32) {
	var fix func(a *export.Argument)
	fix = func(a *export.Argument) {
		if a.Kind == export.Ref && a.Ref == old {
			a.Ref = other
		}
		for i := range a.List {
			fix(&a.List[i])
		}
	}
	for i := range p.Nodes {
		for k := range p.Nodes[i].Inputs {
			fix(&p.Nodes[i].Inputs[k].Argument)
		}
	}
	for i := range p.Results {
		if p.Results[i].Value == old {
			p.Results[i].Value = other
		}
	}
}

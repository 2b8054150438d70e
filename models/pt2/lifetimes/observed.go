package lifetimes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
)

// findObserved sets Dies of the program's nodes from the releases that capture observed. A value without an entry lives
// to the end of the step. An unnamed value, which was added to the graph later, lives until its last use.
func findObserved(p *export.Program) error {
	at := map[int32]int{-1: 0}
	for i := range p.Nodes {
		at[p.Nodes[i].Number] = i // a Close is last with its number
	}
	made, values := madeBy(p)
	for _, r := range p.Results {
		delete(made, r.Value) // the caller has it
	}
	last, same := lastUses(p), aliasesOf(p)
	end := func(group []int32, i int) {
		for _, v := range group {
			if made[v] {
				n := &p.Nodes[max(i, last[v])]
				n.Dies = append(n.Dies, v)
			}
		}
	}
	for _, d := range p.Extra.Dies {
		i, ok := at[d.Node]
		if !ok {
			return fmt.Errorf("extra/vprof.json frees values after node %d, which the graph does not have; capture "+
				"the model again", d.Node)
		}
		for _, name := range d.Values {
			v, ok := values[name]
			if !ok {
				v, ok = values[name[strings.IndexByte(name, '/')+1:]]
			}
			switch {
			case ok:
				end(same.group(v), i)
			case !slices.Contains(p.Names, name): // else what a graph gives, under its outer name
				return fmt.Errorf("extra/vprof.json frees %q, which no node creates; capture the model again", name)
			}
		}
	}
	for v := len(p.Names); v < p.Values; v++ {
		end([]int32{int32(v)}, 0)
	}
	return nil
}

// madeBy returns the set of values that nodes compute, and the same values by their names in the graph.
func madeBy(p *export.Program) (made map[int32]bool, named map[string]int32) {
	made, named = map[int32]bool{}, map[string]int32{}
	for i := range p.Nodes {
		for _, v := range outputs(&p.Nodes[i]) {
			made[v] = true
		}
	}
	for v, name := range p.Names {
		if made[int32(v)] {
			named[name] = int32(v)
		}
	}
	return made, named
}

// lastUses returns for each value the index of the last node that uses it.
func lastUses(p *export.Program) []int {
	last := make([]int, p.Values)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, v := range append(inputs(n), outputs(n)...) {
			last[v] = i
		}
	}
	return last
}

// aliasGroups groups values that are one tensor in Python, because an in-place operator returns its argument.
type aliasGroups map[int32][]int32

func aliasesOf(p *export.Program) aliasGroups {
	same := aliasGroups{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if !inPlace(n.Target) || len(n.Inputs) == 0 || len(n.Outputs) == 0 || n.Inputs[0].Kind != export.Ref ||
			n.Outputs[0].Kind != export.Ref {
			continue
		}
		a, b := n.Inputs[0].Ref, n.Outputs[0].Ref
		all := append(same.group(a), b)
		for _, v := range all {
			same[v] = all
		}
	}
	return same
}

func (s aliasGroups) group(v int32) []int32 {
	if g, ok := s[v]; ok {
		return g[:len(g):len(g)]
	}
	return []int32{v}
}

// inPlace reports whether an operator works in place, like aten.add_.Tensor.
func inPlace(target string) bool {
	name := strings.TrimPrefix(target, "torch.ops.aten.")
	name, _, _ = strings.Cut(name, ".")
	return strings.HasSuffix(name, "_") && !strings.HasSuffix(name, "__")
}

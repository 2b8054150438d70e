package pt2

import "github.com/vprof/vprof/models/pt2/export"

// lastUses has each value die after its last use.
func lastUses(p *export.Program) {
	last := make([]int, p.Values)
	for i := range last {
		last[i] = -1
	}
	var use func(a export.Argument, i int)
	use = func(a export.Argument, i int) {
		if a.Kind == export.Ref {
			last[a.Ref] = i
		}
		for _, x := range a.List {
			use(x, i)
		}
	}
	for i := range p.Nodes {
		for _, a := range p.Nodes[i].Inputs {
			use(a.Argument, i)
		}
		for _, a := range p.Nodes[i].Outputs {
			use(a, i)
		}
	}
	for i := range p.Inputs {
		if v := p.Inputs[i].Value; v >= 0 {
			last[v] = -1
		}
	}
	for _, r := range p.Results {
		if r.Value >= 0 {
			last[r.Value] = -1
		}
	}
	for v, i := range last {
		if i >= 0 {
			p.Nodes[i].Dies = append(p.Nodes[i].Dies, int32(v))
		}
	}
}

package pt2

import "github.com/vprof/vprof/models/pt2/export"

// uses says which nodes of a program make and use its values.
type uses struct {
	maker  []int   // the node that makes a value, -1 if none does
	takers [][]int // the nodes that have a value as an argument of its own, in order
}

func usesOf(p *export.Program) uses {
	u := uses{maker: make([]int, p.Values), takers: make([][]int, p.Values)}
	for v := range u.maker {
		u.maker[v] = -1
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, a := range n.Inputs {
			if a.Kind == export.Ref {
				u.takers[a.Ref] = append(u.takers[a.Ref], i)
			}
		}
		for _, o := range n.Outputs {
			if o.Kind == export.Ref {
				u.maker[o.Ref] = i
			}
		}
	}
	return u
}

// eachInput calls f for the values among a node's arguments.
func eachInput(n *export.Node, f func(v int32)) {
	for _, a := range n.Inputs {
		values(a.Argument, f)
	}
}

// eachOutput calls f for the values among a node's results.
func eachOutput(n *export.Node, f func(v int32)) {
	for _, o := range n.Outputs {
		values(o, f)
	}
}

// result is the value of a node that makes one, -1 of others: files can say anything.
func result(n *export.Node) int32 {
	if len(n.Outputs) == 1 && n.Outputs[0].Kind == export.Ref {
		return n.Outputs[0].Ref
	}
	return -1
}

// inputOf is the value that a node has as the argument of a name, -1 if it has none.
func inputOf(n *export.Node, name string) int32 {
	if a := find(n, name); a != nil && a.Kind == export.Ref {
		return a.Ref
	}
	return -1
}

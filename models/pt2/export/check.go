package export

import "fmt"

// Limits of an exported program: larger programs are refused as damaged.
const (
	mostDims  = 16
	mostInput = 1 << 40 // elements of one dimension
)

// check returns an error for a program that torch.export cannot have written: values that are used before they are
// computed (which excludes cycles), values computed twice, tensors of impossible sizes.
func (p *Program) check() error {
	made := make([]bool, p.Values)
	for i := range p.Inputs {
		in := &p.Inputs[i]
		if in.Value < 0 {
			continue
		}
		if err := in.check(); err != nil {
			return err
		}
		made[in.Value] = true
	}
	for i := range p.Nodes {
		if err := p.checkNode(&p.Nodes[i], made); err != nil {
			return err
		}
	}
	for _, r := range p.Results {
		if r.Value >= 0 && !made[r.Value] {
			return fmt.Errorf("forward returns %s, which no node computes; export the model again", p.Names[r.Value])
		}
	}
	return nil
}

// checkNode checks that a node reads only computed values, and marks its results in made as computed.
func (p *Program) checkNode(n *Node, made []bool) error {
	for _, a := range n.Inputs {
		if v := firstUncomputed(made, a.Argument); v >= 0 {
			return fmt.Errorf("node %d (%s) reads %s, which no earlier node computes; export the model again",
				n.Number, n.Target, p.Names[v])
		}
	}
	for _, a := range flatten(nil, n.Outputs) {
		if a.Kind != Ref {
			continue
		}
		if made[a.Ref] {
			return fmt.Errorf("node %d (%s) computes %s, which another node has computed; export the model again",
				n.Number, n.Target, p.Names[a.Ref])
		}
		made[a.Ref] = true
	}
	return nil
}

func (in *Input) check() error {
	if in.Role != UserInput && in.Number {
		return fmt.Errorf("tensor_values has no entry for %s; export the model again", in.Name)
	}
	if len(in.Sizes) > mostDims {
		return fmt.Errorf("%s has %d dimensions, more than vprof reads (%d)", in.Name, len(in.Sizes), mostDims)
	}
	for _, s := range in.Sizes {
		if s.Expr == nil && (s.Int < 0 || s.Int > mostInput) {
			return fmt.Errorf("%s has a dimension of size %d: need 0 to %d", in.Name, s.Int, mostInput)
		}
		if s.Expr != nil && in.Role != UserInput {
			return fmt.Errorf("the size of %s, a weight or buffer, depends on the input; export a model whose "+
				"weights have fixed sizes", in.Name)
		}
	}
	return nil
}

// firstUncomputed returns the first value in an argument that no node has computed yet, -1 if there is none.
func firstUncomputed(made []bool, a Argument) int32 {
	if a.Kind == Ref && !made[a.Ref] {
		return a.Ref
	}
	if a.Kind == TypeOf {
		return -1
	}
	for _, x := range a.List {
		if v := firstUncomputed(made, x); v >= 0 {
			return v
		}
	}
	return -1
}

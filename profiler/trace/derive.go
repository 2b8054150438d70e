package trace

// The parts of a node: the inputs of its operator, of which some may be nil, and the tensors
// that it saves for backward, with nil where one is missing or not needed.
type (
	inputs  = []*Tensor
	saves   = []*Tensor
	outputs = []*Tensor
)

// Derive makes the node of an operator that has computed outs, if autograd follows it.
func (t *Tape) Derive(outs outputs, name string, in inputs, kept saves, gradients func(b *Gradients)) {
	n := t.record(name, in...)
	if n == nil {
		return
	}
	n.save(kept...)
	n.setOutputs(outs...)
	n.apply = gradients
}

// Derived makes the node of an operator with one result.
func (x *Tensor) Derived(name string, in inputs, kept saves, gradients func(b *Gradients)) *Tensor {
	x.tape.Derive(outputs{x}, name, in, kept, gradients)
	return x
}

// rederived makes the node of an operator that has overwritten x, if autograd follows it.
func (x *Tensor) rederived(name string, in inputs, kept saves, gradients func(b *Gradients)) *Tensor {
	if n := x.tape.record(name, in...); n != nil {
		n.save(kept...)
		n.apply = gradients
		x.rebase(n)
	}
	return x
}

// when returns x if a condition holds, else nil.
func when(condition bool, x *Tensor) *Tensor {
	if condition {
		return x
	}
	return nil
}

// partial is the gradient of one input.
type partial struct {
	input int
	of    func(b *Gradients) *Tensor
}

// each computes the needed gradients, in the given order.
func each(partials ...partial) func(b *Gradients) {
	return func(b *Gradients) {
		for _, p := range partials {
			if b.Needs(p.input) {
				b.Give(p.input, p.of(b))
			}
		}
	}
}

// formulas are derivatives by argument.
type formulas = map[string]string

package trace

// What a node is made of: the inputs of its operator, of which some may be nil, and what it
// saves for backward, with nil in the place of what is not there or not needed.
type (
	inputs  = []*Tensor
	saves   = []*Tensor
	outputs = []*Tensor
)

// derive makes the node of an operator that has computed outs, if autograd follows it.
func (t *Tape) derive(outs outputs, name string, in inputs, kept saves, gradients func(b *backward)) {
	n := t.record(name, in...)
	if n == nil {
		return
	}
	n.save(kept...)
	n.setOutputs(outs...)
	n.apply = gradients
}

// derived is derive for an operator with one result.
func (x *Tensor) derived(name string, in inputs, kept saves, gradients func(b *backward)) *Tensor {
	x.tape.derive(outputs{x}, name, in, kept, gradients)
	return x
}

// rederived makes the node of an operator that has overwritten x, if autograd follows it.
func (x *Tensor) rederived(name string, in inputs, kept saves, gradients func(b *backward)) *Tensor {
	if n := x.tape.record(name, in...); n != nil {
		n.save(kept...)
		n.apply = gradients
		x.rebase(n)
	}
	return x
}

// when is x if a condition holds, else nil.
func when(condition bool, x *Tensor) *Tensor {
	if condition {
		return x
	}
	return nil
}

// partial is the gradient of one input.
type partial struct {
	input int
	of    func(b *backward) *Tensor
}

// each computes the gradients that are wanted, in the given order.
func each(partials ...partial) func(b *backward) {
	return func(b *backward) {
		for _, p := range partials {
			if b.needs(p.input) {
				b.give(p.input, p.of(b))
			}
		}
	}
}

package trace

import "strings"

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

// traits are the properties of a row.
type traits uint8

const (
	inPlace   traits = 1 << iota // PyTorch has the form that overwrites self, too
	inFull                       // autocast runs it in fp32
	inWidest                     // autocast runs it in the widest type of its arguments
	keepsType                    // integers stay integers
	ofSelf                       // the result has the type of self
	keepsSize                    // the result is real, of the type of self
)

// row returns an operator from its declaration (or its name if it takes one tensor), its traits,
// operations per element, the gradient of self ("" for none) and aliases.
func row(schema string, t traits, flops int64, gradientOfSelf string, aliases ...string) *Operator {
	if !strings.Contains(schema, "(") {
		schema += "(Tensor self) -> Tensor"
	}
	o := &Operator{Schema: schema, Aliases: aliases, InPlace: t&inPlace != 0, flops: flops}
	if gradientOfSelf != "" {
		o.gradients = gradient(gradientOfSelf)
	}
	switch {
	case t&inFull != 0:
		o.casts = castFull
	case t&inWidest != 0:
		o.casts = castWidest
	}
	switch {
	case t&ofSelf != 0:
		o.result = selfTyped
	case t&keepsType != 0:
		o.result = promoted
	case t&keepsSize != 0:
		o.result = absolute
	}
	return o
}

// as sets the class of the row's autograd node where it does not follow from the name.
func (o *Operator) as(node string) *Operator {
	o.node = node
	return o
}

// and adds the gradient of another argument.
func (o *Operator) and(argument, formula string) *Operator {
	o.gradients[argument] = formula
	return o
}

// recordedAs sets the name under which calls are recorded.
func (o *Operator) recordedAs(native string) *Operator {
	o.native = native
	return o
}

// flat is the gradient of a function that is constant between its steps.
const flat = "zeros_like(grad)"

// gradient returns the derivative of a function of self alone.
func gradient(formula string) map[string]string { return map[string]string{"self": formula} }

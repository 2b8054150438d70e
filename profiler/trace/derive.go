package trace

import "strings"

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

// formulas are derivatives by argument.
type formulas = map[string]string

// traits are what a row says in words.
type traits uint8

const (
	inPlace   traits = 1 << iota // PyTorch has the form that overwrites self, too
	inFull                       // autocast runs it in fp32
	inWidest                     // autocast runs it in the widest type of its arguments
	keepsType                    // integers stay integers
	ofSelf                       // the result has the type of self
	keepsSize                    // the result is real, of the type of self
)

// row returns an operator: its declaration, or its name if it takes a tensor alone, its traits, operations per element,
// the gradient of self ("" for none) and aliases.
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

// as gives the row's autograd node another class than the name says.
func (o *Operator) as(node string) *Operator {
	o.node = node
	return o
}

// and adds the gradient of another argument.
func (o *Operator) and(argument, formula string) *Operator {
	o.gradients[argument] = formula
	return o
}

// recordedAs has calls recorded under another name.
func (o *Operator) recordedAs(native string) *Operator {
	o.native = native
	return o
}

// flat is the gradient of a function that is constant between its steps.
const flat = "zeros_like(grad)"

// gradient returns the derivative of a function of self alone.
func gradient(formula string) map[string]string { return map[string]string{"self": formula} }

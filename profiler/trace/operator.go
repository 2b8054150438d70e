package trace

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Operator is a pointwise operator of PyTorch as a table row: its declaration as in native_functions.yaml, its
// derivative as in derivatives.yaml, and its number of operations. The saved tensors, the order of gradients, and the
// in-place form follow from these.
type Operator struct {
	// Schema is the declaration of the functional form. A name that ends in "_" is an operator whose in-place form has
	// a derivative of its own.
	Schema string
	// Aliases are other declarations of the same operator. A name alone has the same arguments.
	Aliases []string
	// InPlace reports whether PyTorch also has the in-place form.
	InPlace bool

	// gradients maps arguments to the formulas of their gradients, see [compiler]. It is empty if there are none.
	gradients map[string]string
	// node is the class of the autograd node; empty is the name followed by "Backward0".
	node string
	// native is the name under which calls are recorded; empty is the name and overload.
	native string
	casts  castList
	result resultRule
	// flops is the number of operations per element.
	flops int64

	once sync.Once
	compiledOperator
}

// castList is the autocast list to which an operator belongs.
type castList uint8

const (
	castUnlisted castList = iota
	castFull              // it runs in fp32
	castWidest            // it runs in the widest type of its arguments
)

// resultRule selects how the type of a result follows from the types of the arguments.
type resultRule uint8

const (
	floatingType resultRule = iota // the common type, float32 for integers
	promoted                       // the common type
	selfTyped                      // the type of the first argument
	absolute                       // the common type, real for complex arguments
)

// compiledOperator is a compiled table row.
type compiledOperator struct {
	name, kernel, inPlace string
	saves                 []savedTensorArgument
	derivatives           []compiledDerivative
	apply                 func(b *Gradients)
}

// savedTensorArgument is a tensor that autograd saves: the argument with that index, or the result.
type savedTensorArgument struct {
	argument int
	// only is the index of the only input whose gradient needs the tensor; -1 if there are several.
	only int
}

// savedResult is the index of the result among saved arguments.
const savedResult = -1

// compiledDerivative is the compiled formula for an input's gradient.
type compiledDerivative struct {
	input int
	value formulaFunc
}

// Name returns the operator's name with its overload: "add.Tensor".
func (o *Operator) Name() string {
	name, _, _ := strings.Cut(o.Schema, "(")
	return name
}

// prepare compiles the row.
func (o *Operator) prepare() {
	base, overload, _ := strings.Cut(o.Name(), ".")
	o.name, o.kernel, o.inPlace = base, base, strings.TrimSuffix(base, "_")+"_"
	if overload != "" {
		o.name, o.inPlace = base+"_"+overload, base+"__"+overload
	}
	if o.native != "" {
		native, rest, _ := strings.Cut(o.native, "_")
		o.name, o.kernel, o.inPlace = o.native, o.native, native+"__"+rest
	}
	o.node = cmp.Or(o.node, nodeName(base))
	o.derive()
	o.apply = o.backward
}

// nodeName returns the node class that PyTorch's code generator derives from an operator's name: each letter that does
// not follow a letter becomes a capital.
func nodeName(op string) string {
	var name strings.Builder
	capital := true
	for _, r := range op {
		if capital && r >= 'a' && r <= 'z' {
			r -= 'a' - 'A'
		}
		capital = r < 'A' || r == '_'
		if r != '_' {
			name.WriteRune(r)
		}
	}
	return name.String() + "Backward0"
}

// derive compiles the formulas. PyTorch computes gradients in the alphabetical order of the arguments. It saves the
// arguments that occur in formulas in that order, the result last.
func (o *Operator) derive() {
	args := declaredArguments(o.Schema)
	places := map[string]int{"grad": 0}
	users := map[string][]int{}
	inputs := slices.Sorted(maps.Keys(o.gradients))
	for _, input := range inputs {
		for _, name := range identifiers(o.gradients[input]) {
			users[name] = append(users[name], args.tensor(input))
		}
	}
	for _, name := range append(slices.Sorted(slices.Values(args.tensors)), "result") {
		used := users[name]
		if len(used) == 0 {
			continue
		}
		s := savedTensorArgument{argument: args.tensor(name), only: -1}
		if len(used) == 1 && name != "result" {
			s.only = used[0]
		}
		o.saves = append(o.saves, s)
		places[name] = len(o.saves)
	}
	c := compiler{places: places, numbers: args.numbers}
	for _, input := range inputs {
		value := c.tensor(o.gradients[input])
		o.derivatives = append(o.derivatives, compiledDerivative{args.tensor(input), value})
	}
}

// backward computes the needed gradients.
func (o *Operator) backward(b *Gradients) {
	b.terms[0] = b.Grad
	copy(b.terms[1:], b.kept)
	for _, d := range o.derivatives {
		if b.Needs(d.input) {
			b.Set(d.input, b.setRealPart(d.input, d.value(b.terms[:])))
		}
	}
}

// Call records the operator on its tensor arguments.
func (o *Operator) Call(xs ...*Tensor) *Tensor { return o.CallWith(BoolNumber, xs...) }

// CallWith records the operator on its tensor arguments and a number of type n.
func (o *Operator) CallWith(n Number, xs ...*Tensor) *Tensor {
	o.once.Do(o.prepare)
	t := xs[0].tape
	c := t.Begin(o.name, xs...)
	if o.casts != castUnlisted {
		c.castArguments(o.casts, xs)
	}
	z := o.compute(t, n, xs)
	if o.derivatives != nil {
		if node := t.record(o.node, xs...); node != nil {
			for _, s := range o.saves {
				node.save(tensorIf(s.only < 0 || node.needs(s.only), s.tensor(xs, z)))
			}
			node.setOutputs(z)
			node.apply = o.apply
		}
	}
	return c.End(z)
}

func (s savedTensorArgument) tensor(xs []*Tensor, result *Tensor) *Tensor {
	if s.argument == savedResult {
		return result
	}
	return xs[s.argument]
}

// castArguments casts xs as autocast does for operators of a list.
func (c *Call) castArguments(list castList, xs []*Tensor) {
	var buf [3]**Tensor
	places := buf[:0]
	for i := range xs {
		places = append(places, &xs[i])
	}
	if list == castFull {
		c.CastToFP32(places...)
	} else {
		c.Promote(places...)
	}
}

// compute allocates the result and launches the kernel.
func (o *Operator) compute(t *Tape, n Number, xs []*Tensor) *Tensor {
	d := xs[0].dtype
	if len(xs) > 1 && o.result != selfTyped {
		d = resultType(xs...)
	}
	d = n.promote(d)
	switch o.result {
	case floatingType:
		d = floating(d)
	case absolute:
		if d == C64 {
			return t.complexAbs(xs[0], o.kernel)
		}
	}
	return t.Map(o.kernel, d, o.flops, xs...)
}

// complexAbs records an operator on complex numbers whose complex result is copied to a real one.
func (t *Tape) complexAbs(x *Tensor, op string) *Tensor {
	y := x.AllocLike(F32)
	c := t.Begin(op)
	t.LaunchCopy(y, t.Map(op, x.dtype, rootFLOPs, x))
	c.Finish()
	return y
}

// CallInPlace records the in-place form. Autograd may need a clone of the first argument, which it overwrites.
func (o *Operator) CallInPlace(xs ...*Tensor) *Tensor {
	o.once.Do(o.prepare)
	x := xs[0]
	c := x.tape.Begin(o.inPlace, xs...)
	var n *Node
	if o.derivatives != nil {
		n = c.t.record(o.node, xs...)
	}
	if n == nil {
		c.t.LaunchElementwise(x, o.flops, xs...)
		return c.End(x)
	}
	last := len(o.saves)
	if last > 0 && o.saves[last-1].argument == savedResult {
		last--
	}
	for _, s := range o.saves[:last] {
		switch {
		case s.only >= 0 && !n.needs(s.only):
			n.save(nil)
		case s.argument == 0:
			n.save(c.Bind(x.cloneForInPlace()))
		default:
			n.save(xs[s.argument])
		}
	}
	c.t.LaunchElementwise(x, o.flops, xs...)
	if last < len(o.saves) {
		n.save(x)
	}
	n.apply = o.apply
	x.rebase(n)
	return c.End(x)
}

// cloneForInPlace records a clone of x for backward, before an in-place operator overwrites x.
func (x *Tensor) cloneForInPlace() *Tensor {
	y := x.AllocLike(x.dtype)
	x.tape.LaunchCopy(y, x)
	y.requiresGrad = x.requiresGrad
	return y
}

// Unary records torch.NAME(x) for a function of one tensor, such as "asin" or "hardshrink".
func (x *Tensor) Unary(name string) *Tensor { return operatorIndex[name].Call(x) }

// WithNumber returns a binary operator's overload for a number as second argument; nil if there is none.
func (o *Operator) WithNumber() *Operator {
	base, _, _ := strings.Cut(o.Name(), ".")
	return operatorIndex[base+".Scalar"]
}

// Form is a declaration of an operator, functional or in place.
type Form struct {
	Schema  string
	InPlace bool
}

// Forms returns all declarations of the operator.
func (o *Operator) Forms() []Form {
	var forms []Form
	_, rest, _ := strings.Cut(o.Schema, "(")
	for _, schema := range append([]string{o.Schema}, o.Aliases...) {
		if !strings.Contains(schema, "(") {
			schema += "(" + rest
		}
		name, _, _ := strings.Cut(schema, "(")
		base, _, _ := strings.Cut(name, ".")
		forms = append(forms, Form{schema, strings.HasSuffix(base, "_")})
		if o.InPlace && !strings.HasPrefix(schema, "special_") { // torch.special has none in place
			forms = append(forms, Form{inPlaceSchema(schema), true})
		}
	}
	return forms
}

// inPlaceSchema returns the declaration of the in-place form.
func inPlaceSchema(schema string) string {
	name, rest, _ := strings.Cut(schema, "(Tensor self")
	args, _, _ := strings.Cut(rest, " -> ")
	base, overload, overloaded := strings.Cut(name, ".")
	name = base + "_"
	if overloaded {
		name += "." + overload
	}
	return name + "(Tensor(a!) self" + args + " -> Tensor(a!)"
}

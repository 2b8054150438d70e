package aten

import (
	"fmt"
	"strings"
	"sync"

	"github.com/vprof/vprof/profiler/trace"
)

// Operator is one overload of an operator that the recorder knows.
type Operator struct {
	Schema
	run body
}

// body records a call. Results are in the order of the schema's returns.
type body func(a *Args) []Value

// Call records the operator. What PyTorch would raise, and arguments whose
// shapes do not go together, come back as errors; the recording is of no use
// after that.
func (o *Operator) Call(t *trace.Tape, a Args) (out []Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: these arguments do not go together: %v", o, r)
		}
	}()
	a.tape = t
	if err := t.Try(func() { out = o.run(&a) }); err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	return out, nil
}

// family is a part of the table: schemas and their bodies.
type family map[string]body

// families are in the files named after them.
var families = []family{
	pointwise, onBits, activations, reductions, shapes, indexing, products, linearAlgebra, norms, resizing, creation,
	losses, recurrent, transforms, queries, composed, special, libraries,
}

// index finds the text of a schema by its qualified name and overload:
// "aten::add.Tensor". Texts are parsed when first asked for.
var index = sync.OnceValue(func() map[string]*entry {
	all := make(map[string]*entry, 1024)
	add := func(text string, run body) *entry {
		name, _, _ := strings.Cut(text, "(")
		if !strings.Contains(name, "::") {
			name = "aten::" + name
		}
		all[name] = &entry{text: text, run: run}
		return all[name]
	}
	for _, o := range trace.PointwiseOperators() {
		for _, f := range o.Forms() {
			e := add(f.Schema, rowBody(o, f.InPlace))
			e.row = o
		}
	}
	for _, f := range families {
		for text, run := range f {
			add(text, run)
		}
	}
	return all
})

// rowBody is the body of an operator that is a row of the recorder. Its overload for numbers
// is taken where a number stands in for a tensor.
func rowBody(o *trace.Operator, inPlace bool) body {
	return one(func(a *Args) *tensor {
		xs, n, lacking := a.operands()
		op := o
		if lacking {
			op = o.WithNumber()
		}
		switch {
		case op == nil:
			panic("a number where there must be a tensor")
		case inPlace:
			return op.CallInPlace(xs...)
		default:
			return op.CallWith(n, xs...)
		}
	})
}

// operands are the tensors of a call, and the kind of the number that is its argument "other";
// lacking says that a number was given for a tensor.
func (a *Args) operands() (xs []*tensor, n trace.Number, lacking bool) {
	for i, p := range a.op.Arguments {
		x, ok := a.values[i].(*tensor)
		switch {
		case ok:
			xs = append(xs, x)
		case p.Type == "Tensor":
			lacking = true
		}
		if !ok && p.Name == "other" {
			n = kindOf(a.values[i])
		}
	}
	return xs, n, lacking
}

type entry struct {
	text string
	run  body
	row  *trace.Operator // of pointwise operators
	once sync.Once
	op   *Operator
}

func (e *entry) operator() *Operator {
	e.once.Do(func() {
		s, err := ParseSchema(e.text)
		if err != nil {
			panic("aten: " + err.Error()) // a mistake of the table, found by its test
		}
		e.op = &Operator{Schema: *s, run: e.run}
	})
	return e.op
}

// Lookup finds an operator by its qualified name ("aten::add") and overload
// ("Tensor", or "" for the default one).
func Lookup(name, overload string) (*Operator, bool) {
	if overload != "" && overload != "default" {
		name += "." + overload
	}
	e := entryOf(name)
	if e == nil {
		return nil, false
	}
	return e.operator(), true
}

// ByTarget finds an operator by the text that exported graphs call it by:
// "torch.ops.aten.layer_norm.default".
func ByTarget(target string) (*Operator, bool) {
	e := entryOf(nameOf(target))
	if e == nil {
		return nil, false
	}
	return e.operator(), true
}

// Known reports whether ByTarget finds the target.
func Known(target string) bool { return entryOf(nameOf(target)) != nil }

// nameOf is "aten::add.Tensor" for "torch.ops.aten.add.Tensor".
func nameOf(target string) string {
	path, ok := strings.CutPrefix(target, "torch.ops.")
	if !ok {
		return ""
	}
	namespace, name, ok := strings.Cut(path, ".")
	if !ok {
		return ""
	}
	return namespace + "::" + strings.TrimSuffix(name, ".default")
}

// All are the schemas of the table, in no particular order.
func All() []*Schema {
	var out []*Schema
	for _, e := range index() {
		out = append(out, &e.operator().Schema)
	}
	return out
}

type tensor = trace.Tensor

// one is a body with one result.
func one(f func(a *Args) *tensor) body {
	return func(a *Args) []Value { return []Value{f(a)} }
}

// list is a body whose one result is a list.
func list(f func(a *Args) []*tensor) body {
	return func(a *Args) []Value { return []Value{f(a)} }
}

// pair is a body with two results.
func pair(f func(a *Args) (x, y *tensor)) body {
	return func(a *Args) []Value {
		x, y := f(a)
		return []Value{x, y}
	}
}

// several is a body with as many results as f has.
func several(f func(a *Args) []*tensor) body {
	return func(a *Args) []Value {
		var out []Value
		for _, x := range f(a) {
			out = append(out, x)
		}
		return out
	}
}

// unary is the body of an operator whose result depends on the first argument
// alone.
func unary(f func(x *tensor) *tensor) body {
	return func(a *Args) []Value { return []Value{f(a.first(0))} }
}

// binary is the body of an operator of its first two arguments, which are tensors.
func binary(f func(x, y *tensor) *tensor) body {
	return func(a *Args) []Value { return []Value{f(a.first(0), a.first(1))} }
}

// first is argument i, a tensor.
func (a *Args) first(i int) *tensor {
	x, ok := a.values[i].(*tensor)
	if !ok {
		panic(fmt.Sprintf("%q is no tensor", a.op.Arguments[i].Name))
	}
	return x
}

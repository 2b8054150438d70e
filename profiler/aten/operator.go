package aten

import (
	_ "embed" // of schemas
	"fmt"
	"strings"
	"sync"

	"github.com/vprof/vprof/profiler/trace"
)

// Operator is one overload of an operator that the recorder supports.
type Operator struct {
	Schema
	run body
}

// body records a call. Results are in the order of the schema's returns.
type body = func(a *Args) []Value

// Call records the operator. It returns errors that PyTorch would raise, and incompatible shapes, as an error; the
// recording is unusable after an error.
func (o *Operator) Call(t *trace.Tape, a Args) (out []Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("operator %s: the arguments contradict each other: %v; export the model again", o, r)
		}
	}()
	a.tape = t
	if err := t.Try(func() { out = o.run(&a) }); err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	return out, nil
}

// families are the parts of the operator table, each in the file of that name.
var families = []operatorFamily{
	pointwiseOperators, activationOperators, reductionOperators, shapeOperators, indexOperators, productOperators,
	linearAlgebra, normOperators, resizingOperators, creationOperators, lossOperators, recurrentOperators,
	transformOperators, queryOperators, composedOperators, specialOperators, libraryOperators,
}

// schemas declares the operators in families, one per line, as in native_functions.yaml of PyTorch and of libraries.
//
//go:embed schemas.txt
var schemas string

// index maps qualified names with overload ("aten::add.Tensor") to operators. Schemas are parsed at first use.
var index = sync.OnceValue(func() map[string]*entry {
	all := make(map[string]*entry, 1024)
	add := func(schema string) *entry {
		name, _, _ := strings.Cut(schema, "(")
		e := &entry{text: schema}
		all[qualifiedName(name)] = e
		return e
	}
	for _, o := range trace.PointwiseOperators() {
		for _, f := range o.Forms() {
			e := add(f.Schema)
			e.function, e.row = rowBody(o, f.InPlace), o
		}
	}
	for schema := range strings.Lines(schemas) {
		add(strings.TrimSuffix(schema, "\n"))
	}
	for _, f := range families {
		for names, function := range f {
			for name := range strings.FieldsSeq(names) {
				all[qualifiedName(name)].function = function
			}
		}
	}
	return all
})

// qualifiedName returns a name with its namespace, which is aten's unless it has one.
func qualifiedName(name string) string {
	if strings.Contains(name, "::") {
		return name
	}
	return "aten::" + name
}

// rowBody returns the body of an operator that is declared as a row in package trace. If an argument is a number in
// place of a tensor, it uses the row's overload for numbers.
func rowBody(o *trace.Operator, inPlace bool) body {
	return func(a *Args) []Value {
		xs, n, lacking := a.operands()
		op := o
		if lacking {
			op = o.WithNumber()
		}
		switch {
		case op == nil:
			panic("a number where there must be a tensor")
		case inPlace:
			return []Value{op.CallInPlace(xs...)}
		default:
			return []Value{op.CallWith(n, xs...)}
		}
	}
}

// operands returns the tensors of a call, and the type of the argument "other" if that is a number. lacking reports
// whether an argument that the schema declares as a tensor is None.
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
	text     string
	function any             // as in a family
	row      *trace.Operator // of pointwise operators
	once     sync.Once
	op       *Operator
}

func (e *entry) operator() *Operator {
	e.once.Do(func() {
		s, err := ParseSchema(e.text)
		if err != nil {
			panic("aten: " + err.Error()) // a mistake of the table, found by its test
		}
		e.op = &Operator{Schema: *s, run: bind(s, e.function)}
	})
	return e.op
}

// ByTarget finds an operator by its name in exported graphs: "torch.ops.aten.layer_norm.default".
func ByTarget(target string) (*Operator, bool) {
	e := entryOf(nameOf(target))
	if e == nil {
		return nil, false
	}
	return e.operator(), true
}

// nameOf converts "torch.ops.aten.add.Tensor" to "aten::add.Tensor".
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

type tensor = trace.Tensor

func (a *Args) first(i int) *tensor {
	x, ok := a.values[i].(*tensor)
	if !ok {
		panic(fmt.Sprintf("%q is no tensor", a.op.Arguments[i].Name))
	}
	return x
}

package aten

import (
	"slices"
	"strings"
	"sync"
)

// Forms of operators that the table does not list are derived from the functional one: X_ writes the result into self,
// X.out into the tensor out.

// derivedForms caches the derived forms that were used; nil for names without one.
var derivedForms sync.Map // string to *entry

// entryOf returns the operator with a qualified name and overload; nil if it is unknown.
func entryOf(name string) *entry {
	if e := index()[name]; e != nil || name == "" {
		return e
	}
	if e, ok := derivedForms.Load(name); ok {
		return e.(*entry)
	}
	e, _ := derivedForms.LoadOrStore(name, derive(name))
	return e.(*entry)
}

// functionals are the overloads of which X.out may be a form. PyTorch names the overloads of both forms alike except
// for "_out", and leaves out the most common name.
var functionals = []string{"", "Tensor", "Scalar", "self", "dim", "input"}

func derive(name string) *entry {
	base, overload, _ := strings.Cut(name, ".")
	if stem, ok := strings.CutSuffix(base, "_"); ok && !strings.HasSuffix(stem, "_") {
		return inPlaceForm(name, functionalForm(stem, overload))
	}
	if overload == "out" {
		return outForm(name, functionalForm(base, functionals...))
	}
	if of, ok := strings.CutSuffix(overload, "_out"); ok {
		return outForm(name, functionalForm(base, of))
	}
	return nil
}

// functionalForm returns the first of some overloads that is in the table and has one tensor as its result.
func functionalForm(base string, overloads ...string) *entry {
	for _, overload := range overloads {
		name := base
		if overload != "" {
			name += "." + overload
		}
		if e := index()[name]; e != nil && slices.Equal(e.operator().Returns, []string{"Tensor"}) {
			return e
		}
	}
	return nil
}

// inPlaceForm returns the form that writes the result into the first argument.
func inPlaceForm(name string, f *entry) *entry {
	if f == nil || len(f.operator().Arguments) == 0 || f.operator().Arguments[0].Type != "Tensor" {
		return nil
	}
	return f.addForm(name, func(a *Args) []Value {
		return []Value{a.first(0).CopyInPlace(f.operator().run(a)[0].(*tensor))}
	})
}

// outForm returns the form that writes the result into the argument out. Autograd refuses out arguments that require
// gradients, so nothing is saved. Pointwise operators compute in place.
func outForm(name string, f *entry) *entry {
	if f == nil {
		return nil
	}
	return f.addForm(name, func(a *Args) []Value {
		out := a.Tensor("out")
		a.tape.NoGrad(func() {
			if f.row != nil {
				xs, _, _ := a.operands()
				f.row.CallInPlace(append([]*tensor{out}, xs[1:len(xs)-1]...)...)
				return
			}
			out.CopyInPlace(f.operator().run(a)[0].(*tensor))
		})
		return []Value{out}
	}, Argument{Name: "out", Type: "Tensor"})
}

func (e *entry) addForm(name string, run body, further ...Argument) *entry {
	s := e.operator().Schema
	s.Name, s.Overload, _ = strings.Cut(name, ".")
	s.Arguments = append(slices.Clone(s.Arguments), further...)
	form := &entry{}
	form.once.Do(func() { form.op = &Operator{Schema: s, run: run} })
	return form
}

package aten

import (
	"fmt"
	"reflect"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// operatorFamily is a part of the operator table. A key is an operator's name with its overload, or several such names,
// separated by spaces, that are recorded in the same way; schemas.txt has their schemas. A value is a function of
// [*Args], or a function of package trace. Its parameters are the operator's first arguments, in order, or the
// arguments that [withTrailingArgs] names. A parameter whose type is in composite combines several arguments.
type operatorFamily map[string]any

// withTrailingArgs returns a function of package trace whose last parameters are the arguments with these names.
func withTrailingArgs(f any, last ...string) namedArguments { return namedArguments{f, last} }

type namedArguments struct {
	function any
	last     []string
}

// composite maps a parameter type to a function that makes it from several arguments, which always have the same names.
var composite = map[reflect.Type]func(a *Args) any{
	reflect.TypeFor[*Args]():           func(a *Args) any { return a },
	reflect.TypeFor[*trace.Tape]():     func(a *Args) any { return a.tape },
	reflect.TypeFor[trace.Reduction](): func(a *Args) any { return a.reduction() },
	reflect.TypeFor[trace.PoolArgs]():  func(a *Args) any { return a.poolArgs() },
	reflect.TypeFor[trace.Factors](): func(a *Args) any { // of beta * x + alpha * a @ b
		return trace.Factors{Beta: a.Float("beta") != 1, Alpha: a.Float("alpha") != 1}
	},
	reflect.TypeFor[trace.ConvArgs](): func(a *Args) any { return a.convArgs() },
	reflect.TypeFor[ops.CellWeights](): func(a *Args) any {
		return a.cellWeights()
	},
	reflect.TypeFor[trace.BatchNormState](): func(a *Args) any { return a.batchNorm() },
}

// bind makes the body of an operator from its row in the table. A row that does not fit the schema is an error in the
// table, which the table's test finds.
func bind(s *Schema, row any) body {
	if run, ok := row.(body); ok {
		return run
	}
	n, ok := row.(namedArguments)
	if !ok {
		n.function = row
	}
	f := reflect.ValueOf(n.function)
	call := f.Call
	if f.Type().IsVariadic() {
		call = f.CallSlice
	}
	parameters := s.parameters(f.Type(), n.last)
	return func(a *Args) (out []Value) {
		in := lists.Map(parameters, func(value func(a *Args) reflect.Value) reflect.Value { return value(a) })
		for _, result := range call(in) {
			if list, ok := result.Interface().([]*tensor); ok && len(s.Returns) > 1 {
				for _, x := range list {
					out = append(out, x)
				}
				continue
			}
			out = append(out, result.Interface())
		}
		return out
	}
}

// parameters returns, for each parameter of a function type t, a function that computes it from the arguments; last
// names the arguments for the last parameters.
func (s *Schema) parameters(t reflect.Type, last []string) []func(a *Args) reflect.Value {
	out := make([]func(a *Args) reflect.Value, t.NumIn())
	var ofArguments []int
	for i := range out {
		if make := composite[t.In(i)]; make != nil {
			out[i] = func(a *Args) reflect.Value { return reflect.ValueOf(make(a)) }
		} else {
			ofArguments = append(ofArguments, i)
		}
	}
	for k, i := range ofArguments {
		in := t.In(i)
		j := k
		if named := k - (len(ofArguments) - len(last)); named >= 0 {
			j = s.index(last[named])
		}
		switch {
		case j >= 0 && j < len(s.Arguments):
			out[i] = s.Arguments[j].parameter(j, in)
		case j > 0 && t.IsVariadic() && i == t.NumIn()-1: // dimensions that this overload does not have
			out[i] = func(*Args) reflect.Value { return reflect.Zero(in) }
		default:
			panic(fmt.Sprintf("aten: %s has no argument for parameter %d of %s", s, i, t))
		}
	}
	return out
}

// parameter returns a function that converts argument i, declared as p, to type t. None becomes the zero value.
func (p *Argument) parameter(i int, t reflect.Type) func(a *Args) reflect.Value {
	zero := reflect.Zero(t)
	value := func(a *Args) any {
		if v := a.values[i]; reflect.TypeOf(v) == t {
			return v
		}
		return zero.Interface()
	}
	switch zero.Interface().(type) {
	case *tensor, []*tensor, int64, []int64, bool, string:
		if p.Type == "Tensor" {
			value = func(a *Args) any { return a.first(i) }
		}
	case int:
		value = func(a *Args) any { return a.Dim(p.Name) }
	case []int:
		value = func(a *Args) any { return a.Dims(p.Name) }
	case float64:
		value = func(a *Args) any { return a.Float(p.Name) }
	case trace.Number:
		value = func(a *Args) any { return kindOf(a.values[i]) }
	case trace.DType:
		value = func(a *Args) any { return a.DType(p.Name, trace.F32) }
	case trace.BagMode:
		value = func(a *Args) any { return trace.BagMode(a.Int(p.Name)) }
	case ops.Products:
		value = func(a *Args) any { return ops.Products(a.Int(p.Name)) }
	default:
		panic(fmt.Sprintf("aten: argument %q cannot be a %s", p.Name, t))
	}
	return func(a *Args) reflect.Value { return reflect.ValueOf(value(a)) }
}

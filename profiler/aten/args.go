package aten

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// Value is an argument or a result. It is one of
//
// nil                 None, and Tensor? that is absent    *trace.Tensor       Tensor      []*trace.Tensor     Tensor[],
// Tensor?[] (nil where there is none)       int64               int, SymInt once it is known        float64, bool
// float, bool         []int64, []float64, []bool      string              str         trace.DType         ScalarType
// MemoryFormat
//
// A Scalar is an int64, a float64 or a bool. A layout or device is nil or any string, since a recording has only one of
// each.
type Value any

// MemoryFormat is the order in which a tensor's dimensions are laid out in memory.
type MemoryFormat string

// The memory formats; ChannelsLast is for images and for volumes.
const (
	ContiguousFormat MemoryFormat = "contiguous"
	PreserveFormat   MemoryFormat = "preserve"
	ChannelsLast     MemoryFormat = "channels_last"
)

// Arg is an argument of a call with its name.
type Arg struct {
	Name  string
	Value Value
}

// Args are the arguments of one operator call, in the order of the schema.
type Args struct {
	op     *Operator
	tape   *trace.Tape
	values []Value
	given  []bool
}

// Bind returns the arguments of a call in the schema's order, with defaults for missing ones. A name that the schema
// lacks, a missing argument without a default, and a value of the wrong type are errors.
func (o *Operator) Bind(given ...Arg) (Args, error) {
	a := Args{op: o, values: make([]Value, len(o.Arguments)), given: make([]bool, len(o.Arguments))}
	for _, g := range given {
		i := o.index(g.Name)
		if i < 0 {
			return Args{}, fmt.Errorf("the operator %s has no argument %q; export the model with another release of "+
				"PyTorch", o, g.Name)
		}
		v, err := convert(g.Value, o.Arguments[i].Type)
		if err != nil {
			return Args{}, fmt.Errorf("operator %s, argument %q: %w", o, g.Name, err)
		}
		a.values[i], a.given[i] = v, true
	}
	for i, p := range o.Arguments {
		switch {
		case a.given[i]:
		case p.HasDefault:
			a.values[i] = defaultValue(p)
		default:
			return Args{}, fmt.Errorf("the call of operator %s lacks the argument %q; export the model again",
				o, p.Name)
		}
	}
	return a, nil
}

// convert converts a value to a schema type. Like PyTorch's parser, it converts an int to a float, one number to a
// list, and a number to a tensor where the schema requires it.
func convert(v Value, typ string) (Value, error) {
	optional := strings.HasSuffix(typ, "?")
	base := strings.TrimSuffix(typ, "?")
	if v == nil || isNilTensor(v) {
		if optional || base == "Tensor" {
			return nil, nil
		}
		return nil, fmt.Errorf("the argument has no value, but must be of type %s", typ)
	}
	var ok bool
	switch element, list := listOf(base); {
	case list && (element == "Tensor" || element == "Tensor?"):
		_, ok = v.([]*trace.Tensor)
	case list && (element == "int" || element == "SymInt"):
		if n, one := v.(int64); one {
			return []int64{n}, nil
		}
		_, ok = v.([]int64)
	case list && element == "float":
		v, ok = floats(v)
	case list && element == "bool":
		_, ok = v.([]bool)
	case list:
		return v, nil
	default:
		v, ok = convertOne(v, base)
	}
	if !ok {
		return nil, fmt.Errorf("the argument has the Go type %T, but must be of type %s", v, typ)
	}
	return v, nil
}

func isNilTensor(v Value) bool {
	x, ok := v.(*trace.Tensor)
	return ok && x == nil
}

// convertOne converts a value to a type other than a list.
func convertOne(v Value, typ string) (Value, bool) {
	switch typ {
	case "Tensor":
		_, tensor := v.(*trace.Tensor)
		return v, tensor || isNumber(v)
	case "int", "SymInt":
		if b, ok := v.(bool); ok {
			return map[bool]int64{true: 1}[b], true
		}
		_, ok := v.(int64)
		return v, ok
	case "float":
		if n, ok := v.(int64); ok {
			return float64(n), true
		}
		_, ok := v.(float64)
		return v, ok
	case "Scalar":
		return v, isNumber(v)
	case "bool":
		_, ok := v.(bool)
		return v, ok
	case "str":
		_, ok := v.(string)
		return v, ok
	case "ScalarType":
		_, ok := v.(trace.DType)
		return v, ok
	case "MemoryFormat":
		_, ok := v.(MemoryFormat)
		return v, ok
	default: // Layout, Device, Generator
		return v, true
	}
}

func isNumber(v Value) bool {
	switch v.(type) {
	case int64, float64, bool, complex128:
		return true
	}
	return false
}

func floats(v Value) (Value, bool) {
	switch x := v.(type) {
	case []float64:
		return x, true
	case []int64:
		return lists.Map(x, func(n int64) float64 { return float64(n) }), true
	case float64:
		return []float64{x}, true
	}
	return v, false
}

// listOf returns the element type of a list type: "int" of "int[2]".
func listOf(typ string) (element string, list bool) {
	if !strings.HasSuffix(typ, "]") {
		return "", false
	}
	i := strings.LastIndexByte(typ, '[')
	if i < 0 {
		return "", false
	}
	return typ[:i], true
}

// defaultValue parses the text of a default value. Layouts, devices and reductions become nil.
func defaultValue(p Argument) Value {
	base := strings.TrimSuffix(p.Type, "?")
	if p.Default == "None" {
		return nil
	}
	if element, list := listOf(base); list {
		return defaultList(p.Default, element)
	}
	switch base {
	case "bool":
		return p.Default == "True"
	case "str":
		return p.Default
	case "MemoryFormat":
		return MemoryFormat(strings.TrimSuffix(p.Default, "_format"))
	case "float":
		x, _ := strconv.ParseFloat(p.Default, 64)
		return x
	}
	if n, err := strconv.ParseInt(p.Default, 10, 64); err == nil {
		return n
	}
	if x, err := strconv.ParseFloat(p.Default, 64); err == nil {
		return x
	}
	switch p.Default {
	case "True", "False":
		return p.Default == "True"
	case "Mean": // at::Reduction::Mean
		return int64(1)
	}
	return nil
}

func defaultList(text, element string) Value {
	if element != "int" && element != "SymInt" {
		return nil
	}
	var out []int64
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("[], ", r) }) {
		n, _ := strconv.ParseInt(field, 10, 64)
		out = append(out, n)
	}
	return out
}

// value returns the argument with the given name. A name that the schema lacks is an error in the operator table.
func (a *Args) value(name string) Value {
	i := a.op.index(name)
	if i < 0 {
		panic(fmt.Sprintf("aten: %s has no argument %q", a.op, name))
	}
	return a.values[i]
}

// valueOf returns an argument of type T; the zero value for None and values of other types.
func valueOf[T any](a *Args, name string) T {
	v, _ := a.value(name).(T)
	return v
}

// Tape returns the tape on which the call is recorded.
func (a *Args) Tape() *trace.Tape { return a.tape }

// Tensor returns a tensor argument, nil for None or a number.
func (a *Args) Tensor(name string) *trace.Tensor { return valueOf[*trace.Tensor](a, name) }

// Tensors returns a list of tensors.
func (a *Args) Tensors(name string) []*trace.Tensor { return valueOf[[]*trace.Tensor](a, name) }

// Int returns an integer argument, 0 for None.
func (a *Args) Int(name string) int64 { return valueOf[int64](a, name) }

// Dim returns an argument that is the index of a dimension.
func (a *Args) Dim(name string) int { return int(a.Int(name)) }

// Ints returns a list of integers, nil for None.
func (a *Args) Ints(name string) []int64 { return valueOf[[]int64](a, name) }

// Dims returns an argument that is a list of dimensions or a single one; nil for None.
func (a *Args) Dims(name string) []int {
	if n, one := a.value(name).(int64); one {
		return []int{int(n)}
	}
	if all := a.Ints(name); len(all) > 0 {
		return lists.Map(all, func(n int64) int { return int(n) })
	}
	return nil
}

// Float returns a number, 0 for None.
func (a *Args) Float(name string) float64 {
	switch x := a.value(name).(type) {
	case float64:
		return x
	case int64:
		return float64(x)
	}
	return 0
}

// Bool returns a boolean argument, false for None.
func (a *Args) Bool(name string) bool { return valueOf[bool](a, name) }

// Text returns a textual argument, "" for None.
func (a *Args) Text(name string) string { return valueOf[string](a, name) }

// DType returns an element type argument; def for None.
func (a *Args) DType(name string, def trace.DType) trace.DType {
	if d, ok := a.value(name).(trace.DType); ok {
		return d
	}
	return def
}

// Format returns a memory format, "" for None.
func (a *Args) Format(name string) MemoryFormat { return valueOf[MemoryFormat](a, name) }

// IsNone reports whether an argument is None.
func (a *Args) IsNone(name string) bool { return a.value(name) == nil }

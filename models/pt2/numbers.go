package pt2

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// sizeFunctions maps Python's functions on sizes, as exported graphs call them, to their names in expressions.
var sizeFunctions = map[string]string{
	"_operator.add": "Add", "_operator.sub": "Sub", "_operator.mul": "Mul", "_operator.neg": "Neg",
	"_operator.pow":      "Pow",
	"_operator.floordiv": "FloorDiv", "_operator.mod": "PythonMod", "_operator.truediv": "FloatTrueDiv",
	"torch.sym_max": "Max", "torch.sym_min": "Min", "torch.sym_float": "ToFloat", "torch.sym_int": "TruncToInt",
	"math.trunc": "TruncToInt", "math.floor": "FloorToInt", "math.ceil": "CeilToInt", "builtins.round": "RoundToInt",
	"torch._sym_sqrt": "OpaqueUnaryFn_sqrt", "math.sqrt": "OpaqueUnaryFn_sqrt",
}

// comparisons maps the names of Python's comparison operators to functions.
var comparisons = map[string]func(a, b float64) bool{
	"_operator.eq":   func(a, b float64) bool { return a == b },
	"_operator.ne":   func(a, b float64) bool { return a != b },
	"_operator.lt":   func(a, b float64) bool { return a < b },
	"_operator.le":   func(a, b float64) bool { return a <= b },
	"_operator.gt":   func(a, b float64) bool { return a > b },
	"_operator.ge":   func(a, b float64) bool { return a >= b },
	"_operator.and_": func(a, b float64) bool { return a != 0 && b != 0 },
	"_operator.or_":  func(a, b float64) bool { return a != 0 || b != 0 },
}

// tensorProperties are properties of a tensor x, or of its dimension d.
var tensorProperties = map[string]func(x *trace.Tensor, d int) int64{
	"torch.ops.aten.sym_size.int":               func(x *trace.Tensor, d int) int64 { return x.Size(d) },
	"torch.ops.aten.sym_stride.int":             func(x *trace.Tensor, d int) int64 { return x.Strides()[d] },
	"torch.ops.aten.sym_numel.default":          func(x *trace.Tensor, _ int) int64 { return x.Numel() },
	"torch.ops.aten.sym_storage_offset.default": func(*trace.Tensor, int) int64 { return 0 },
}

// sizeFunction returns the function that computes a target's size on the host; nil for targets that are not sizes.
func sizeFunction(target string) func(args []aten.Value) (aten.Value, error) {
	if name := sizeFunctions[target]; name != "" {
		return func(args []aten.Value) (aten.Value, error) { return applyNamed(name, args) }
	}
	if holds := comparisons[target]; holds != nil {
		return newComparison(2, func(xs []export.Number) bool { return holds(xs[0].Real(), xs[1].Real()) })
	}
	if target == "torch.sym_not" {
		return newComparison(1, func(xs []export.Number) bool { return xs[0].Real() == 0 })
	}
	if of := tensorProperties[target]; of != nil {
		return func(args []aten.Value) (aten.Value, error) { return tensorProperty(of, args) }
	}
	return nil
}

func newComparison(n int, holds func(xs []export.Number) bool) func(args []aten.Value) (aten.Value, error) {
	return func(args []aten.Value) (aten.Value, error) {
		xs, err := operands(args, n)
		if err != nil {
			return nil, err
		}
		return holds(xs), nil
	}
}

func applyNamed(name string, args []aten.Value) (aten.Value, error) {
	xs, err := operands(args, len(args))
	if err != nil {
		return nil, err
	}
	y, err := export.Compute(name, xs...)
	if err != nil {
		return nil, err
	}
	if i, whole := y.Int(); whole {
		return i, nil
	}
	return y.Real(), nil
}

func tensorProperty(of func(x *trace.Tensor, d int) int64, args []aten.Value) (aten.Value, error) {
	var x *trace.Tensor
	if len(args) > 0 {
		x, _ = args[0].(*trace.Tensor)
	}
	if x == nil {
		return nil, errors.New("the size of a value that is not a tensor is not defined")
	}
	if len(args) == 1 {
		return of(x, 0), nil
	}
	d, ok := args[1].(int64)
	n := int64(x.NDim())
	if !ok || d < -n || d >= n {
		return nil, fmt.Errorf("a tensor with %d dimensions has no dimension %v", n, args[1])
	}
	return of(x, int((d+n)%n)), nil
}

// operands returns the n numbers of a call; True counts as 1.
func operands(args []aten.Value, n int) ([]export.Number, error) {
	if len(args) != n {
		return nil, fmt.Errorf("the operator got %d numbers, but needs %d", len(args), n)
	}
	out := make([]export.Number, n)
	for i, a := range args {
		switch x := a.(type) {
		case int64:
			out[i] = export.Whole(x)
		case float64:
			out[i] = export.Fraction(x)
		case bool:
			out[i] = export.Fraction(0)
			if x {
				out[i] = export.Fraction(1)
			}
		default:
			return nil, fmt.Errorf("the argument is a %T, but must be a number", a)
		}
	}
	return out, nil
}

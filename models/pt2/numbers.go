package pt2

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// sizes are the functions on sizes that exported graphs call, by their names in expressions.
var sizes = map[string]string{
	"_operator.add": "Add", "_operator.sub": "Sub", "_operator.mul": "Mul", "_operator.neg": "Neg",
	"_operator.pow":      "Pow",
	"_operator.floordiv": "FloorDiv", "_operator.mod": "PythonMod", "_operator.truediv": "FloatTrueDiv",
	"torch.sym_max": "Max", "torch.sym_min": "Min", "torch.sym_float": "ToFloat", "torch.sym_int": "TruncToInt",
	"math.trunc": "TruncToInt", "math.floor": "FloorToInt", "math.ceil": "CeilToInt", "builtins.round": "RoundToInt",
	"torch._sym_sqrt": "OpaqueUnaryFn_sqrt", "math.sqrt": "OpaqueUnaryFn_sqrt",
}

// comparisons are the operators that compare.
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

// ofTensors are the properties of a tensor, or of one of its dimensions, which is the second argument.
var ofTensors = map[string]func(x *trace.Tensor, d int) int64{
	"torch.ops.aten.sym_size.int":               func(x *trace.Tensor, d int) int64 { return x.Size(d) },
	"torch.ops.aten.sym_stride.int":             func(x *trace.Tensor, d int) int64 { return x.Strides()[d] },
	"torch.ops.aten.sym_numel.default":          func(x *trace.Tensor, _ int) int64 { return x.Numel() },
	"torch.ops.aten.sym_storage_offset.default": func(*trace.Tensor, int) int64 { return 0 },
}

// numberOf returns the function that computes a size on the host, without allocating; nil for other targets.
func numberOf(target string) func(args []aten.Value) (aten.Value, error) {
	if name := sizes[target]; name != "" {
		return func(args []aten.Value) (aten.Value, error) { return computed(name, args) }
	}
	if holds := comparisons[target]; holds != nil {
		return comparisonOf(2, func(xs []export.Number) bool { return holds(xs[0].Real(), xs[1].Real()) })
	}
	if target == "torch.sym_not" {
		return comparisonOf(1, func(xs []export.Number) bool { return xs[0].Real() == 0 })
	}
	if of := ofTensors[target]; of != nil {
		return func(args []aten.Value) (aten.Value, error) { return tensorProperty(of, args) }
	}
	return nil
}

// comparisonOf returns a function that evaluates a predicate of n numbers.
func comparisonOf(n int, holds func(xs []export.Number) bool) func(args []aten.Value) (aten.Value, error) {
	return func(args []aten.Value) (aten.Value, error) {
		xs, err := operands(args, n)
		if err != nil {
			return nil, err
		}
		return holds(xs), nil
	}
}

// computed applies a function, by its name, to numbers.
func computed(name string, args []aten.Value) (aten.Value, error) {
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

// tensorProperty returns a property of a tensor, the first argument.
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
		return nil, fmt.Errorf("a tensor of %d dimensions has no dimension %v", n, args[1])
	}
	return of(x, int((d+n)%n)), nil
}

// operands returns the n numbers of a call; true is 1.
func operands(args []aten.Value, n int) ([]export.Number, error) {
	if len(args) != n {
		return nil, fmt.Errorf("got %d numbers, need %d", len(args), n)
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
			return nil, fmt.Errorf("got %T, need a number", a)
		}
	}
	return out, nil
}

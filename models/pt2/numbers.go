package pt2

import (
	"errors"
	"fmt"
	"math"

	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// numbers are the functions on sizes that exported graphs call. They run on the
// host and allocate nothing.
var numbers = map[string]func(args []aten.Value) (aten.Value, error){
	"torch.ops.aten.sym_size.int":               sizeOf,
	"torch.ops.aten.sym_stride.int":             strideOf,
	"torch.ops.aten.sym_numel.default":          numelOf,
	"torch.ops.aten.sym_storage_offset.default": func([]aten.Value) (aten.Value, error) { return int64(0), nil },
	"_operator.add":                             arithmetic(func(a, b int64) int64 { return a + b }, func(a, b float64) float64 { return a + b }),
	"_operator.sub":                             arithmetic(func(a, b int64) int64 { return a - b }, func(a, b float64) float64 { return a - b }),
	"_operator.mul":                             arithmetic(func(a, b int64) int64 { return a * b }, func(a, b float64) float64 { return a * b }),
	"_operator.floordiv":                        divided(floorDivide, func(a, b float64) float64 { return math.Floor(a / b) }),
	"_operator.mod":                             divided(func(a, b int64) int64 { return a - b*floorDivide(a, b) }, func(a, b float64) float64 { return a - b*math.Floor(a/b) }),
	"_operator.truediv":                         divided(nil, func(a, b float64) float64 { return a / b }),
	"_operator.pow":                             arithmetic(integerPower, math.Pow),
	"_operator.neg":                             whole(func(a int64) int64 { return -a }, func(a float64) float64 { return -a }),
	"_operator.eq":                              comparison(func(a, b float64) bool { return a == b }),
	"_operator.ne":                              comparison(func(a, b float64) bool { return a != b }),
	"_operator.lt":                              comparison(func(a, b float64) bool { return a < b }),
	"_operator.le":                              comparison(func(a, b float64) bool { return a <= b }),
	"_operator.gt":                              comparison(func(a, b float64) bool { return a > b }),
	"_operator.ge":                              comparison(func(a, b float64) bool { return a >= b }),
	"_operator.and_":                            comparison(func(a, b float64) bool { return a != 0 && b != 0 }),
	"_operator.or_":                             comparison(func(a, b float64) bool { return a != 0 || b != 0 }),
	"torch.sym_max":                             arithmetic(func(a, b int64) int64 { return max(a, b) }, math.Max),
	"torch.sym_min":                             arithmetic(func(a, b int64) int64 { return min(a, b) }, math.Min),
	"torch.sym_not":                             not,
	"torch.sym_float":                           toFloat,
	"torch.sym_int":                             rounded(math.Trunc),
	"math.trunc":                                rounded(math.Trunc),
	"math.floor":                                rounded(math.Floor),
	"math.ceil":                                 rounded(math.Ceil),
	"builtins.round":                            rounded(math.RoundToEven),
	"torch._sym_sqrt":                           root,
	"math.sqrt":                                 root,
}

var errZero = errors.New("a size is divided by zero")

func tensorArg(args []aten.Value) (*trace.Tensor, error) {
	if len(args) > 0 {
		if x, ok := args[0].(*trace.Tensor); ok {
			return x, nil
		}
	}
	return nil, errors.New("the size of what is no tensor")
}

// dimension is the second argument, a dimension of x.
func dimension(x *trace.Tensor, args []aten.Value) (int, error) {
	d, ok := int64(0), false
	if len(args) > 1 {
		d, ok = args[1].(int64)
	}
	if n := int64(x.NDim()); !ok || d < -n || d >= n {
		return 0, fmt.Errorf("a tensor of %d dimensions has no dimension %v", x.NDim(), d)
	} else if d < 0 {
		d += n
	}
	return int(d), nil
}

func sizeOf(args []aten.Value) (aten.Value, error) {
	x, err := tensorArg(args)
	if err != nil {
		return nil, err
	}
	d, err := dimension(x, args)
	if err != nil {
		return nil, err
	}
	return x.Size(d), nil
}

func strideOf(args []aten.Value) (aten.Value, error) {
	x, err := tensorArg(args)
	if err != nil {
		return nil, err
	}
	d, err := dimension(x, args)
	if err != nil {
		return nil, err
	}
	return x.Strides()[d], nil
}

func numelOf(args []aten.Value) (aten.Value, error) {
	x, err := tensorArg(args)
	if err != nil {
		return nil, err
	}
	return x.Numel(), nil
}

// real is a number of any kind as a fraction.
func real(v aten.Value) (float64, bool) {
	switch x := v.(type) {
	case int64:
		return float64(x), true
	case float64:
		return x, true
	case bool:
		if x {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// operands are the n numbers of a call; ints says that all are whole.
func operands(args []aten.Value, n int) (i []int64, f []float64, ints bool, err error) {
	if len(args) != n {
		return nil, nil, false, fmt.Errorf("%d numbers where %d are due", len(args), n)
	}
	i, f, ints = make([]int64, n), make([]float64, n), true
	for k, a := range args {
		x, ok := real(a)
		if !ok {
			return nil, nil, false, fmt.Errorf("%T where a number is due", a)
		}
		whole, isInt := a.(int64)
		i[k], f[k], ints = whole, x, ints && isInt
	}
	return i, f, ints, nil
}

func arithmetic(ints func(a, b int64) int64, floats func(a, b float64) float64) func([]aten.Value) (aten.Value, error) {
	return func(args []aten.Value) (aten.Value, error) {
		i, f, isInt, err := operands(args, 2)
		switch {
		case err != nil:
			return nil, err
		case isInt && ints != nil:
			return ints(i[0], i[1]), nil
		default:
			return floats(f[0], f[1]), nil
		}
	}
}

// divided is arithmetic that has no result for a second operand of zero.
func divided(ints func(a, b int64) int64, floats func(a, b float64) float64) func([]aten.Value) (aten.Value, error) {
	compute := arithmetic(ints, floats)
	return func(args []aten.Value) (aten.Value, error) {
		if len(args) == 2 {
			if x, ok := real(args[1]); ok && x == 0 {
				return nil, errZero
			}
		}
		return compute(args)
	}
}

func comparison(holds func(a, b float64) bool) func([]aten.Value) (aten.Value, error) {
	return func(args []aten.Value) (aten.Value, error) {
		_, f, _, err := operands(args, 2)
		if err != nil {
			return nil, err
		}
		return holds(f[0], f[1]), nil
	}
}

func whole(ints func(a int64) int64, floats func(a float64) float64) func([]aten.Value) (aten.Value, error) {
	return func(args []aten.Value) (aten.Value, error) {
		i, f, isInt, err := operands(args, 1)
		switch {
		case err != nil:
			return nil, err
		case isInt:
			return ints(i[0]), nil
		default:
			return floats(f[0]), nil
		}
	}
}

func rounded(round func(float64) float64) func([]aten.Value) (aten.Value, error) {
	return func(args []aten.Value) (aten.Value, error) {
		i, f, isInt, err := operands(args, 1)
		switch {
		case err != nil:
			return nil, err
		case isInt:
			return i[0], nil
		case !(math.Abs(f[0]) < 1<<62):
			return nil, fmt.Errorf("%g is no size", f[0])
		default:
			return int64(round(f[0])), nil
		}
	}
}

func not(args []aten.Value) (aten.Value, error) {
	_, f, _, err := operands(args, 1)
	if err != nil {
		return nil, err
	}
	return f[0] == 0, nil
}

func toFloat(args []aten.Value) (aten.Value, error) {
	_, f, _, err := operands(args, 1)
	if err != nil {
		return nil, err
	}
	return f[0], nil
}

func root(args []aten.Value) (aten.Value, error) {
	_, f, _, err := operands(args, 1)
	if err != nil {
		return nil, err
	}
	return math.Sqrt(f[0]), nil
}

func floorDivide(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func integerPower(a, b int64) int64 {
	out := int64(1)
	for range min(max(b, 0), 63) {
		out *= a
	}
	return out
}

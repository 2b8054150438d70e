package export

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Number is the value of an expression: an integer or a floating-point number.
type Number struct {
	i     int64
	f     float64
	float bool
}

// Whole returns an integer as a Number.
func Whole(i int64) Number { return Number{i: i} }

// Fraction returns a floating-point number as a Number.
func Fraction(f float64) Number { return Number{f: f, float: true} }

// Int returns the value of an integer; ok is false for a floating-point number.
func (n Number) Int() (i int64, ok bool) { return n.i, !n.float }

// Real returns the value as a floating-point number.
func (n Number) Real() float64 {
	if n.float {
		return n.f
	}
	return float64(n.i)
}

var (
	errOverflow = errors.New("a size of the graph is above 2^63")
	errZero     = errors.New("a size of the graph is divided by 0")
)

// function computes a number from arity arguments. An arity of -1 means one argument or more.
type function struct {
	arity   int
	compute func(args []Number) (Number, error)
}

// functions maps names of SymPy's and PyTorch's functions (torch/utils/_sympy/functions.py) to their computation. Sub
// and Neg occur in graphs only; SymPy writes them as Add and Mul.
var functions = map[string]function{
	"Add": {-1, sum},
	"Sub": {2, func(args []Number) (Number, error) { return sum([]Number{args[0], negative(args[1])}) }},
	"Mul": {-1, fold(multiply, func(a, b float64) float64 { return a * b })},
	"Max": {-1, larger},
	"Min": {-1, fold(func(a, b int64) (int64, error) { return min(a, b), nil }, math.Min)},
	"Neg": {1, func(args []Number) (Number, error) { return negative(args[0]), nil }},

	"FloorDiv": {2, divide(floorDivide, func(a, b float64) float64 { return math.Floor(a / b) })},
	"CleanDiv": {2, divide(floorDivide, func(a, b float64) float64 { return math.Floor(a / b) })},
	"CeilDiv": {2, divide(func(a, b int64) int64 {
		return -floorDivide(-a, b)
	}, func(a, b float64) float64 { return math.Ceil(a / b) })},
	"Mod":       {2, divide(modulo, floatModulo)},
	"PythonMod": {2, divide(modulo, floatModulo)},

	"Rational": {2, divide(nil, quotient)}, "IntTrueDiv": {2, divide(nil, quotient)},
	"FloatTrueDiv": {2, divide(nil, quotient)},
	"Pow":          {2, power}, "PowByNatural": {2, power}, "FloatPow": {2, power},

	"ToFloat":            {1, func(args []Number) (Number, error) { return Fraction(args[0].Real()), nil }},
	"OpaqueUnaryFn_sqrt": {1, func(args []Number) (Number, error) { return Fraction(math.Sqrt(args[0].Real())), nil }},
	"TruncToInt":         {1, round(math.Trunc)},
	"FloorToInt":         {1, round(math.Floor)},
	"floor":              {1, round(math.Floor)},
	"CeilToInt":          {1, round(math.Ceil)},
	"ceiling":            {1, round(math.Ceil)},
	"RoundToInt":         {1, round(math.RoundToEven)},
	"Abs": {1, func(args []Number) (Number, error) {
		return larger([]Number{args[0], negative(args[0])})
	}},
}

var (
	sum    = fold(add, func(a, b float64) float64 { return a + b })
	larger = fold(func(a, b int64) (int64, error) { return max(a, b), nil }, math.Max)
)

// check returns an error for an unknown function name or a wrong number of arguments.
func check(name string, n int) error {
	f, known := functions[name]
	switch {
	case !known:
		return fmt.Errorf("unknown function %q in the expression of a size", name)
	case f.arity < 0 && n == 0, f.arity >= 0 && n != f.arity:
		return fmt.Errorf("the function %s in the expression of a size has %d arguments, a wrong number", name, n)
	}
	return nil
}

// Compute applies the function with the given SymPy name to numbers.
func Compute(name string, args ...Number) (Number, error) {
	if err := check(name, len(args)); err != nil {
		return Number{}, err
	}
	return functions[name].compute(args)
}

// fold returns a function that combines its arguments from left to right. The result is an integer if all of them are.
func fold(ints func(a, b int64) (int64, error), floats func(a, b float64) float64) func([]Number) (Number, error) {
	return func(args []Number) (Number, error) {
		out := args[0]
		for _, a := range args[1:] {
			if out.float || a.float {
				out = Fraction(floats(out.Real(), a.Real()))
				continue
			}
			var err error
			if out.i, err = ints(out.i, a.i); err != nil {
				return Number{}, err
			}
		}
		return out, nil
	}
}

// divide returns a function of two numbers, the second not zero. Without a rule for integers, the result is a float.
func divide(ints func(a, b int64) int64, floats func(a, b float64) float64) func([]Number) (Number, error) {
	return func(args []Number) (Number, error) {
		a, b := args[0], args[1]
		switch {
		case b.Real() == 0:
			return Number{}, errZero
		case ints == nil || a.float || b.float:
			return Fraction(floats(a.Real(), b.Real())), nil
		default:
			return Whole(ints(a.i, b.i)), nil
		}
	}
}

// round returns a function that converts a number to an integer.
func round(to func(float64) float64) func([]Number) (Number, error) {
	return func(args []Number) (Number, error) {
		if !args[0].float {
			return args[0], nil
		}
		x := to(args[0].f)
		if !(math.Abs(x) < 1<<62) {
			return Number{}, errOverflow
		}
		return Whole(int64(x)), nil
	}
}

func negative(a Number) Number { return Number{i: -a.i, f: -a.f, float: a.float} }

func quotient(a, b float64) float64 { return a / b }

func floatModulo(a, b float64) float64 { return a - b*math.Floor(a/b) }

func modulo(a, b int64) int64 { return a - b*floorDivide(a, b) }

func floorDivide(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func add(a, b int64) (int64, error) {
	sum := a + b
	if (a >= 0) == (b >= 0) && (sum >= 0) != (a >= 0) {
		return 0, errOverflow
	}
	return sum, nil
}

func multiply(a, b int64) (int64, error) {
	if a == math.MinInt64 || b == math.MinInt64 {
		return 0, errOverflow
	}
	high, low := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b)))
	if high != 0 || low > math.MaxInt64 {
		return 0, errOverflow
	}
	return a * b, nil
}

func power(args []Number) (Number, error) {
	a, b := args[0], args[1]
	if a.float || b.float || b.i < 0 {
		return Fraction(math.Pow(a.Real(), b.Real())), nil
	}
	if b.i > 64 && a.i > 1 {
		return Number{}, errOverflow
	}
	out := int64(1)
	for range min(b.i, 64) {
		var err error
		if out, err = multiply(out, a.i); err != nil {
			return Number{}, err
		}
	}
	return Whole(out), nil
}

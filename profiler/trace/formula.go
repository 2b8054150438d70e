package trace

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// formulaFunc is a compiled formula: it computes the value from the tensors that its names refer to. grad is first.
type formulaFunc func(xs []*Tensor) *Tensor

// compiler turns formulas of derivatives.yaml and FunctionsManual.cpp into code that records them. They are written as
// in C++, which for these is also an expression of Go. Temporaries appear in the order in which GCC evaluates: the
// right operand before the left, the last argument before the first, but the object of a method before its arguments.
type compiler struct {
	places  map[string]int // of tensors
	numbers []string       // names of arguments that are numbers
}

// operand is a part of a formula: a tensor, or a number if value is nil.
type operand struct {
	value  formulaFunc
	number float64
}

// tensor compiles a formula whose value is a tensor.
func (c *compiler) tensor(formula string) formulaFunc {
	e, err := parser.ParseExpr(formula)
	if err != nil {
		panic(fmt.Sprintf("trace: formula %q: %v", formula, err)) // a mistake of the table, found by its test
	}
	o := c.expression(e)
	if o.value == nil {
		panic(fmt.Sprintf("trace: formula %q is a number", formula))
	}
	return o.value
}

func (c *compiler) expression(e ast.Expr) operand {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return c.expression(e.X)
	case *ast.BasicLit:
		n, _ := strconv.ParseFloat(e.Value, 64)
		return operand{number: n}
	case *ast.Ident:
		return c.name(e.Name)
	case *ast.UnaryExpr:
		return negated(c.expression(e.X))
	case *ast.BinaryExpr:
		return binary(e.Op, c.expression(e.X), c.expression(e.Y))
	case *ast.CallExpr:
		return c.call(e)
	default:
		panic(fmt.Sprintf("trace: formulas have no %T", e))
	}
}

func (c *compiler) name(name string) operand {
	if i, ok := c.places[name]; ok {
		return operand{value: func(xs []*Tensor) *Tensor { return xs[i] }}
	}
	if !slices.Contains(c.numbers, name) && !strings.HasPrefix(name, "M_") {
		panic("trace: formula with unknown name " + name)
	}
	return operand{}
}

func negated(x operand) operand {
	if x.value == nil {
		return operand{number: -x.number}
	}
	return operand{value: func(xs []*Tensor) *Tensor { return x.value(xs).Neg() }}
}

// arithmetic is an operator of formulas: on two tensors, on a tensor and a number, and on a number and a tensor.
type arithmetic struct {
	tensors                    func(x, y *Tensor) *Tensor
	tensorNumber, numberTensor func(x *Tensor) *Tensor
}

func arithmeticOf(op token.Token) arithmetic {
	switch op {
	case token.ADD:
		return arithmetic{(*Tensor).Add, (*Tensor).AddScalar, (*Tensor).AddScalar}
	case token.SUB:
		return arithmetic{(*Tensor).Sub, (*Tensor).AddScalar, (*Tensor).RSubScalar}
	case token.MUL:
		return arithmetic{(*Tensor).Mul, (*Tensor).MulScalar, (*Tensor).MulScalar}
	case token.QUO:
		return arithmetic{(*Tensor).Div, (*Tensor).DivScalar, (*Tensor).numberDividedBy}
	case token.AND:
		return arithmetic{tensors: (*Tensor).And}
	case token.EQL:
		return comparison("eq")
	case token.GEQ:
		return comparison("ge")
	case token.LEQ:
		return comparison("le")
	default:
		panic("trace: formulas have no operator " + op.String())
	}
}

func comparison(op string) arithmetic {
	return arithmetic{
		tensors:      func(x, y *Tensor) *Tensor { return x.compare(op, y) },
		tensorNumber: func(x *Tensor) *Tensor { return x.CompareScalar(op) },
	}
}

// numberDividedBy records number / x: a tensor that is filled with the number and divided in place.
func (x *Tensor) numberDividedBy() *Tensor {
	y := x.AllocLike(x.dtype)
	x.tape.LaunchElementwise(y, 4, x)
	return y
}

func binary(op token.Token, x, y operand) operand {
	f := arithmeticOf(op)
	switch {
	case x.value == nil && y.value == nil:
		return operand{}
	case y.value == nil:
		return operand{value: func(xs []*Tensor) *Tensor { return f.tensorNumber(x.value(xs)) }}
	case x.value == nil:
		return operand{value: func(xs []*Tensor) *Tensor { return f.numberTensor(y.value(xs)) }}
	}
	return operand{value: func(xs []*Tensor) *Tensor {
		right := y.value(xs)
		return f.tensors(x.value(xs), right)
	}}
}

// call compiles f(x, ...) and x.f(...).
func (c *compiler) call(e *ast.CallExpr) operand {
	var args []operand
	var name string
	method := false
	switch f := e.Fun.(type) {
	case *ast.SelectorExpr:
		name, method = f.Sel.Name, true
		args = append(args, c.expression(f.X))
	case *ast.Ident:
		name = f.Name
	}
	for _, a := range e.Args {
		args = append(args, c.expression(a))
	}
	if name == "sqrt" && args[0].value == nil {
		return operand{}
	}
	return operand{value: apply(functionFunc(name, args), args, method)}
}

// apply evaluates arguments in GCC's order and calls f with the tensors among them.
func apply(f func(xs []*Tensor) *Tensor, args []operand, method bool) formulaFunc {
	var values []formulaFunc
	for _, a := range args {
		if a.value != nil {
			values = append(values, a.value)
		}
	}
	return func(xs []*Tensor) *Tensor {
		got := make([]*Tensor, len(values), 4)
		first := 0
		if method {
			got[0], first = values[0](xs), 1
		}
		for i := len(values) - 1; i >= first; i-- {
			got[i] = values[i](xs)
		}
		if len(got) == 0 {
			got = xs[:1]
		}
		return f(got)
	}
}

// functionFunc finds what a formula calls: an operation that is code, a kernel of a backward pass,
// a function that has a formula itself, or an operator.
func functionFunc(name string, args []operand) func(xs []*Tensor) *Tensor {
	if name == "pow" && args[len(args)-1].value == nil {
		exponent := args[len(args)-1].number
		return func(xs []*Tensor) *Tensor { return xs[0].Pow(exponent) }
	}
	if f := operatorFunc(name); f != nil {
		return f
	}
	if _, ok := backwardKernels[name]; ok {
		return func(xs []*Tensor) *Tensor { return callBackwardKernel(name, xs[0], xs[1]) }
	}
	if o, ok := operatorIndex[name]; ok {
		return func(xs []*Tensor) *Tensor { return o.Call(xs...) }
	}
	panic("trace: formula calls unknown function " + name)
}

// operatorFunc returns the function with a name that formulas call and that is Go code; nil if there is none.
func operatorFunc(name string) func(xs []*Tensor) *Tensor {
	switch name {
	case "conj":
		return func(xs []*Tensor) *Tensor { return xs[0].conjugated() }
	case "isfinite":
		return func(xs []*Tensor) *Tensor { return xs[0].IsFinite() }
	case "isnan":
		return func(xs []*Tensor) *Tensor { return xs[0].IsNaN() }
	case "zeros":
		return func(xs []*Tensor) *Tensor { return xs[0].tape.ScalarTensor(xs[0].dtype) }
	case "zeros_like", "div_backward": // a rounded quotient has a gradient of zero
		return func(xs []*Tensor) *Tensor { return xs[0].ZerosLike() }
	case "div_floor":
		return func(xs []*Tensor) *Tensor { return xs[0].DivRoundedOf(xs[1]) }
	case "masked_fill":
		return func(xs []*Tensor) *Tensor { return xs[0].MaskedFill(xs[1]) }
	case "logical_or_":
		return func(xs []*Tensor) *Tensor {
			xs[0].tape.LaunchElementwise(xs[0], 1, xs...)
			return xs[0]
		}
	case "clamp_backward", "clamp_min_backward":
		return func(xs []*Tensor) *Tensor { return clampBackward(xs[0], xs[1], name == "clamp_backward") }
	case "extremum_backward":
		return func(xs []*Tensor) *Tensor { return extremumGrad(xs[0], xs[1], xs[2]) }
	case "sinc_backward":
		return func(xs []*Tensor) *Tensor { return sincBackward(xs[0], xs[1]) }
	case "pow_backward_self":
		return func(xs []*Tensor) *Tensor { return powBaseGrad(xs[0], xs[1], xs[2]) }
	case "pow_backward_exponent":
		return func(xs []*Tensor) *Tensor { return powExponentGrad(xs[0], xs[1], xs[2], xs[3]) }
	}
	return nil
}

// identifiers returns the names in a formula, each once.
func identifiers(formula string) []string {
	e, err := parser.ParseExpr(formula)
	if err != nil {
		panic(fmt.Sprintf("trace: formula %q: %v", formula, err))
	}
	names := map[string]bool{}
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			names[id.Name] = true
		}
		return true
	})
	return slices.Collect(maps.Keys(names))
}

// declaredNames are the names of a schema's arguments, in its order.
type declaredNames struct{ tensors, numbers []string }

// declaredArguments reads the names of tensors and others from a schema.
func declaredArguments(schema string) (d declaredNames) {
	_, list, _ := strings.Cut(schema, "(")
	list, _, _ = strings.Cut(list, ") ->")
	for field := range strings.SplitSeq(list, ",") {
		typ, name, _ := strings.Cut(strings.TrimSpace(field), " ")
		name, _, _ = strings.Cut(name, "=")
		if strings.HasPrefix(typ, "Tensor") {
			d.tensors = append(d.tensors, name)
		} else {
			d.numbers = append(d.numbers, name)
		}
	}
	return d
}

// tensor returns the index of a tensor among the tensors, -1 for the result.
func (d *declaredNames) tensor(name string) int { return slices.Index(d.tensors, name) }

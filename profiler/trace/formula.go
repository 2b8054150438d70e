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

// formulaFunc is a compiled formula. It computes the value from the tensors of its names; grad is the first.
type formulaFunc func(xs []*Tensor) *Tensor

// compiler compiles formulas of derivatives.yaml and FunctionsManual.cpp to functions that record them. The formulas
// are C++ expressions that are also Go expressions. Temporaries are created in GCC's order of evaluation: the right
// operand before the left, the last argument before the first, but a method's object before its arguments.
type compiler struct {
	places  map[string]int // of tensors
	numbers []string       // names of arguments that are numbers
}

// formulaOperand is a subexpression of a formula: a tensor, or a number if value is nil.
type formulaOperand struct {
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

func (c *compiler) expression(e ast.Expr) formulaOperand {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return c.expression(e.X)
	case *ast.BasicLit:
		n, _ := strconv.ParseFloat(e.Value, 64)
		return formulaOperand{number: n}
	case *ast.Ident:
		return c.name(e.Name)
	case *ast.UnaryExpr:
		return negate(c.expression(e.X))
	case *ast.BinaryExpr:
		return binaryOperation(e.Op, c.expression(e.X), c.expression(e.Y))
	case *ast.CallExpr:
		return c.call(e)
	default:
		panic(fmt.Sprintf("trace: formulas have no %T", e))
	}
}

func (c *compiler) name(name string) formulaOperand {
	if i, ok := c.places[name]; ok {
		return formulaOperand{value: func(xs []*Tensor) *Tensor { return xs[i] }}
	}
	if !slices.Contains(c.numbers, name) && !strings.HasPrefix(name, "M_") {
		panic("trace: formula with unknown name " + name)
	}
	return formulaOperand{}
}

func negate(x formulaOperand) formulaOperand {
	if x.value == nil {
		return formulaOperand{number: -x.number}
	}
	return formulaOperand{value: func(xs []*Tensor) *Tensor { return x.value(xs).Neg() }}
}

// formulaArithmetic is a binary operator in formulas: for two tensors, a tensor and a number, a number and a tensor.
type formulaArithmetic struct {
	tensors                    func(x, y *Tensor) *Tensor
	tensorNumber, numberTensor func(x *Tensor) *Tensor
}

func arithmeticOf(op token.Token) formulaArithmetic {
	switch op {
	case token.ADD:
		return formulaArithmetic{(*Tensor).Add, (*Tensor).AddScalar, (*Tensor).AddScalar}
	case token.SUB:
		return formulaArithmetic{(*Tensor).Sub, (*Tensor).AddScalar, (*Tensor).RSubScalar}
	case token.MUL:
		return formulaArithmetic{(*Tensor).Mul, (*Tensor).MulScalar, (*Tensor).MulScalar}
	case token.QUO:
		return formulaArithmetic{(*Tensor).Div, (*Tensor).DivScalar, (*Tensor).numberDividedBy}
	case token.AND:
		return formulaArithmetic{tensors: (*Tensor).And}
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

func comparison(op string) formulaArithmetic {
	return formulaArithmetic{
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

func binaryOperation(op token.Token, x, y formulaOperand) formulaOperand {
	f := arithmeticOf(op)
	switch {
	case x.value == nil && y.value == nil:
		return formulaOperand{}
	case y.value == nil:
		return formulaOperand{value: func(xs []*Tensor) *Tensor { return f.tensorNumber(x.value(xs)) }}
	case x.value == nil:
		return formulaOperand{value: func(xs []*Tensor) *Tensor { return f.numberTensor(y.value(xs)) }}
	}
	return formulaOperand{value: func(xs []*Tensor) *Tensor {
		right := y.value(xs)
		return f.tensors(x.value(xs), right)
	}}
}

// call compiles f(x, ...) and x.f(...).
func (c *compiler) call(e *ast.CallExpr) formulaOperand {
	var args []formulaOperand
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
		return formulaOperand{}
	}
	return formulaOperand{value: apply(functionFunc(name, args), args, method)}
}

// apply evaluates arguments in GCC's order and calls f with the tensors among them.
func apply(f func(xs []*Tensor) *Tensor, args []formulaOperand, method bool) formulaFunc {
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

// functionFunc finds the function that a formula calls: an operation in Go code, a backward kernel, a function with its
// own formula, or an operator.
func functionFunc(name string, args []formulaOperand) func(xs []*Tensor) *Tensor {
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

// operatorFunc returns the Go function for a name in formulas; nil if there is none.
func operatorFunc(name string) func(xs []*Tensor) *Tensor {
	switch name {
	case "conj":
		return func(xs []*Tensor) *Tensor { return xs[0].conjugate() }
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

// identifiers returns the distinct names in a formula.
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

// declaredNames are the names of a schema's tensor arguments and other arguments, in order.
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

// tensor returns the index of a name among the tensor arguments; -1 for the result.
func (d *declaredNames) tensor(name string) int { return slices.Index(d.tensors, name) }

package export

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Size is a dimension: a number, or an expression of symbols.
type Size struct {
	Int  int64
	Expr *Expr
}

// Eval is the number at the given values of symbols.
func (s Size) Eval(symbols map[string]int64) (int64, error) {
	if s.Expr == nil {
		return s.Int, nil
	}
	x, err := s.Expr.eval(symbols)
	if err != nil {
		return 0, err
	}
	if x.float {
		return 0, fmt.Errorf("%s is no whole number", s.Expr)
	}
	return x.i, nil
}

// Expr is an expression as SymPy's srepr writes it:
// Mul(Integer(64), Symbol('s77', positive=True, integer=True)).
type Expr struct {
	// Func is "Symbol", "Integer", "Float", "Add", "Mul", ...
	Func string
	Args []*Expr
	// Name is that of a Symbol, Int and Real the value of a number.
	Name string
	Int  int64
	Real float64
}

// mostNesting bounds expressions; those of real models nest a dozen deep.
const (
	mostNesting = 64
	mostText    = 1 << 16
)

// ParseExpr reads an expression.
func ParseExpr(text string) (*Expr, error) {
	if len(text) > mostText {
		return nil, fmt.Errorf("an expression of %d bytes", len(text))
	}
	p := exprParser{text: text}
	e, err := p.expr(0)
	if err == nil && strings.TrimSpace(p.text[p.at:]) != "" {
		err = errors.New("something follows it")
	}
	if err != nil {
		return nil, fmt.Errorf("%.60q is no expression that vprof reads: %w", text, err)
	}
	return e, nil
}

type exprParser struct {
	text string
	at   int
}

func (p *exprParser) next() byte {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

// word is an identifier or a number.
func (p *exprParser) word() string {
	p.next()
	start := p.at
	for p.at < len(p.text) && (p.text[p.at] == '_' || p.text[p.at] == '.' || p.text[p.at] == '-' || p.text[p.at] == '+' ||
		p.text[p.at] >= '0' && p.text[p.at] <= '9' || p.text[p.at]|0x20 >= 'a' && p.text[p.at]|0x20 <= 'z') {
		p.at++
	}
	return p.text[start:p.at]
}

func (p *exprParser) expr(depth int) (*Expr, error) {
	if depth > mostNesting {
		return nil, fmt.Errorf("nested more than %d deep", mostNesting)
	}
	name := p.word()
	if name == "" {
		return nil, fmt.Errorf("nothing where a term is due, at byte %d", p.at)
	}
	if p.next() != '(' {
		return nil, fmt.Errorf("%q has no arguments", name)
	}
	p.at++
	switch name {
	case "Symbol", "Integer", "Float":
		return p.atom(name)
	}
	e := &Expr{Func: name}
	for p.next() != ')' {
		a, err := p.expr(depth + 1)
		if err != nil {
			return nil, err
		}
		e.Args = append(e.Args, a)
		if p.next() == ',' {
			p.at++
		} else if p.next() != ')' {
			return nil, fmt.Errorf("no ) at byte %d", p.at)
		}
	}
	p.at++
	return e, e.check()
}

// atom reads a symbol or a number: the first argument counts, the others are
// assumptions, or the precision.
func (p *exprParser) atom(kind string) (*Expr, error) {
	end := strings.IndexByte(p.text[p.at:], ')')
	if end < 0 {
		return nil, errors.New("a ) is missing")
	}
	value, _, _ := strings.Cut(p.text[p.at:p.at+end], ",")
	p.at += end + 1
	value = strings.Trim(strings.TrimSpace(value), `'"`)
	e := &Expr{Func: kind}
	var err error
	switch kind {
	case "Symbol":
		if e.Name = value; value == "" {
			err = errors.New("a symbol without a name")
		}
	case "Integer":
		e.Int, err = strconv.ParseInt(value, 10, 64)
	case "Float":
		e.Real, err = strconv.ParseFloat(value, 64)
	}
	return e, err
}

// arity is how many arguments functions take, -1 for any number but none.
var arity = map[string]int{
	"Add": -1, "Mul": -1, "Max": -1, "Min": -1, "Pow": 2, "PowByNatural": 2, "FloatPow": 2, "Rational": 2,
	"FloorDiv": 2, "CleanDiv": 2, "CeilDiv": 2, "Mod": 2, "PythonMod": 2, "IntTrueDiv": 2, "FloatTrueDiv": 2,
	"ToFloat": 1, "TruncToInt": 1, "FloorToInt": 1, "CeilToInt": 1, "RoundToInt": 1, "floor": 1, "ceiling": 1,
	"Abs": 1, "OpaqueUnaryFn_sqrt": 1,
}

func (e *Expr) check() error {
	switch n, known := arity[e.Func]; {
	case !known:
		return fmt.Errorf("the function %q is not known", e.Func)
	case n < 0 && len(e.Args) == 0, n >= 0 && len(e.Args) != n:
		return fmt.Errorf("%s of %d arguments", e.Func, len(e.Args))
	}
	return nil
}

// Symbols calls f for each symbol in the expression.
func (e *Expr) Symbols(f func(name string)) {
	if e == nil {
		return
	}
	if e.Func == "Symbol" {
		f(e.Name)
	}
	for _, a := range e.Args {
		a.Symbols(f)
	}
}

// String is the expression in SymPy's notation, as [ParseExpr] reads it.
func (e *Expr) String() string {
	switch e.Func {
	case "Symbol":
		return "Symbol('" + e.Name + "')"
	case "Integer":
		return fmt.Sprintf("Integer(%d)", e.Int)
	case "Float":
		return fmt.Sprintf("Float('%g')", e.Real)
	}
	parts := make([]string, len(e.Args))
	for i, a := range e.Args {
		parts[i] = a.String()
	}
	return e.Func + "(" + strings.Join(parts, ", ") + ")"
}

// number is a value of an expression: whole, or not.
type number struct {
	i     int64
	f     float64
	float bool
}

func whole(i int64) number      { return number{i: i} }
func fraction(f float64) number { return number{f: f, float: true} }

func (n number) real() float64 {
	if n.float {
		return n.f
	}
	return float64(n.i)
}

var errOverflow = errors.New("a size exceeds 63 bits")

func (e *Expr) eval(symbols map[string]int64) (number, error) {
	switch e.Func {
	case "Symbol":
		v, ok := symbols[e.Name]
		if !ok {
			return number{}, fmt.Errorf("nothing says how large %s is", e.Name)
		}
		return whole(v), nil
	case "Integer":
		return whole(e.Int), nil
	case "Float":
		return fraction(e.Real), nil
	}
	args := make([]number, len(e.Args))
	for i, a := range e.Args {
		var err error
		if args[i], err = a.eval(symbols); err != nil {
			return number{}, err
		}
	}
	out := args[0]
	var err error
	switch e.Func {
	case "Add", "Mul", "Max", "Min":
		for _, a := range args[1:] {
			if out, err = fold(e.Func, out, a); err != nil {
				return number{}, err
			}
		}
		return out, nil
	}
	if len(args) == 1 {
		return unary(e.Func, out)
	}
	return binary(e.Func, out, args[1])
}

func fold(op string, a, b number) (number, error) {
	if a.float || b.float {
		x, y := a.real(), b.real()
		return fraction(map[string]float64{"Add": x + y, "Mul": x * y, "Max": max(x, y), "Min": min(x, y)}[op]), nil
	}
	switch op {
	case "Add":
		sum := a.i + b.i
		if (a.i >= 0) == (b.i >= 0) && (sum >= 0) != (a.i >= 0) {
			return number{}, errOverflow
		}
		return whole(sum), nil
	case "Mul":
		return multiply(a.i, b.i)
	case "Max":
		return whole(max(a.i, b.i)), nil
	default:
		return whole(min(a.i, b.i)), nil
	}
}

func multiply(a, b int64) (number, error) {
	if a == math.MinInt64 || b == math.MinInt64 {
		return number{}, errOverflow
	}
	high, low := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b)))
	if high != 0 || low > math.MaxInt64 {
		return number{}, errOverflow
	}
	return whole(a * b), nil
}

func unary(op string, a number) (number, error) {
	x := a.real()
	switch op {
	case "ToFloat":
		return fraction(x), nil
	case "OpaqueUnaryFn_sqrt":
		return fraction(math.Sqrt(x)), nil
	case "TruncToInt":
		x = math.Trunc(x)
	case "FloorToInt", "floor":
		x = math.Floor(x)
	case "CeilToInt", "ceiling":
		x = math.Ceil(x)
	case "RoundToInt":
		x = math.RoundToEven(x)
	case "Abs":
		x = math.Abs(x)
	}
	if !(math.Abs(x) < 1<<62) {
		return number{}, errOverflow
	}
	return whole(int64(x)), nil
}

func binary(op string, a, b number) (number, error) {
	switch op {
	case "Pow", "PowByNatural", "FloatPow":
		return power(a, b)
	case "Rational", "IntTrueDiv", "FloatTrueDiv":
		if b.real() == 0 {
			return number{}, errors.New("a size is divided by zero")
		}
		return fraction(a.real() / b.real()), nil
	}
	if a.float || b.float {
		return number{}, fmt.Errorf("%s of fractions", op)
	}
	if b.i == 0 {
		return number{}, errors.New("a size is divided by zero")
	}
	quotient := a.i / b.i
	if a.i%b.i != 0 && (a.i < 0) != (b.i < 0) {
		quotient--
	}
	remainder := a.i - quotient*b.i
	switch {
	case op == "Mod" || op == "PythonMod":
		return whole(remainder), nil
	case op == "CeilDiv" && remainder != 0:
		return whole(quotient + 1), nil
	default:
		return whole(quotient), nil
	}
}

func power(a, b number) (number, error) {
	if a.float || b.float || b.i < 0 {
		return fraction(math.Pow(a.real(), b.real())), nil
	}
	if b.i > 64 && a.i > 1 {
		return number{}, errOverflow
	}
	out := whole(1)
	for range min(b.i, 64) {
		var err error
		if out, err = multiply(out.i, a.i); err != nil {
			return number{}, err
		}
	}
	return out, nil
}

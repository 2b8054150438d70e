package export

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/lists"
)

// Size is the size of a tensor's dimension: a number, or an expression of symbols.
type Size struct {
	Int  int64
	Expr *Expr
}

// Eval returns the size's number for the given values of symbols.
func (s Size) Eval(symbols map[string]int64) (int64, error) {
	if s.Expr == nil {
		return s.Int, nil
	}
	x, err := s.Expr.eval(symbols)
	if err != nil {
		return 0, err
	}
	n, whole := x.Int()
	if !whole {
		return 0, fmt.Errorf("the size %s is not a whole number; capture the model again", s.Expr)
	}
	return n, nil
}

// Expr is an expression as SymPy's srepr writes it: Mul(Integer(64), Symbol('s77', positive=True, integer=True)).
type Expr struct {
	// Func is "Symbol", "Integer", "Float", "Add", "Mul", ...
	Func string
	Args []*Expr
	// Name is the name of a Symbol; Int and Real are the value of a number.
	Name string
	Int  int64
	Real float64
}

// mostNesting is the limit of nested expressions; expressions of real models nest about a dozen deep.
const (
	mostNesting = 64
	mostText    = 1 << 16
)

// ParseExpr reads an expression in the text form of SymPy's srepr.
func ParseExpr(text string) (*Expr, error) {
	if len(text) > mostText {
		return nil, fmt.Errorf("the expression of a size has %d bytes: need at most %d", len(text), mostText)
	}
	p := exprParser{text: text}
	e, err := p.expr(0)
	if err == nil && strings.TrimSpace(p.text[p.at:]) != "" {
		err = errors.New("text follows the end of the expression")
	}
	if err != nil {
		return nil, fmt.Errorf("the expression %.60q of a size cannot be read: %w; export the model again", text, err)
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

// identifier returns an identifier or a number.
func (p *exprParser) identifier() string {
	p.next()
	start := p.at
	for p.at < len(p.text) && (p.text[p.at] == '_' || p.text[p.at] == '.' || p.text[p.at] == '-' ||
		p.text[p.at] == '+' ||
		p.text[p.at] >= '0' && p.text[p.at] <= '9' || p.text[p.at]|0x20 >= 'a' && p.text[p.at]|0x20 <= 'z') {
		p.at++
	}
	return p.text[start:p.at]
}

func (p *exprParser) expr(depth int) (*Expr, error) {
	if depth > mostNesting {
		return nil, fmt.Errorf("it is nested more than %d levels deep", mostNesting)
	}
	name := p.identifier()
	if name == "" {
		return nil, fmt.Errorf("a term is missing at byte %d", p.at)
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
			return nil, fmt.Errorf("a ) is missing at byte %d", p.at)
		}
	}
	p.at++
	return e, check(e.Func, len(e.Args))
}

// atom reads the arguments of a symbol or a number and returns the first. Others are assumptions, or the precision.
func (p *exprParser) atom(kind string) (*Expr, error) {
	end := strings.IndexByte(p.text[p.at:], ')')
	if end < 0 {
		return nil, errors.New("a closing parenthesis is missing")
	}
	value, _, _ := strings.Cut(p.text[p.at:p.at+end], ",")
	p.at += end + 1
	value = strings.Trim(strings.TrimSpace(value), `'"`)
	e := &Expr{Func: kind}
	var err error
	switch kind {
	case "Symbol":
		if e.Name = value; value == "" {
			err = errors.New("the name of a Symbol is missing in the expression")
		}
	case "Integer":
		e.Int, err = strconv.ParseInt(value, 10, 64)
	case "Float":
		e.Real, err = strconv.ParseFloat(value, 64)
	}
	return e, err
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

// String returns the expression in SymPy's notation, as [ParseExpr] reads it.
func (e *Expr) String() string {
	switch e.Func {
	case "Symbol":
		return "Symbol('" + e.Name + "')"
	case "Integer":
		return fmt.Sprintf("Integer(%d)", e.Int)
	case "Float":
		return fmt.Sprintf("Float('%g')", e.Real)
	}
	parts := lists.Map(e.Args, func(a *Expr) string { return a.String() })
	return e.Func + "(" + strings.Join(parts, ", ") + ")"
}

func (e *Expr) eval(symbols map[string]int64) (Number, error) {
	switch e.Func {
	case "Symbol":
		v, ok := symbols[e.Name]
		if !ok {
			return Number{}, fmt.Errorf("the value of the size %s is unknown; capture the model again", e.Name)
		}
		return Whole(v), nil
	case "Integer":
		return Whole(e.Int), nil
	case "Float":
		return Fraction(e.Real), nil
	}
	args := make([]Number, len(e.Args))
	for i, a := range e.Args {
		var err error
		if args[i], err = a.eval(symbols); err != nil {
			return Number{}, err
		}
	}
	return Compute(e.Func, args...)
}

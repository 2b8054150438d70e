package aten

import (
	"fmt"
	"slices"
	"strings"
)

// Schema is the declaration of an operator overload.
type Schema struct {
	// Name is the qualified name: "aten::add".
	Name string
	// Overload is the overload's name; "" for the default overload.
	Overload  string
	Arguments []Argument
	// Returns are the types of the results.
	Returns []string
}

// Argument is a parameter of a schema.
type Argument struct {
	Name string
	// Type is the type in the schema, without alias annotations: "Tensor?", "SymInt[]".
	Type string
	// Default is the text of the default value; HasDefault reports whether there is one.
	Default    string
	HasDefault bool
}

// String returns the name with the overload, if there is one: "aten::add.Tensor".
func (s *Schema) String() string {
	if s.Overload == "" {
		return s.Name
	}
	return s.Name + "." + s.Overload
}

// base returns the name without namespace and overload: "add".
func (s *Schema) base() string { return s.Name[strings.LastIndexByte(s.Name, ':')+1:] }

// index returns the index of an argument by name; -1 if there is none.
func (s *Schema) index(name string) int {
	return slices.IndexFunc(s.Arguments, func(a Argument) bool { return a.Name == name })
}

// ParseSchema parses a declaration in PyTorch's notation, such as "add.Tensor(Tensor self, Tensor other, *, Scalar
// alpha=1) -> Tensor". A name without a namespace belongs to aten.
func ParseSchema(text string) (*Schema, error) {
	open := strings.IndexByte(text, '(')
	if open <= 0 {
		return nil, fmt.Errorf("schema %q: the argument list is missing", text)
	}
	s := new(Schema)
	s.Name, s.Overload, _ = strings.Cut(text[:open], ".")
	s.Name = qualifiedName(s.Name)
	args, rest, err := cutParenthesized(text[open:])
	if err != nil {
		return nil, fmt.Errorf("schema %q: %w", text, err)
	}
	for _, field := range splitList(args) {
		if field == "*" {
			continue // the arguments that follow are passed by name, as all are here
		}
		a, err := parseArgument(field)
		if err != nil {
			return nil, fmt.Errorf("schema %q: %w", text, err)
		}
		if s.index(a.Name) >= 0 {
			return nil, fmt.Errorf("schema %q: argument %q appears twice", text, a.Name)
		}
		s.Arguments = append(s.Arguments, a)
	}
	returns, ok := strings.CutPrefix(strings.TrimSpace(rest), "->")
	if !ok {
		return nil, fmt.Errorf("schema %q: -> after the arguments is missing", text)
	}
	if s.Returns, err = parseReturns(strings.TrimSpace(returns)); err != nil {
		return nil, fmt.Errorf("schema %q: %w", text, err)
	}
	return s, nil
}

// parseArgument reads "Type name" or "Type name=default".
func parseArgument(field string) (Argument, error) {
	declaration, value, hasDefault := strings.Cut(field, "=")
	space := strings.LastIndexByte(strings.TrimSpace(declaration), ' ')
	if space < 0 {
		return Argument{}, fmt.Errorf("argument %q: type or name is missing", field)
	}
	typ, err := plainType(declaration[:space])
	if err != nil {
		return Argument{}, err
	}
	a := Argument{Name: strings.TrimSpace(declaration[space:]), Type: typ, HasDefault: hasDefault}
	a.Default = strings.Trim(strings.TrimSpace(value), `'"`)
	return a, nil
}

// parseReturns parses one type or a tuple of types; results may have names.
func parseReturns(text string) ([]string, error) {
	if text == "()" {
		return nil, nil
	}
	if strings.HasPrefix(text, "(") {
		inside, rest, err := cutParenthesized(text)
		if err == nil && strings.TrimSpace(rest) == "" {
			text = inside
		}
	}
	var out []string
	for _, field := range splitList(text) {
		// An alias annotation is part of the type; a name follows the type.
		end := len(field)
		if space := strings.LastIndexByte(field, ' '); space >= 0 && !strings.ContainsAny(field[space:], ")]") {
			end = space
		}
		typ, err := plainType(field[:end])
		if err != nil {
			return nil, err
		}
		out = append(out, typ)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the return type is missing")
	}
	return out, nil
}

// plainType returns a type without its alias annotations, such as "Tensor(a!)".
func plainType(text string) (string, error) {
	var out strings.Builder
	depth := 0
	for _, r := range strings.TrimSpace(text) {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
			if depth < 0 {
				return "", fmt.Errorf("unbalanced parentheses in type %q", text)
			}
		case depth == 0:
			out.WriteRune(r)
		}
	}
	typ := strings.TrimSpace(out.String())
	if depth != 0 || typ == "" || strings.ContainsAny(typ, " \t\n") {
		return "", fmt.Errorf("unknown type %q", text)
	}
	return typ, nil
}

// cutParenthesized splits "(a) b" into "a" and " b".
func cutParenthesized(text string) (inside, rest string, err error) {
	depth := 0
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
			if depth == 0 {
				return text[1:i], text[i+1:], nil
			}
		}
	}
	return "", "", fmt.Errorf("unbalanced parentheses")
}

// splitList splits a text at commas that are outside of brackets and quotes.
func splitList(text string) []string {
	var out []string
	depth, from := 0, 0
	var quote rune
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == '(' || r == '[':
			depth++
		case r == ')' || r == ']':
			depth--
		case r == ',' && depth == 0:
			out = append(out, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	if last := strings.TrimSpace(text[from:]); last != "" || from > 0 {
		out = append(out, last)
	}
	return out
}

package lifetimes

import (
	"slices"
	"strings"
)

// statement describes what a Python source line does with the result of its call.
type statement struct {
	// names are the variables that the line assigns, in order.
	names []string
	// uses are the variables on the right side of the assignment. Called functions and attributes do not count.
	uses []string
	// keeps reports whether the result goes into a container or an attribute.
	keeps bool
	// single reports whether a line makes one call and assigns it, so a second call is a loop's next iteration.
	single bool
	// goesOn reports whether the line continues the statement of the line before.
	goesOn bool
}

// parse parses a Python source line. For a line that it cannot parse, it returns a statement without names.
func parse(text string) statement {
	var s statement
	text = strings.TrimSpace(text)
	if text == "" {
		return s
	}
	if strings.ContainsRune(")]}.+*/@-&|", rune(text[0])) {
		s.goesOn = true
		return s
	}
	left, right, assigned := cutAssignment(text)
	if !assigned {
		s.keeps = strings.Contains(text, ".append(") && !strings.HasPrefix(text, "return ")
		return s
	}
	for target := range strings.SplitSeq(strings.Trim(left, "() "), ",") {
		target = strings.Trim(target, "* ")
		target, _, _ = strings.Cut(target, ":") // an annotation
		switch target = strings.TrimSpace(target); {
		case target == "":
		case isName(target):
			s.names = append(s.names, target)
		default:
			s.keeps = true
		}
	}
	if s.keeps {
		s.names = nil
	}
	s.uses = plainNames(right)
	s.single = strings.Count(right, "(") == 1 && strings.HasSuffix(right, ")")
	return s
}

// cutAssignment splits "x = f(y)" and "x += y" at the operator, if there is one outside of brackets.
func cutAssignment(text string) (left, right string, ok bool) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case '\'', '"', '#':
			return "", "", false // a string or a comment comes first
		case '=':
			if depth > 0 || i == 0 || i+1 < len(text) && text[i+1] == '=' || strings.IndexByte("=!<>", text[i-1]) >= 0 {
				if i+1 < len(text) && text[i+1] == '=' {
					i++
				}
				continue
			}
			return strings.TrimRight(text[:i], "+-*/@%&|^ "), strings.TrimSpace(text[i+1:]), true
		}
	}
	return "", "", false
}

func isName(text string) bool {
	for i := range len(text) {
		if !isNameByte(text[i]) || i == 0 && text[i] <= '9' {
			return false
		}
	}
	return text != ""
}

// keywords are Python's keywords and common names that never hold tensors.
var keywords = map[string]bool{
	"self": true, "if": true, "else": true, "not": true, "and": true, "or": true, "in": true, "is": true, "for": true,
	"lambda": true, "None": true, "True": true, "False": true, "torch": true, "F": true, "nn": true,
	"math": true, "dim": true,
}

// plainNames returns the variables in a Python expression, without called functions, attributes and keyword arguments.
func plainNames(text string) []string {
	var out []string
	for i := 0; i < len(text); {
		c := text[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') {
			if c == '\'' || c == '"' || c == '#' {
				return out
			}
			i++
			continue
		}
		start := i
		for i < len(text) && isNameByte(text[i]) {
			i++
		}
		name := text[start:i]
		after := strings.TrimLeft(text[i:], " ")
		attribute := start > 0 && text[start-1] == '.'
		keyword := strings.HasPrefix(after, "=") && !strings.HasPrefix(after, "==")
		called := strings.HasPrefix(after, "(")
		digit := start > 0 && isNameByte(text[start-1])
		if attribute || keyword || called || digit || keywords[name] || slices.Contains(out, name) {
			continue
		}
		out = append(out, name)
	}
	return out
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

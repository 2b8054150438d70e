package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A finding is a position in a file where the text breaks a rule.
type finding struct {
	file string
	line int
	what string
}

// String returns the finding in the format of compiler errors.
func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.what) }

// check returns the findings of one file.
func check(file string, text []byte) []finding {
	if filepath.Ext(file) == ".go" {
		return checkGo(file, text)
	}
	return phrasesIn(file, 1, string(text))
}

// checkGo returns the findings in Go comments and in string literals that contain a space.
func checkGo(file string, text []byte) []finding {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.ParseComments)
	if err != nil {
		return []finding{{file, 0, err.Error()}}
	}
	var found []finding
	line := func(p token.Pos) int { return set.Position(p).Line }
	for _, group := range parsed.Comments {
		text := make([]string, len(group.List)) // one line or block each; a phrase may continue on the next line
		for i, comment := range group.List {
			text[i] = strings.TrimPrefix(strings.TrimPrefix(comment.Text, "//"), " ")
		}
		found = append(found, phrasesIn(file, line(group.Pos()), strings.Join(text, "\n"))...)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field:
			_, isField := n.(*ast.Field)
			return isField && n.(*ast.Field).Tag == nil
		case *ast.BasicLit:
			s, err := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && err == nil && strings.Contains(s, " ") {
				found = append(found, phrasesIn(file, line(n.Pos()), s)...)
			}
		case *ast.FuncDecl:
			if what := unverbed(n); what != "" {
				found = append(found, finding{file, line(n.Pos()), what})
			}
		}
		return true
	})
	return found
}

// law matches functions whose comment states a property or shows an example.
var law = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)

// verb matches verbs in the third person; state matches verbs that describe no action.
var (
	verb  = regexp.MustCompile(`^[a-z][a-z-]*s$`)
	state = regexp.MustCompile(`^(is|was|has|its|this|thus|always|whether|as|does)$`)
)

// unverbed returns what is wrong with the first words of a function's comment; empty if nothing is, or if it has none.
func unverbed(f *ast.FuncDecl) string {
	if f.Doc == nil || law.MatchString(f.Name.Name) {
		return ""
	}
	words := strings.Fields(f.Doc.Text())
	if len(words) < 2 || words[0] != f.Name.Name {
		return fmt.Sprintf("the comment of %s begins with its name and a verb", f.Name.Name)
	}
	if words[1] == "and" { // the comment of two functions: "Reads and Writes return ..."
		return ""
	}
	if w := strings.TrimRight(words[1], ",.;:"); !verb.MatchString(w) || state.MatchString(w) {
		return fmt.Sprintf("%s %s: the second word is a verb (returns, reports, adds)", f.Name.Name, words[1])
	}
	return ""
}

// phrasesIn returns the listed phrases in a text that starts at a line. Phrases in keys are ignored, and a phrase may
// continue on the next line.
func phrasesIn(file string, line int, text string) []finding {
	blank := func(key string) string { return strings.Repeat("\x00", len(key)) }
	joined := strings.ReplaceAll(keys.ReplaceAllStringFunc(text, blank), "\n", " ")
	var found []finding
	for _, p := range phrases {
		for _, at := range p.pattern.FindAllStringIndex(joined, -1) {
			what := fmt.Sprintf("%q: write %s", joined[at[0]:at[1]], p.instead)
			found = append(found, finding{file, line + strings.Count(text[:at[0]], "\n"), what})
		}
	}
	return found
}

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

// A finding is a place whose words break a rule.
type finding struct {
	file string
	line int
	what string
}

// String returns the finding as compilers write one.
func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.what) }

// check returns the findings of one file.
func check(file string, text []byte) []finding {
	if filepath.Ext(file) == ".go" {
		return checkGo(file, text)
	}
	var found []finding
	for i, line := range strings.Split(string(text), "\n") {
		found = append(found, phrasesIn(file, i+1, line)...)
	}
	return found
}

// checkGo returns the findings of Go's comments and of its strings that are sentences.
func checkGo(file string, text []byte) []finding {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.ParseComments)
	if err != nil {
		return []finding{{file, 0, err.Error()}}
	}
	var found []finding
	line := func(p token.Pos) int { return set.Position(p).Line }
	for _, group := range parsed.Comments {
		for _, comment := range group.List {
			for i, part := range strings.Split(comment.Text, "\n") {
				found = append(found, phrasesIn(file, line(comment.Pos())+i, part)...)
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field:
			_, isField := n.(*ast.Field)
			return isField && n.(*ast.Field).Tag == nil
		case *ast.BasicLit:
			s, err := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && err == nil && strings.Contains(s, " ") {
				for i, part := range strings.Split(s, "\n") {
					found = append(found, phrasesIn(file, line(n.Pos())+i, part)...)
				}
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

// law matches the functions whose comment states a law or shows a use.
var law = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)

// verb matches verbs in the third person, and states the ones that describe nothing that a function does.
var (
	verb  = regexp.MustCompile(`^[a-z][a-z-]*s$`)
	state = regexp.MustCompile(`^(is|was|has|its|this|thus|always|whether|as|does)$`)
)

// unverbed returns what is wrong with the first words of a function's comment; nothing of functions without one.
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

// phrasesIn returns the phrases in a line of text, without names that files and programs know.
func phrasesIn(file string, line int, text string) []finding {
	text = keys.ReplaceAllString(text, "")
	var found []finding
	for _, p := range phrases {
		if m := p.pattern.FindString(text); m != "" {
			found = append(found, finding{file, line, fmt.Sprintf("%q: write %s", m, p.instead)})
		}
	}
	return found
}

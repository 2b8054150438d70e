package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each function of the walk in ARCHITECTURE.md is in the file beside it, and one above it calls it: by its name, or by
// a field of that name where it is handed over as a value.
func TestTheWalkOfABatchIsThatOfTheCode(t *testing.T) {
	const root = ".."
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	require.NoError(t, err)
	_, walk, found := strings.Cut(string(page), "\n## The walk of a batch\n")
	require.True(t, found)
	walk, _, _ = strings.Cut(walk, "\n## ")
	row := regexp.MustCompile(`(?m)^\| \[[^\]]+\]\(([^)]+)\)[^|]*\| ([^|]+) \|`)
	name := regexp.MustCompile("`(\\w+)`")
	called := map[string]bool{"runsweep": true} // by the command line
	functions := 0
	for _, cells := range row.FindAllStringSubmatch(walk, -1) {
		declared := functionsOf(t, filepath.Join(root, cells[1]))
		for _, n := range name.FindAllStringSubmatch(cells[2], -1) {
			functions++
			require.Contains(t, declared, n[1], "%s has no function %s", cells[1], n[1])
			require.True(t, called[strings.ToLower(n[1])], "nothing above calls %s of %s", n[1], cells[1])
			for _, other := range declared[n[1]] {
				called[strings.ToLower(other)] = true
			}
		}
	}
	require.Greater(t, functions, 20)
}

// functionsOf returns the names that the functions of a file use, by the functions' own names.
func functionsOf(t *testing.T, file string) map[string][]string {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	used := map[string][]string{}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					switch to := call.Fun.(type) {
					case *ast.Ident:
						used[f.Name.Name] = append(used[f.Name.Name], to.Name)
					case *ast.SelectorExpr:
						used[f.Name.Name] = append(used[f.Name.Name], to.Sel.Name)
					}
				}
				return true
			})
			used[f.Name.Name] = append(used[f.Name.Name], "")
		}
	}
	return used
}

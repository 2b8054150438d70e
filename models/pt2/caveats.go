package pt2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/export"
)

// caveats says what the graph of a model leaves out: an exported graph has the
// operators of a custom autograd.Function's forward, but neither what it saves for
// backward nor its backward.
func caveats(p *export.Program) func(models.Case) []string {
	lines := leftOut(p)
	return func(c models.Case) []string {
		if c.Liger {
			return append(slices.Clone(lines), ligerFound(p, c))
		}
		return lines
	}
}

// leftOut are the Functions of which the graph has no backward.
func leftOut(p *export.Program) []string {
	var lines []string
	found := map[string]bool{}
	for _, f := range p.Functions {
		if f.Backward > 0 {
			continue
		}
		found[f.Name] = true
		lines = append(lines,
			fmt.Sprintf("%s (%s) is a custom autograd.Function, whose backward is not in the exported graph: "+
				"it is taken to keep the Function's tensor arguments and to make a gradient of each", f.Name, f.Line))
	}
	if p.Extra != nil {
		for _, f := range p.Extra.CustomFunctions {
			if found[f.Name[strings.LastIndexByte(f.Name, '.')+1:]] {
				continue
			}
			line := f.Name
			if f.Line != "" {
				line += " (" + f.Line + ")"
			}
			lines = append(lines,
				line+" is a custom autograd.Function: the exported graph does not have its backward, "+
					"so what it saves is estimated from the operators of its forward")
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

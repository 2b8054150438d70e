package pt2

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/export"
)

// caveats says what the graph of a captured model leaves out: an exported
// graph has the operators of a custom autograd.Function's forward, but neither
// what it saves for backward nor its backward.
func caveats(p *export.Program) func(models.Case) []string {
	if p.Extra == nil || len(p.Extra.CustomFunctions) == 0 {
		return nil
	}
	var lines []string
	for _, f := range p.Extra.CustomFunctions {
		line := f.Name
		if f.Line != "" {
			line += " (" + f.Line + ")"
		}
		lines = append(lines, fmt.Sprintf("%s is a custom autograd.Function: the exported graph does not have its backward, "+
			"so what it saves is estimated from the operators of its forward", line))
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	return func(models.Case) []string { return lines }
}

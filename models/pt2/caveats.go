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
		lines := slices.Clip(lines)
		if c.Liger {
			lines = append(lines, ligerFound(p, c))
		}
		if p.Extra != nil && p.Extra.OtherWay != nil && int64(c.Batch) != captured(p.Extra) {
			lines = append(lines, otherWay(p.Extra))
		}
		return lines
	}
}

// captured is the batch of the example that a model was captured with.
func captured(x *export.Extra) int64 {
	for _, s := range x.Symbols {
		if s.Name == "batch" {
			return s.Example
		}
	}
	if x.Batch != nil {
		return x.Batch.Exported
	}
	return 0
}

func otherWay(x *export.Extra) string {
	return fmt.Sprintf("forward does something else at batch %d than at %d, with which it was captured, from %s on: "+
		"figures are of what it does at %[2]d; capture it with --input 'NAME=TYPE[batch=N,...]' for batch N",
		x.OtherWay.Batch, captured(x), x.OtherWay.Line)
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

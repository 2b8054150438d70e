package pt2

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// region is the nodes of one call of a checkpointed module: torch.utils.checkpoint(module, *inputs,
// use_reentrant=False).
type region struct {
	begin, end int
	// inputs are the tensors from outside that the region uses. outputs are its results that later nodes use.
	inputs, outputs []int32
	// freedAfter are values from outside that are freed when the call returns.
	freedAfter []int32
}

// globPatterns are globs of names, with the syntax of Python's fnmatch.
type globPatterns []string

func parsePatterns(text string) globPatterns {
	return lists.NonZero(strings.Split(text, ","), strings.TrimSpace)
}

// match returns the index of the first pattern that matches a name; -1 if none does. Invalid patterns match nothing.
func (ps globPatterns) match(name string) int {
	return slices.IndexFunc(ps, func(p string) bool {
		ok, err := path.Match(strings.ReplaceAll(p, "[!", "[^"), name)
		return ok && err == nil
	})
}

// checkpointedRegions returns the calls of the modules that match a pattern; inside a matching module, no other counts.
// A pattern that matches no module is an error.
func checkpointedRegions(p *export.Program, blocks string) ([]region, error) {
	globs := parsePatterns(blocks)
	found := make([]bool, len(globs))
	blockOf := map[string]string{}
	find := func(module string) string {
		if b, known := blockOf[module]; known {
			return b
		}
		b := ""
		for end := 0; end <= len(module) && b == ""; end++ {
			if end < len(module) && module[end] != '.' {
				continue
			}
			if i := globs.match(module[:end]); i >= 0 && end > 0 {
				b, found[i] = module[:end], true
			}
		}
		blockOf[module] = b
		return b
	}
	var out []region
	last := ""
	for i := range p.Nodes {
		b := find(p.Nodes[i].Module)
		switch b {
		case "":
		case last:
			out[len(out)-1].end = i + 1
		default:
			out = append(out, region{begin: i, end: i + 1})
		}
		last = b
	}
	for i, ok := range found {
		if !ok {
			return nil, fmt.Errorf("the model calls no module named %q; its modules have names "+
				"like %s", globs[i], exampleModule(p))
		}
	}
	for i := range out {
		out[i].findBorders(p)
	}
	return out, nil
}

func exampleModule(p *export.Program) string {
	for i := len(p.Nodes) / 2; i < len(p.Nodes); i++ {
		if m := p.Nodes[i].Module; strings.Contains(m, ".") {
			return m
		}
	}
	return "blocks.0"
}

// findBorders sets the inputs and outputs of the region.
func (r *region) findBorders(p *export.Program) {
	inside := map[int32]bool{}
	fixed := map[int32]bool{}
	for i := range p.Inputs {
		fixed[p.Inputs[i].Value] = p.Inputs[i].Role != export.UserInput
	}
	for i := r.begin; i < r.end; i++ {
		n := &p.Nodes[i]
		eachInput(n, func(v int32) { addOnce(&r.inputs, v, !inside[v] && !fixed[v]) })
		eachOutput(n, func(v int32) { inside[v] = true })
		r.freedAfter = append(r.freedAfter, lists.Filter(n.Dies, func(v int32) bool { return !inside[v] })...)
	}
	note := func(v int32) { addOnce(&r.outputs, v, inside[v]) }
	for i := r.end; i < len(p.Nodes); i++ {
		eachInput(&p.Nodes[i], note)
	}
	for _, x := range p.Results {
		note(x.Value)
	}
}

func eachValue(a export.Argument, f func(v int32)) {
	switch a.Kind {
	case export.Ref:
		f(a.Ref)
	case export.TypeOf:
		return // operators read only the size, not the tensor
	}
	for _, x := range a.List {
		eachValue(x, f)
	}
}

func (w *nodeRunner) runCheckpointed(r *region) {
	inputs, at := w.inputsOf(r)
	known, wraps := slices.Clone(w.values), wrappersWithin(w.wraps, r)
	w.wraps = w.wraps[len(wraps):]
	var results []aten.Value
	run := func(f *trace.Frame, inputs []*trace.Tensor) (outs []*trace.Tensor) {
		inner := &nodeRunner{task: w.task, frame: f, values: slices.Clone(known), inside: r, wraps: wraps}
		outs, results = inner.runRegion(at, inputs)
		return outs
	}
	outs := w.checkpointModule(w.g.Nodes[r.begin].Module, run, inputs)
	w.setResults(r, outs, results)
}

// inputsOf returns the tensors that a region reads from outside, and their values.
func (w *nodeRunner) inputsOf(r *region) (inputs []*trace.Tensor, at []int32) {
	for _, v := range r.inputs {
		if x := w.tensor(v); x != nil {
			inputs, at = append(inputs, x), append(at, v)
		}
	}
	return inputs, at
}

// runRegion runs the nodes of the current region; inputs are the tensors of the values at. It returns all results,
// and the tensors among them in outs.
func (w *nodeRunner) runRegion(at []int32, inputs []*trace.Tensor) (outs []*trace.Tensor, results []aten.Value) {
	for i, v := range at {
		w.values[v] = inputs[i]
	}
	w.runNodes(w.inside.begin, w.inside.end)
	for _, v := range w.inside.outputs {
		results = append(results, w.values[v])
		if x := w.tensor(v); x != nil {
			outs = append(outs, x)
		}
	}
	return outs, results
}

// setResults sets the results of a region, whose tensors are outs, and frees the values that end with the region.
func (w *nodeRunner) setResults(r *region, outs []*trace.Tensor, results []aten.Value) {
	for i, v := range r.outputs {
		if x, ok := results[i].(*trace.Tensor); !ok || x == nil {
			w.values[v] = results[i]
			continue
		}
		w.setValue(v, outs[0])
		outs = outs[1:]
	}
	for _, v := range r.freedAfter {
		w.dropValue(v)
	}
	for _, v := range r.outputs {
		if r.isFreedInside(w.g.Program, v) {
			w.dropValue(v)
		}
	}
}

// checkpointModule runs a module's region under the case's kind of checkpointing.
func (w *nodeRunner) checkpointModule(module string, run func(*trace.Frame, []*trace.Tensor) []*trace.Tensor,
	inputs []*trace.Tensor,
) []*trace.Tensor {
	if w.c.Recompute != models.Reentrant {
		return w.frame.CheckpointAll(run, inputs...)
	}
	return []*trace.Tensor{w.frame.CheckpointReentrant(func(f *trace.Frame, in []*trace.Tensor) *trace.Tensor {
		outs := run(f, in)
		if len(outs) != 1 {
			f.Tape().Raise(fmt.Errorf("module %s returns %d tensors, and vprof supports reentrant checkpointing only "+
				"for modules that return one; use --checkpointing non-reentrant", module, len(outs)))
		}
		return outs[0]
	}, nil, inputs...)}
}

// isBorderValue reports whether the region's caller holds a value: an input or a result of the region.
func (r *region) isBorderValue(v int32) bool {
	return slices.Contains(r.freedAfter, v) || slices.Contains(r.inputs, v) || slices.Contains(r.outputs, v)
}

// isFreedInside reports whether the last node that uses a value computed in the region is also in the region.
func (r *region) isFreedInside(p *export.Program, v int32) bool {
	for i := r.begin; i < r.end; i++ {
		if slices.Contains(p.Nodes[i].Dies, v) {
			return true
		}
	}
	return false
}

// blockPattern returns a pattern of the paths of the model's repeated blocks: the longest list of equal modules that
// holds at least a fifth of the parameters; "" if there is none.
func blockPattern(p *export.Program) string {
	class := map[string]string{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for k, m := range n.Stack {
			if k < len(n.Classes) {
				m, _, _ = strings.Cut(m, "@")
				class[m] = n.Classes[k]
			}
		}
	}
	children := map[string][]string{}
	for _, m := range p.Modules {
		if m != "" {
			children[parentPath(m)] = append(children[parentPath(m)], m)
		}
	}
	tied := tiedNames(p)
	total := numelBelow(p, "", tied)
	best, most := "", 0
	for _, m := range p.Modules {
		own := children[m]
		if len(own) > most && isModuleList(own, class) && 5*numelBelow(p, m, tied) > total {
			best, most = m, len(own)
		}
	}
	if best == "" {
		return ""
	}
	return best + ".*"
}

func isModuleList(modules []string, class map[string]string) bool {
	for i, m := range modules {
		if m[strings.LastIndexByte(m, '.')+1:] != fmt.Sprint(i) || class[m] == "" || class[m] != class[modules[0]] {
			return false
		}
	}
	return true
}

// numelBelow returns the number of parameter elements in a module and its children; tied parameters count once.
func numelBelow(p *export.Program, module string, tied map[string]string) int64 {
	var n int64
	counted := map[string]bool{}
	for i := range p.Inputs {
		in := &p.Inputs[i]
		if in.Role != export.Parameter || module != "" && !strings.HasPrefix(in.Name, module+".") {
			continue
		}
		if group, ok := tied[in.Name]; ok {
			if counted[group] {
				continue
			}
			counted[group] = true
		}
		e := int64(1)
		for _, s := range in.Sizes {
			e *= s.Int
		}
		n += e
	}
	return n
}

package train

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// groupsOf returns the wrapped modules with their parameters, the root last. A parameter belongs
// to the innermost module that holds it.
func groupsOf(s *models.Strategy, l ModelLayout) ([]distributed.ModuleGroup, error) {
	groups, err := wrapsOf(s, l)
	if err != nil {
		return nil, err
	}
	if s.EP > 0 {
		same := max(1, s.TP) * max(1, s.CP) // ranks with one batch
		byBatches := s.EPBy == models.TorchExperts && (s.EP > same || s.Replicate > 1)
		for _, m := range slices.Backward(l.Modules) {
			if strings.HasSuffix(m, experts) {
				g := distributed.ModuleGroup{Module: m, ExpertRanks: s.EP / max(1, s.TP), Scaled: byBatches}
				groups = slices.Insert(groups, 0, g)
			}
		}
	}
	within := map[string]int{}
	for i, g := range groups {
		for _, m := range append([]string{g.Module}, g.With...) {
			within[m] = i
		}
	}
	for i := range groups {
		groups[i].Place = slices.Index(l.Modules, groups[i].Module)
	}
	groups = append(groups, distributed.ModuleGroup{})
	for _, p := range l.Params {
		at, m := len(groups)-1, owner(p.Name)
		for ; m != ""; m = owner(m) {
			if i, ok := within[m]; ok {
				at = i
				break
			}
		}
		groups[at].Params = append(groups[at].Params, p)
	}
	if err := untied(s, l, groups); err != nil {
		return nil, err
	}
	after := afterChildren(l.Modules)
	for _, g := range groups {
		slices.SortStableFunc(g.Params, func(a, b distributed.Param) int {
			return cmp.Or(member(g, a.Name)-member(g, b.Name), after[owner(a.Name)]-after[owner(b.Name)])
		})
	}
	return groups, nil
}

// member returns the index of the module in a group's call that has a parameter.
func member(g distributed.ModuleGroup, name string) int {
	for i, m := range g.With {
		if nn.Below(name, m) {
			return i + 1
		}
	}
	return 0
}

// wrapsOf returns the calls of fully_shard except the root's, without their parameters; calls for the deepest modules
// come first. Several modules of one call are gathered together.
func wrapsOf(s *models.Strategy, l ModelLayout) (calls []distributed.ModuleGroup, err error) {
	wraps := s.Wraps()
	switch {
	case s.RootAlone():
		return nil, nil
	case s.WrapsEnds():
		wraps = l.ends()
		fallthrough
	case len(s.Wrap) == 0:
		for _, m := range l.Blocks {
			calls = append(calls, distributed.ModuleGroup{Module: m})
		}
	}
	seen := map[string]bool{}
	for _, w := range wraps {
		found, err := l.matching(w, seen)
		if err != nil {
			return nil, err
		}
		for call := range slices.Chunk(found, cmp.Or(w.Every, len(found))) {
			if err := apart(call); err != nil {
				return nil, err
			}
			g := distributed.ModuleGroup{Module: call[0], With: call[1:], StaysGathered: w.KeepsGathered}
			calls = append(calls, g)
		}
	}
	depth := func(g distributed.ModuleGroup) int { return strings.Count(g.Module, ".") }
	slices.SortStableFunc(calls, func(a, b distributed.ModuleGroup) int { return depth(b) - depth(a) })
	return calls, nil
}

// matching returns the modules that a wrap's patterns match, without modules that another wrap names.
func (l ModelLayout) matching(w models.Wrap, seen map[string]bool) (found []string, err error) {
	for _, pattern := range w.Patterns {
		matching := Matching(pattern, l.Modules)
		if len(matching) == 0 {
			return nil, fmt.Errorf("wrap: no module matches %q; modules are named like %s", pattern,
				l.Modules[len(l.Modules)/2])
		}
		for _, m := range matching {
			if !seen[m] {
				found = append(found, m)
			} else if w.Every != 1 {
				return nil, fmt.Errorf("wrap: two entries wrap %s, one of them with other modules; name it once", m)
			}
			seen[m] = true
		}
	}
	return found, nil
}

// How transformers' models name embeddings and output layers (get_input_embeddings, get_output_embeddings).
var (
	inputNames  = []string{"embed_tokens", "wte", "embed_in", "word_embeddings", "tok_embeddings"}
	outputNames = []string{"lm_head", "embed_out", "output"}
)

// ends returns the wraps of the modules around a model's blocks: its embeddings, and the last norm with the output
// layer, which are not resharded after forward. A layer that shares the embeddings' weights is wrapped with them
// (fsdp2_prepare_model of accelerate). The norm is a child of the base model, which peft's wrappers hide.
func (l ModelLayout) ends() []models.Wrap {
	var embedding, norm, output string
	base := ""
	if len(l.Blocks) > 0 {
		base, _, _ = strings.Cut(l.Blocks[0], ".")
	}
	for _, m := range l.Modules {
		name := m[strings.LastIndexByte(m, '.')+1:]
		switch {
		case embedding == "" && slices.Contains(inputNames, name):
			embedding = m
		case owner(m) == "" && slices.Contains(outputNames, name):
			output = m
		case owner(m) == base && !l.Adapted && (strings.Contains(name, "norm") || strings.HasPrefix(name, "ln_")):
			norm = m
		}
	}
	tail := []string{norm, output}
	var wraps []models.Wrap
	tied := slices.Contains(l.Sharing[embedding+".weight"], output)
	switch {
	case slices.ContainsFunc(l.Params, func(p distributed.Param) bool { return p.TiedTo == embedding+".weight" }):
		tail = []string{norm, embedding} // the root has the output layer's own parameter
	case embedding != "" && output != "" && tied:
		tail = []string{norm, embedding, output}
	case embedding != "":
		wraps = append(wraps, models.Wrap{Patterns: []string{embedding}, Every: 1})
	}
	if tail = slices.DeleteFunc(tail, func(m string) bool { return m == "" }); len(tail) > 0 {
		wraps = append(wraps, models.Wrap{Patterns: tail, KeepsGathered: true})
	}
	return wraps
}

// apart returns an error if a call wraps a module together with one that contains it.
func apart(call []string) error {
	for _, m := range call {
		for _, outer := range call {
			if m != outer && nn.Below(m, outer) {
				return fmt.Errorf("wrap: %s is part of %s, and the two cannot be wrapped together; name one of them", m,
					outer)
			}
		}
	}
	return nil
}

// untied returns an error if a wrap contains a shared weight but not all modules that share it: fully_shard would give
// each its own parameter.
func untied(s *models.Strategy, l ModelLayout, groups []distributed.ModuleGroup) error {
	if len(s.Wrap) == 0 || s.RootAlone() {
		return nil
	}
	for _, g := range groups {
		for _, p := range g.Params {
			for _, m := range l.Sharing[p.Name] {
				if !slices.ContainsFunc(append([]string{g.Module}, g.With...), func(own string) bool {
					return m == own || nn.Below(m, own)
				}) {
					return fmt.Errorf("wrap: %s holds %s, which it shares with %s; fully_shard would make a copy of "+
						"it. Leave the module to the root", g.Module, p.Name, m)
				}
			}
		}
	}
	return nil
}

// owner returns the path of the module that has a parameter.
func owner(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }

// afterChildren numbers modules, given in the order of modules(), so that each module comes after its children:
// fully_shard collects parameters in that order.
func afterChildren(modules []string) map[string]int {
	numbers := map[string]int{}
	var open []string
	leave := func(until func(m string) bool) {
		for len(open) > 0 && !until(open[len(open)-1]) {
			numbers[open[len(open)-1]] = len(numbers)
			open = open[:len(open)-1]
		}
	}
	for _, m := range modules {
		leave(func(outer string) bool { return nn.Below(m, outer) })
		open = append(open, m)
	}
	leave(func(string) bool { return false })
	return numbers
}

// Matching returns the modules whose paths match a glob pattern, except the root. A star matches one name of a path.
func Matching(pattern string, modules []string) []string {
	slashed := func(m string) string { return strings.ReplaceAll(m, ".", "/") }
	return lists.Filter(modules, func(m string) bool {
		ok, err := path.Match(slashed(pattern), slashed(m))
		return ok && err == nil && m != ""
	})
}

// Parts implements [models.Wrappable].
func (t *taskTrainer) Parts() []models.Part {
	below, names := map[string]int64{}, t.net.Names()
	for i, p := range t.net.Parameters {
		for m := owner(names[i]); m != ""; m = owner(m) {
			below[m] += p.Numel()
		}
		below[""] += p.Numel()
	}
	modules, blocks := t.net.Modules(), t.blocks()
	return lists.Map(modules, func(m string) models.Part {
		return models.Part{Path: m, Parameters: below[m], Block: slices.Contains(blocks, m)}
	})
}

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

// shardGroups returns the wrapped modules with their parameters, the root last. A parameter belongs to the innermost
// wrapped module.
func shardGroups(s *models.Strategy, l ModelLayout) ([]distributed.ModuleGroup, error) {
	groups, err := fullyShardCalls(s, l)
	if err != nil {
		return nil, err
	}
	if s.EP > 0 {
		same := max(1, s.TP) * max(1, s.CP) // number of ranks with the same batch
		byBatches := s.EPStyle == models.TorchExperts && (s.EP > same || s.Replicate > 1)
		for _, m := range slices.Backward(l.Modules) {
			if strings.HasSuffix(m, expertsSuffix) {
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
		at, m := len(groups)-1, modulePathOf(p.Name)
		for ; m != ""; m = modulePathOf(m) {
			if i, ok := within[m]; ok {
				at = i
				break
			}
		}
		groups[at].Params = append(groups[at].Params, p)
	}
	if err := checkTiedTogether(s, l, groups); err != nil {
		return nil, err
	}
	after := postOrder(l.Modules)
	for _, g := range groups {
		slices.SortStableFunc(g.Params, func(a, b distributed.Param) int {
			return cmp.Or(memberIndex(g, a.Name)-memberIndex(g, b.Name),
				after[modulePathOf(a.Name)]-after[modulePathOf(b.Name)])
		})
	}
	return groups, nil
}

// memberIndex returns the index of the group's module that has a parameter.
func memberIndex(g distributed.ModuleGroup, name string) int {
	for i, m := range g.With {
		if nn.IsBelow(name, m) {
			return i + 1
		}
	}
	return 0
}

// fullyShardCalls returns the calls of fully_shard without the root's and without parameters; deeper modules come
// first. Modules of one call are gathered together.
func fullyShardCalls(s *models.Strategy, l ModelLayout) (calls []distributed.ModuleGroup, err error) {
	wraps := s.Wraps()
	switch {
	case s.WrapsRootOnly():
		return nil, nil
	case s.WrapsEnds():
		wraps = l.endWraps()
		fallthrough
	case len(s.Wrap) == 0:
		for _, m := range l.Blocks {
			calls = append(calls, distributed.ModuleGroup{Module: m})
		}
	}
	seen := map[string]bool{}
	for _, w := range wraps {
		found, err := l.matchingModules(w, seen)
		if err != nil {
			return nil, err
		}
		for call := range slices.Chunk(found, cmp.Or(w.Every, len(found))) {
			if err := checkNotNested(call); err != nil {
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

// matchingModules returns the modules that match a wrap's patterns and no earlier wrap's.
func (l ModelLayout) matchingModules(w models.Wrap, seen map[string]bool) (found []string, err error) {
	for _, pattern := range w.Patterns {
		matching := MatchingModules(pattern, l.Modules)
		if len(matching) == 0 {
			return nil, fmt.Errorf("wrap: the model has no module named %q; its modules have names like %s", pattern,
				l.Modules[len(l.Modules)/2])
		}
		for _, m := range matching {
			if !seen[m] {
				found = append(found, m)
			} else if w.Every != 1 {
				return nil, fmt.Errorf("wrap: two entries wrap %s, one of them together with other modules; name it "+
					"once", m)
			}
			seen[m] = true
		}
	}
	return found, nil
}

// The names of embeddings and output layers in models of transformers (get_input_embeddings, get_output_embeddings).
var (
	inputNames  = []string{"embed_tokens", "wte", "embed_in", "word_embeddings", "tok_embeddings"}
	outputNames = []string{"lm_head", "embed_out", "output"}
)

// endWraps returns the wraps around the blocks: the embedding, and the last norm with the output layer, which are not
// resharded after forward. A layer tied to the embedding is wrapped with it (fsdp2_prepare_model of accelerate). The
// norm is a child of the base model, which peft's wrappers hide.
func (l ModelLayout) endWraps() []models.Wrap {
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
		case modulePathOf(m) == "" && slices.Contains(outputNames, name):
			output = m
		case modulePathOf(m) == base && !l.Adapted &&
			(strings.Contains(name, "norm") || strings.HasPrefix(name, "ln_")):
			norm = m
		}
	}
	tail := []string{norm, output}
	var wraps []models.Wrap
	tied := slices.Contains(l.Sharing[embedding+".weight"], output)
	switch {
	case slices.ContainsFunc(l.Params, func(p distributed.Param) bool { return p.TiedTo == embedding+".weight" }):
		tail = []string{norm, embedding} // the output layer's own parameter belongs to the root
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

// checkNotNested returns an error if a call wraps a module together with one of its children.
func checkNotNested(call []string) error {
	for _, m := range call {
		for _, outer := range call {
			if m != outer && nn.IsBelow(m, outer) {
				return fmt.Errorf("wrap: %s is a part of %s, so the two cannot be wrapped together; name one of them",
					m, outer)
			}
		}
	}
	return nil
}

// checkTiedTogether returns an error if a wrap contains a tied weight but not all modules that share it: fully_shard
// would give each its own parameter.
func checkTiedTogether(s *models.Strategy, l ModelLayout, groups []distributed.ModuleGroup) error {
	if len(s.Wrap) == 0 || s.WrapsRootOnly() {
		return nil
	}
	for _, g := range groups {
		for _, p := range g.Params {
			for _, m := range l.Sharing[p.Name] {
				if !slices.ContainsFunc(append([]string{g.Module}, g.With...), func(own string) bool {
					return m == own || nn.IsBelow(m, own)
				}) {
					return fmt.Errorf("wrap: %s holds %s, which it shares with %s, and fully_shard would make a copy "+
						"of it; leave the module out of wrap", g.Module, p.Name, m)
				}
			}
		}
	}
	return nil
}

func modulePathOf(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }

// postOrder maps modules, given in the order of modules(), to numbers such that each module comes after its
// children. fully_shard collects parameters in that order.
func postOrder(modules []string) map[string]int {
	numbers := map[string]int{}
	var open []string
	leave := func(until func(m string) bool) {
		for len(open) > 0 && !until(open[len(open)-1]) {
			numbers[open[len(open)-1]] = len(numbers)
			open = open[:len(open)-1]
		}
	}
	for _, m := range modules {
		leave(func(outer string) bool { return nn.IsBelow(m, outer) })
		open = append(open, m)
	}
	leave(func(string) bool { return false })
	return numbers
}

// MatchingModules returns the modules whose paths match a glob pattern, without the root. A star matches one part of a
// path.
func MatchingModules(pattern string, modules []string) []string {
	slashed := func(m string) string { return strings.ReplaceAll(m, ".", "/") }
	return lists.Filter(modules, func(m string) bool {
		ok, err := path.Match(slashed(pattern), slashed(m))
		return ok && err == nil && m != ""
	})
}

func (t *taskTrainer) WrappableModules() []models.WrappableModule {
	below, names := map[string]int64{}, t.net.Names()
	for i, p := range t.net.Parameters {
		for m := modulePathOf(names[i]); m != ""; m = modulePathOf(m) {
			below[m] += p.Numel()
		}
		below[""] += p.Numel()
	}
	modules, blocks := t.net.Modules(), t.wrappedBlocks()
	return lists.Map(modules, func(m string) models.WrappableModule {
		return models.WrappableModule{Path: m, Parameters: below[m], Block: slices.Contains(blocks, m)}
	})
}

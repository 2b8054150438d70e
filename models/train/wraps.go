package train

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// groupsOf are the wrapped modules with their parameters, the root last. A parameter is
// of the innermost module that holds it.
func groupsOf(s *models.Strategy, l Layout) ([]distributed.Group, error) {
	calls, err := wrapsOf(s, l)
	if err != nil {
		return nil, err
	}
	if s.EP > 0 {
		for _, m := range slices.Backward(l.Modules) {
			if strings.HasSuffix(m, experts) {
				calls = slices.Insert(calls, 0, []string{m})
			}
		}
	}
	groups := make([]distributed.Group, len(calls)+1)
	within := map[string]int{}
	for i, call := range calls {
		groups[i].Module, groups[i].With = call[0], call[1:]
		for _, m := range call {
			within[m] = i
		}
		if s.EP > 0 && strings.HasSuffix(call[0], experts) {
			groups[i].Among = s.EP
		}
	}
	for _, p := range l.Params {
		at, m := len(calls), owner(p.Name)
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

// member is the number of the module of a group's call that has a parameter.
func member(g distributed.Group, name string) int {
	for i, m := range g.With {
		if nn.Below(name, m) {
			return i + 1
		}
	}
	return 0
}

// wrapsOf are the modules that fully_shard is called with, call by call, those deepest in the
// model first. Several modules of one call are gathered together.
func wrapsOf(s *models.Strategy, l Layout) ([][]string, error) {
	var calls [][]string
	if s.RootAlone() {
		return nil, nil
	}
	if len(s.Wrap) == 0 {
		for _, m := range l.Blocks {
			calls = append(calls, []string{m})
		}
		return calls, nil
	}
	seen := map[string]bool{}
	for _, w := range s.Wraps() {
		var found []string
		for _, pattern := range w.Patterns {
			matching := Matching(pattern, l.Modules)
			if len(matching) == 0 {
				return nil, fmt.Errorf("wrap: %q names no module; modules are named like %s", pattern,
					l.Modules[len(l.Modules)/2])
			}
			for _, m := range matching {
				if !seen[m] {
					found = append(found, m)
				} else if w.Each != 1 {
					return nil, fmt.Errorf("wrap: %s is wrapped twice, and once together with others; name it once", m)
				}
				seen[m] = true
			}
		}
		each := w.Each
		if each == 0 {
			each = len(found)
		}
		for call := range slices.Chunk(found, each) {
			if err := apart(call); err != nil {
				return nil, err
			}
			calls = append(calls, call)
		}
	}
	depth := func(call []string) int { return strings.Count(call[0], ".") }
	slices.SortStableFunc(calls, func(a, b []string) int { return depth(b) - depth(a) })
	return calls, nil
}

// apart refuses a call with a module that lies in another of it.
func apart(call []string) error {
	for _, m := range call {
		for _, outer := range call {
			if m != outer && nn.Below(m, outer) {
				return fmt.Errorf("wrap: %s lies in %s, and the two cannot be wrapped together; name one of them", m,
					outer)
			}
		}
	}
	return nil
}

// untied refuses wraps that hold a weight and not all modules that share it: fully_shard
// makes a parameter of its own of it for each.
func untied(s *models.Strategy, l Layout, groups []distributed.Group) error {
	if len(s.Wrap) == 0 || s.RootAlone() {
		return nil
	}
	for _, g := range groups {
		for _, p := range g.Params {
			for _, m := range l.Sharing[p.Name] {
				if !slices.ContainsFunc(append([]string{g.Module}, g.With...), func(own string) bool {
					return m == own || nn.Below(m, own)
				}) {
					return fmt.Errorf("wrap: %s holds %s, which %s shares and fully_shard would then give a copy of "+
						"its own; leave it to the root", g.Module, p.Name, m)
				}
			}
		}
	}
	return nil
}

// owner is the path of the module that has a parameter.
func owner(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }

// afterChildren numbers modules, given in the order of modules(), so that each comes
// after those in it: fully_shard collects parameters in that order.
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

// Matching are the modules whose paths a glob pattern matches, but for the root. A star
// stands for one name of a path.
func Matching(pattern string, modules []string) []string {
	slashed := func(m string) string { return strings.ReplaceAll(m, ".", "/") }
	var out []string
	for _, m := range modules {
		if ok, err := path.Match(slashed(pattern), slashed(m)); ok && err == nil && m != "" {
			out = append(out, m)
		}
	}
	return out
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
	out := make([]models.Part, len(modules))
	for i, m := range modules {
		out[i] = models.Part{Path: m, Parameters: below[m], Block: slices.Contains(blocks, m)}
	}
	return out
}

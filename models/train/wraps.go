package train

import (
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
	modules := l.Blocks
	switch {
	case s.RootAlone():
		modules = nil
	case len(s.Wrap) > 0:
		modules = nil
		for _, pattern := range s.Wrap {
			found := Matching(pattern, l.Modules)
			if len(found) == 0 {
				return nil, fmt.Errorf("wrap: %q names no module; modules are named like %s", pattern, l.Modules[len(l.Modules)/2])
			}
			modules = append(modules, found...)
		}
		depth := func(m string) int { return strings.Count(m, ".") }
		slices.SortStableFunc(modules, func(a, b string) int { return depth(b) - depth(a) })
		modules = slices.Compact(modules)
	}
	if s.EP > 0 {
		modules = append(slices.DeleteFunc(slices.Clone(l.Modules), func(m string) bool { return !strings.HasSuffix(m, experts) }), modules...)
	}
	groups := make([]distributed.Group, len(modules)+1)
	for i, m := range modules {
		groups[i].Module = m
		if s.EP > 0 && strings.HasSuffix(m, experts) {
			groups[i].Among = s.EP
		}
	}
	for _, p := range l.Params {
		at := len(modules)
		for i, m := range modules {
			if nn.Below(p.Name, m) && (at == len(modules) || len(m) > len(modules[at])) {
				at = i
			}
		}
		groups[at].Params = append(groups[at].Params, p)
	}
	if err := untied(s, l, groups); err != nil {
		return nil, err
	}
	after := afterChildren(l.Modules)
	for _, g := range groups {
		slices.SortStableFunc(g.Params, func(a, b distributed.Param) int { return after[owner(a.Name)] - after[owner(b.Name)] })
	}
	return groups, nil
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
				if m != g.Module && !nn.Below(m, g.Module) {
					return fmt.Errorf("wrap: %s holds %s, which %s shares and fully_shard would then give a copy of its own; leave it to the root", g.Module, p.Name, m)
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

// PartsOf are modules with what the parameters in them have, by their names.
func PartsOf(modules, blocks []string, numel map[string]int64) []models.Part {
	below := map[string]int64{}
	for name, n := range numel {
		for m := owner(name); m != ""; m = owner(m) {
			below[m] += n
		}
		below[""] += n
	}
	out := make([]models.Part, len(modules))
	for i, m := range modules {
		out[i] = models.Part{Path: m, Parameters: below[m], Block: slices.Contains(blocks, m)}
	}
	return out
}

// Parts implements [models.Wrappable].
func (t *taskTrainer) Parts() []models.Part {
	numel, names := map[string]int64{}, t.net.Names()
	for i, p := range t.net.Parameters {
		numel[names[i]] = p.Numel()
	}
	return PartsOf(t.net.Modules(), t.net.Blocks(), numel)
}

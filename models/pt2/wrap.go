package pt2

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/trace"
)

// wrapped is a call of a module that a strategy has wrapped.
type wrapped struct {
	region
	wrapper trace.Wrapper
	// casts are arguments in the wrapper's type while the call runs.
	casts []castArgument
}

// castArgument is the tensor of a value, and its cast copy that the module gets.
type castArgument struct {
	value    int32
	own, got *trace.Tensor
}

// Wrap implements [train.Graph]. Layers that memory-saving options have added are called as modules.
func (t *task) Wrap(tape *trace.Tape, net *nn.Tree, r *train.Ranks) error {
	t.ranks = r
	for _, m := range slices.Sorted(maps.Keys(r.Wrappers)) {
		found := calls(t.g.Program, m)
		for _, call := range found {
			t.wraps = append(t.wraps, &wrapped{region: call, wrapper: r.Wrappers[m]})
		}
		if p := net.Path(m); p != nil && len(found) == 0 {
			tape.Wrap(p, r.Wrappers[m])
		}
	}
	slices.SortStableFunc(t.wraps, func(a, b *wrapped) int {
		return cmp.Or(a.begin-b.begin, b.end-a.end) // the outer one first
	})
	if t.head != nil {
		if err := t.head.wrapped(t.wraps); err != nil {
			return &models.CaseError{Model: t.c.Model, Field: t.head.setting, Reason: err.Error()}
		}
	}
	return nil
}

// Sharing implements [train.Graph].
func (t *task) Sharing() map[string][]string {
	names := map[int32]string{}
	for v, w := range t.of {
		if w.Parameter != nil {
			names[v] = w.name
		}
	}
	out := map[string][]string{}
	for i := range t.g.Nodes {
		n := &t.g.Nodes[i]
		for _, a := range n.Inputs {
			name, ok := names[a.Ref]
			if ok && a.Kind == export.Ref && !strings.HasPrefix(name, n.Module+".") &&
				!slices.Contains(out[name], n.Module) {
				out[name] = append(out[name], n.Module)
			}
		}
	}
	return out
}

// calls finds the calls of a module; the root's only call is the whole program.
func calls(p *export.Program, module string) []region {
	var out []region
	last := false
	for i := range p.Nodes {
		m := p.Nodes[i].Module
		inside := m == module || nn.Below(m, module)
		switch {
		case inside && last:
			out[len(out)-1].end = i + 1
		case inside:
			out = append(out, region{begin: i, end: i + 1})
		}
		last = inside
	}
	for i := range out {
		out[i].findBorders(p)
	}
	return out
}

// enter runs the actions before the calls that begin with node i.
func (w *nodeRunner) enter(i int) {
	for len(w.wraps) > 0 && w.wraps[0].begin == i {
		c := w.wraps[0]
		w.wraps = w.wraps[1:]
		w.open = append(w.open, c)
		w.frame.Tape().RunHook(func() { c.wrapper.Enter(w.tensors(c.inputs)) })
		d, cast := c.wrapper.Inputs()
		c.casts = c.casts[:0]
		for _, v := range c.inputs {
			x := w.tensor(v)
			if !cast || x == nil || !x.DType().IsFloat() || x.DType() == d {
				continue
			}
			got := w.frame.Bind(x.To(d))
			c.casts = append(c.casts, castArgument{v, x, got})
			w.values[v] = got
		}
	}
}

// leave runs the actions after the calls that end with node i.
func (w *nodeRunner) leave(i int) {
	for len(w.open) > 0 && w.open[len(w.open)-1].end <= i+1 {
		c := w.open[len(w.open)-1]
		w.open = w.open[:len(w.open)-1]
		if c.end == len(w.g.Nodes) && c.begin == 0 {
			continue // the root's are known when its names are gone
		}
		w.frame.Tape().RunHook(func() { c.wrapper.Leave(w.tensors(c.outputs)) })
		w.restoreArguments(c)
	}
}

// restoreArguments restores the arguments of a call that were cast for its module.
func (w *nodeRunner) restoreArguments(c *wrapped) {
	for _, a := range c.casts {
		if w.values[a.value] == any(a.got) {
			w.frame.Del(&a.got)
			w.values[a.value] = a.own
		} else if slices.Contains(c.after, a.value) {
			w.frame.Del(&a.own)
		}
	}
}

// tensors returns those among values.
func (w *nodeRunner) tensors(values []int32) []*trace.Tensor { return lists.NonZero(values, w.tensor) }

// wrappersWithin returns the wrapped calls inside a region, except the region itself.
func wrappersWithin(wraps []*wrapped, r *region) []*wrapped {
	return lists.Filter(wraps, func(c *wrapped) bool {
		return c.begin >= r.begin && c.end <= r.end && (c.begin != r.begin || c.end != r.end)
	})
}

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

// wrappedCall is a call of a module that a strategy wraps.
type wrappedCall struct {
	region
	wrapper trace.Wrapper
	// casts are arguments that are cast to the wrapper's data type during the call.
	casts []castArgument
}

// castArgument is a value's tensor (own) and the cast copy that the module receives (got).
type castArgument struct {
	value    int32
	own, got *trace.Tensor
}

// Wrap implements [train.Graph]. Layers that memory-saving options have added are called as modules.
func (t *task) Wrap(tape *trace.Tape, net *nn.Tree, r *train.Ranks) error {
	t.ranks = r
	for _, m := range slices.Sorted(maps.Keys(r.Wrappers)) {
		found := moduleCalls(t.g.Program, m)
		for _, call := range found {
			t.wraps = append(t.wraps, &wrappedCall{region: call, wrapper: r.Wrappers[m]})
		}
		if p := net.PathOf(m); p != nil && len(found) == 0 {
			tape.Wrap(p, r.Wrappers[m])
		}
	}
	slices.SortStableFunc(t.wraps, func(a, b *wrappedCall) int {
		return cmp.Or(a.begin-b.begin, b.end-a.end) // outer calls first
	})
	if t.head != nil {
		if err := t.head.checkWraps(t.wraps); err != nil {
			return &models.CaseError{Model: t.c.Model, Field: t.head.setting, Reason: err.Error()}
		}
	}
	return nil
}

func (t *task) Sharing() map[string][]string {
	names := map[int32]string{}
	for v, w := range t.weightOf {
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

// moduleCalls returns the calls of a module. The root's only call is the whole program.
func moduleCalls(p *export.Program, module string) []region {
	var out []region
	last := false
	for i := range p.Nodes {
		m := p.Nodes[i].Module
		inside := m == module || nn.IsBelow(m, module)
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

func (w *nodeRunner) beginCalls(i int) {
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

func (w *nodeRunner) endCalls(i int) {
	for len(w.open) > 0 && w.open[len(w.open)-1].end <= i+1 {
		c := w.open[len(w.open)-1]
		w.open = w.open[:len(w.open)-1]
		if c.end == len(w.g.Nodes) && c.begin == 0 {
			continue // the root's call ends after the frame
		}
		w.frame.Tape().RunHook(func() { c.wrapper.Leave(w.tensors(c.outputs)) })
		w.undoArgumentCasts(c)
	}
}

func (w *nodeRunner) undoArgumentCasts(c *wrappedCall) {
	for _, a := range c.casts {
		if w.values[a.value] == any(a.got) {
			w.frame.Del(&a.got)
			w.values[a.value] = a.own
		} else if slices.Contains(c.freedAfter, a.value) {
			w.frame.Del(&a.own)
		}
	}
}

// tensors returns the tensors of the given values; values that are not tensors are left out.
func (w *nodeRunner) tensors(values []int32) []*trace.Tensor { return lists.NonZero(values, w.tensor) }

func wrappersWithin(wraps []*wrappedCall, r *region) []*wrappedCall {
	return lists.Filter(wraps, func(c *wrappedCall) bool {
		return c.begin >= r.begin && c.end <= r.end && (c.begin != r.begin || c.end != r.end)
	})
}

package pt2

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/trace"
)

// kept is a value that a module still refers to after forward (self.attention = a), and the number of the
// node of the next forward behind which another takes its place.
type kept struct {
	value, until int32
	of           *trace.Tensor
}

// keptOf are the values of a graph that modules keep.
func keptOf(p *export.Program) (out []kept) {
	if p.Extra == nil {
		return nil
	}
	for _, r := range p.Extra.Replaced {
		for _, name := range r.Values {
			name = name[strings.IndexByte(name, '/')+1:]
			if v := slices.Index(p.Names, name); v >= 0 {
				out = append(out, kept{value: int32(v), until: r.Node})
			}
		}
	}
	return out
}

// keep holds what modules keep of a forward.
func (w *walker) keep() {
	if !w.Training() {
		return
	}
	for _, k := range w.g.kept {
		if x, ok := w.values[k.value].(*trace.Tensor); ok && x != nil {
			w.kept = append(w.kept, kept{k.value, k.until, w.frame.Tape().Hold(x)})
		}
	}
}

// replace lets go of what was kept of the forward before and is replaced behind a node.
func (w *walker) replace(node int32) {
	w.kept = slices.DeleteFunc(w.kept, func(k kept) bool {
		if k.until == node {
			w.frame.Tape().Release(k.of)
		}
		return k.until == node
	})
}

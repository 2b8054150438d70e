package pt2

import (
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// assignData has the copies that stand for p.data = x in a graph do that: the
// parameter takes the memory of x, and its own goes.
func (g *graph) assignData() {
	if g.Extra == nil {
		return
	}
	assigned := map[int32]bool{}
	for _, n := range g.Extra.Assigned {
		assigned[n] = true
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		to, from := inputOf(n, "self"), inputOf(n, "src")
		if n.Block != export.Call || !assigned[n.Number] || to < 0 || from < 0 {
			continue
		}
		g.calls[i].instead = func(w *walker) []aten.Value {
			x, y := w.values[to].(*trace.Tensor), w.values[from].(*trace.Tensor)
			x.SetData(y)
			return []aten.Value{x}
		}
	}
}

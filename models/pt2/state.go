package pt2

import (
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// keptState is a value that a module refers to after forward (self.attention = a), and the node of the next forward
// after which another value replaces it.
type keptState struct {
	value, until int32
	// input is the index of the input by which the next forward gets it (self.memory = f(self.memory)), -1 if it does
	// not; half reports whether this is in half precision under autocast from the first forward on. first is the node
	// that first uses it. detached reports whether only its memory is kept, without its graph.
	input, first int
	half         bool
	detached     bool
	of           *trace.Tensor
}

// findKeptState returns the values of a graph that modules keep for the next forward. next is the graph of that
// forward, the same one except after the first. Values of the first forward that are inputs of later graphs have no
// value there: -1.
func findKeptState(p, next *export.Program) (out []keptState) {
	if p.Extra == nil {
		return nil
	}
	byName := madeByName(p)
	find := func(name string) (v int32, known bool) { // 57/add is add in the graph of node 57
		v, known = byName[name[strings.IndexByte(name, '/')+1:]]
		return v, known
	}
	state := map[int32]keptState{}
	for _, s := range p.Extra.State {
		if v, known := find(s.Value); known && inputNamed(next, s.Input) >= 0 {
			state[v] = keptState{value: v, until: neverUsed, input: inputNamed(next, s.Input), half: s.Half}
		}
	}
	for _, r := range p.Extra.Replaced {
		for _, name := range r.Values {
			v, known := find(name)
			if !known {
				continue
			}
			k, taken := state[v]
			if !taken {
				k.input = -1
			}
			delete(state, v)
			k.value, k.until, k.detached = v, max(r.Node, 0), r.Detached
			out = append(out, k)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(state)) {
		out = append(out, state[v])
	}
	for _, i := range madeFirst(p) {
		if p == next && !slices.ContainsFunc(out, func(k keptState) bool { return k.input == i }) {
			out = append(out, keptState{value: -1, until: neverUsed, input: i})
		}
	}
	return out
}

// madeFirst returns the inputs that only the first forward creates.
func madeFirst(p *export.Program) (inputs []int) {
	for _, first := range p.First {
		if first.Extra == nil {
			continue
		}
		for _, s := range first.Extra.State {
			i := inputNamed(p, s.Input)
			if i >= 0 && p.Inputs[i].Role == export.Constant && !slices.Contains(inputs, i) {
				inputs = append(inputs, i)
			}
		}
	}
	return inputs
}

// neverUsed is the node behind which nothing is replaced.
const neverUsed = -1

// inputNamed returns the index of the graph's input with a name, -1 if there is none.
func inputNamed(p *export.Program, name string) int {
	return slices.IndexFunc(p.Inputs, func(in export.Input) bool { return named(p, in, name) })
}

// madeByName returns the results of nodes by name. Inputs and aliases with the same names are not included.
func madeByName(p *export.Program) map[string]int32 {
	out := map[string]int32{}
	for i := range p.Nodes {
		eachOutput(&p.Nodes[i], func(v int32) {
			if int(v) < len(p.Names) {
				out[p.Names[v]] = v
			}
		})
	}
	return out
}

func named(p *export.Program, in export.Input, name string) bool {
	return in.Value >= 0 && p.Names[in.Value] == name
}

// findState finds the values that a graph's modules keep for the next forward. It removes the copies that torch.export
// adds at the end of the graph for buffers that forward replaces: in PyTorch the module refers to the new tensor.
func (g *graph) findState(next *export.Program) {
	g.kept = findKeptState(g.Program, next)
	for k := range g.kept {
		kept := &g.kept[k]
		if kept.input < 0 {
			continue
		}
		name := next.Inputs[kept.input].Name
		i := slices.IndexFunc(g.Inputs, func(in export.Input) bool { return in.Name == name })
		if i < 0 {
			continue
		}
		input := g.Inputs[i].Value
		for i := range slices.Backward(g.Nodes) {
			n := &g.Nodes[i]
			if n.Target == copyInPlace && inputOf(n, "self") == input && inputOf(n, "src") == kept.value {
				g.calls[i].skip = true
				continue
			}
			eachInput(n, func(v int32) {
				if v == input {
					kept.first = i
				}
			})
		}
	}
}

const copyInPlace = "torch.ops.aten.copy_.default"

// madeByForward returns the inputs of the graph that no module holds before the model has run: tensors with a batch
// dimension that each forward stores for the next one, and tensors that only the first forward creates.
func madeByForward(p *export.Program) map[int32]bool {
	out := map[int32]bool{}
	for _, k := range findKeptState(p, p) {
		if k.input < 0 {
			continue
		}
		in := p.Inputs[k.input]
		out[in.Value] = k.value < 0 || p.Extra.Batch != nil &&
			slices.ContainsFunc(p.Extra.Batch.Inputs, func(a export.AffineInput) bool { return named(p, in, a.Name) })
	}
	return out
}

// takeState sets the values that modules keep from the previous forward, and the initial values of buffers.
func (w *nodeRunner) takeState() {
	w.keeping = slices.Clone(w.g.kept)
	if w.then != nil {
		return
	}
	for _, k := range w.g.kept {
		if k.input < 0 {
			continue
		}
		in, now := &w.g.Inputs[k.input], w.keptFor(k.input)
		switch x := w.tensor(in.Value); {
		case x != nil && now < 0:
			k.of = x
			w.kept = append(w.kept, k)
		case x == nil && now >= 0 && slices.Equal(w.kept[now].of.Shape(), shapeOf(in)):
			w.values[in.Value] = w.kept[now].of
		}
	}
}

// makeState allocates the state that a node reads and no module holds yet, in the first forward and after a change of
// the batch size.
func (w *nodeRunner) makeState(node int) {
	for _, k := range w.g.kept {
		if w.then != nil || k.input < 0 || k.first != node || w.values[w.g.Inputs[k.input].Value] != nil {
			continue
		}
		in := &w.g.Inputs[k.input]
		d := dtypes[in.Type]
		if k.half && w.g.autocast != 0 {
			d = w.g.autocast
		}
		k.of = w.frame.Tape().New("zeros", program.Buffers, d, shapeOf(in)...)
		w.values[in.Value] = k.of
		if w.keptFor(k.input) >= 0 {
			w.frame.Bind(k.of)
		} else {
			w.kept = append(w.kept, k)
			w.frame.Tape().Hold(k.of)
		}
	}
}

// keptFor returns the index of the state that is kept for an input; -1 if there is none.
func (w *nodeRunner) keptFor(input int) int {
	return slices.IndexFunc(w.kept, func(k keptState) bool { return k.input == input })
}

func shapeOf(in *export.Input) []int64 {
	shape := lists.Map(in.Sizes, func(s export.Size) int64 { return s.Int })
	return shape
}

// holdValue keeps a value for modules: x.detach() before x is freed, or x with its graph.
func (w *nodeRunner) holdValue(v int32) {
	if len(w.keeping) == 0 || v < 0 || !w.Training() || w.tensor(v) == nil {
		return
	}
	x := w.tensor(v)
	for i := range w.keeping {
		k := &w.keeping[i]
		switch {
		case k.value != v || k.of != nil:
		case k.detached || k.input >= 0: // no backward continues into the forward before
			k.of = w.frame.Tape().Hold(x.Detach())
		default:
			k.of = w.frame.Tape().Hold(x)
		}
	}
}

// keepState holds the values that modules keep after a forward.
func (w *nodeRunner) keepState() {
	for i := range w.keeping {
		k := &w.keeping[i]
		w.holdValue(k.value)
		if k.of == nil {
			continue
		}
		w.kept = append(w.kept, *k)
		if k.input < 0 || w.then != nil {
			continue
		}
		if b := w.of[w.g.Inputs[k.input].Value]; b != nil && b.Buffer != nil {
			b.Buffer.Tensor = k.of
		}
	}
}

// begin runs the first forward pass if it differs from later ones, which use the state that it leaves.
func (t *task) begin(b *task, f *trace.Frame, results *[]*trace.Tensor, loss **trace.Tensor) *trace.Tensor {
	b.inputGrads, b.kept, b.inputs = t.inputGrads, nil, make([]*trace.Tensor, len(b.g.Inputs))
	for i, in := range b.g.Inputs {
		if k := slices.IndexFunc(t.g.Inputs, func(own export.Input) bool {
			return own.Role == export.UserInput && own.Name == in.Name
		}); k >= 0 && in.Role == export.UserInput {
			b.inputs[i] = t.inputs[k]
		}
	}
	out := b.Compute(f, results, loss)
	for _, k := range b.kept {
		if k.input >= 0 {
			if w := t.of[t.g.Inputs[k.input].Value]; w != nil && w.Buffer != nil {
				f.Tape().Release(w.Buffer.Tensor)
				w.Buffer.Tensor = k.of
			}
		}
	}
	t.kept = append(t.kept, b.kept...)
	return out
}

// replace releases state of the previous forward that is replaced after a node.
func (w *nodeRunner) replace(node int32) {
	w.kept = slices.DeleteFunc(w.kept, func(k keptState) bool {
		gone := k.until == node && (k.input < 0 || w.Training())
		if gone {
			w.frame.Tape().Release(k.of)
		}
		return gone
	})
}

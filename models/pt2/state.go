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

// keptState is a value that a module keeps after forward (self.attention = a). until is the node of the next forward
// after which another value replaces it.
type keptState struct {
	value, until int32
	// input is the index of the input through which the next forward reads the value (self.memory = f(self.memory));
	// -1 if it does not. first is the first node that uses it. half reports whether it is in half precision under
	// autocast. detached reports whether the module keeps it without its autograd graph.
	input, first int
	half         bool
	detached     bool
	of           *trace.Tensor
}

// findKeptStates returns the values that the modules of a graph keep for next, the graph of the following forward
// pass. A value of the first forward that is an input of later graphs has no value in them: -1.
func findKeptStates(p, next *export.Program) (out []keptState) {
	if p.Extra == nil {
		return nil
	}
	byName := resultsByName(p)
	find := func(name string) (v int32, known bool) { // 57/add is the value add in the graph of node 57
		v, known = byName[name[strings.IndexByte(name, '/')+1:]]
		return v, known
	}
	state := map[int32]keptState{}
	for _, s := range p.Extra.State {
		if v, known := find(s.Value); known && inputNamed(next, s.Input) >= 0 {
			state[v] = keptState{value: v, until: neverReplaced, input: inputNamed(next, s.Input), half: s.Half}
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
	for _, i := range firstForwardInputs(p) {
		if p == next && !slices.ContainsFunc(out, func(k keptState) bool { return k.input == i }) {
			out = append(out, keptState{value: -1, until: neverReplaced, input: i})
		}
	}
	return out
}

func firstForwardInputs(p *export.Program) (inputs []int) {
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

// neverReplaced means that no node replaces the value.
const neverReplaced = -1

func inputNamed(p *export.Program, name string) int {
	return slices.IndexFunc(p.Inputs, func(in export.Input) bool { return hasName(p, in, name) })
}

// resultsByName returns the results of nodes by name, without aliases of inputs of the same name.
func resultsByName(p *export.Program) map[string]int32 {
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

func hasName(p *export.Program, in export.Input, name string) bool {
	return in.Value >= 0 && p.Names[in.Value] == name
}

// findStates sets the values that modules keep for the next forward. It removes the copies that torch.export appends
// for buffers that forward replaces: in PyTorch the module refers to the new tensor.
func (g *graph) findStates(next *export.Program) {
	g.kept = findKeptStates(g.Program, next)
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
			if n.Target == copyTarget && inputOf(n, "self") == input && inputOf(n, "src") == kept.value {
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

const copyTarget = "torch.ops.aten.copy_.default"

// forwardMadeInputs returns the inputs that no module holds before the first forward: tensors with a batch dimension
// that each forward stores for the next one, and tensors that only the first forward creates.
func forwardMadeInputs(p *export.Program) map[int32]bool {
	out := map[int32]bool{}
	for _, k := range findKeptStates(p, p) {
		if k.input < 0 {
			continue
		}
		in := p.Inputs[k.input]
		out[in.Value] = k.value < 0 || p.Extra.Batch != nil &&
			slices.ContainsFunc(p.Extra.Batch.Inputs, func(a export.AffineInput) bool { return hasName(p, in, a.Name) })
	}
	return out
}

// setKeptStates sets the values kept from the previous forward, and the initial values of buffers.
func (w *nodeRunner) setKeptStates() {
	w.keeping = slices.Clone(w.g.kept)
	if w.laterTask != nil {
		return
	}
	for _, k := range w.g.kept {
		if k.input < 0 {
			continue
		}
		in, now := &w.g.Inputs[k.input], w.keptStateIndex(k.input)
		switch x := w.tensor(in.Value); {
		case x != nil && now < 0:
			k.of = x
			w.kept = append(w.kept, k)
		case x == nil && now >= 0 && slices.Equal(w.kept[now].of.Shape(), shapeOf(in)):
			w.values[in.Value] = w.kept[now].of
		}
	}
}

// allocateState allocates the state that a node reads and no module holds: in the first forward, and after the batch
// size has changed.
func (w *nodeRunner) allocateState(node int) {
	for _, k := range w.g.kept {
		if w.laterTask != nil || k.input < 0 || k.first != node || w.values[w.g.Inputs[k.input].Value] != nil {
			continue
		}
		in := &w.g.Inputs[k.input]
		d := dtypes[in.Type]
		if k.half && w.g.autocast != 0 {
			d = w.g.autocast
		}
		k.of = w.frame.Tape().New("zeros", program.Buffers, d, shapeOf(in)...)
		w.values[in.Value] = k.of
		if w.keptStateIndex(k.input) >= 0 {
			w.frame.Bind(k.of)
		} else {
			w.kept = append(w.kept, k)
			w.frame.Tape().Hold(k.of)
		}
	}
}

// keptStateIndex returns the index of the kept value that an input reads; -1 if there is none.
func (w *nodeRunner) keptStateIndex(input int) int {
	return slices.IndexFunc(w.kept, func(k keptState) bool { return k.input == input })
}

func shapeOf(in *export.Input) []int64 {
	shape := lists.Map(in.Sizes, func(s export.Size) int64 { return s.Int })
	return shape
}

// keepValue keeps a value for modules: x.detach() before x is freed, or x with its autograd graph.
func (w *nodeRunner) keepValue(v int32) {
	if len(w.keeping) == 0 || v < 0 || !w.Training() || w.tensor(v) == nil {
		return
	}
	x := w.tensor(v)
	for i := range w.keeping {
		k := &w.keeping[i]
		switch {
		case k.value != v || k.of != nil:
		case k.detached || k.input >= 0: // the next forward does not backpropagate into this one
			k.of = w.frame.Tape().Hold(x.Detach())
		default:
			k.of = w.frame.Tape().Hold(x)
		}
	}
}

func (w *nodeRunner) keepStates() {
	for i := range w.keeping {
		k := &w.keeping[i]
		w.keepValue(k.value)
		if k.of == nil {
			continue
		}
		w.kept = append(w.kept, *k)
		if k.input < 0 || w.laterTask != nil {
			continue
		}
		if b := w.weightOf[w.g.Inputs[k.input].Value]; b != nil && b.Buffer != nil {
			b.Buffer.Tensor = k.of
		}
	}
}

// runFirstForward runs the first forward pass if it differs from later ones, which use the state that it leaves.
func (t *task) runFirstForward(b *task, f *trace.Frame, results *[]*trace.Tensor, loss **trace.Tensor) *trace.Tensor {
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
			if w := t.weightOf[t.g.Inputs[k.input].Value]; w != nil && w.Buffer != nil {
				f.Tape().Release(w.Buffer.Tensor)
				w.Buffer.Tensor = k.of
			}
		}
	}
	t.kept = append(t.kept, b.kept...)
	return out
}

func (w *nodeRunner) releaseReplaced(node int32) {
	w.kept = slices.DeleteFunc(w.kept, func(k keptState) bool {
		gone := k.until == node && (k.input < 0 || w.Training())
		if gone {
			w.frame.Tape().Release(k.of)
		}
		return gone
	})
}

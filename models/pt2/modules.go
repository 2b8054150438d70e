package pt2

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// weight is a parameter, or a buffer or constant, of the model.
type weight struct {
	name string
	*nn.Parameter
	*nn.Buffer
	// values are the graph's values for it: several if it is tied.
	values []int32
}

// tensor returns the weight's tensor on the device; nil if another layer has replaced it.
func (w *weight) tensor() *trace.Tensor { return cmp.Or(w.Parameter.T(), w.Buffer.T()) }

// linearSite is a linear layer of the model that a memory-saving option may replace.
type linearSite struct {
	*nn.Linear
	in   *nn.Parts
	name string
}

func (s *linearSite) layer() nn.Layer { return s.in.At(s.name) }

// replaced reports whether another layer is in place of the linear layer with a weight.
func (m *moduleTree) replaced(weight int32) bool {
	s := m.sites[weight]
	return s != nil && s.layer() != nn.Layer(s.Linear)
}

// moduleTree is the model of a program as modules that hold its tensors. Their order is that of
// Module._apply, which .to(device) calls; constants come last.
type moduleTree struct {
	*nn.Parts
	weights []*weight
	of      map[int32]*weight     // by the values that they are
	sites   map[int32]*linearSite // by the values of the layers' weights
	// first are the modules by the values of the graphs of the first forward.
	first map[*export.Program]*moduleTree
}

func newModules(p *export.Program) *moduleTree {
	m := &moduleTree{of: map[int32]*weight{}, sites: map[int32]*linearSite{}, first: map[*export.Program]*moduleTree{}}
	root := &moduleNode{}
	for _, path := range p.Modules {
		root.at(path)
	}
	tied, byName, later := tiedNames(p), map[string]*weight{}, madeByForward(p)
	for i := range p.Inputs {
		in := &p.Inputs[i]
		if in.Role == export.UserInput || later[in.Value] {
			continue
		}
		w := byName[keyOf(in, tied)]
		if w == nil {
			w = m.add(p, in)
			byName[keyOf(in, tied)] = w
		}
		w.values, m.of[in.Value] = append(w.values, in.Value), w
		b := root
		if in.Role != export.Constant {
			b = root.at(parent(in.Name))
		}
		b.put(w, in)
	}
	for _, first := range p.First {
		m.addFirst(first, byName, tied, root)
	}
	m.findSites(p, root)
	m.Parts = root.parts()
	for v, s := range m.sites {
		if b := root.at(s.name); b.linear != nil {
			s.in, s.name = root.at(parent(s.name)).made, s.name[strings.LastIndexByte(s.name, '.')+1:]
			continue
		}
		delete(m.sites, v)
	}
	m.flattenRecurrent(p, root)
	for _, first := range m.first {
		first.Parts, first.weights = m.Parts, m.weights
		for v, w := range first.of {
			for _, own := range w.values {
				if s := m.sites[own]; s != nil {
					first.sites[v] = s
				}
			}
		}
	}
	return m
}

// keyOf returns the identity of an input tensor: the first of its tied names. For constants, whose names are numbers of
// a graph, the identity includes sizes and types.
func keyOf(in *export.Input, tied map[string]string) string {
	if in.Role == export.Constant {
		return fmt.Sprint(in.Name, in.Sizes, in.Type)
	}
	return cmp.Or(tied[in.Name], in.Name)
}

// add makes the tensor of an input of a program.
func (m *moduleTree) add(p *export.Program, in *export.Input) *weight {
	w := newWeight(in)
	if in.Role == export.Constant {
		kept := p.Extra != nil && slices.Contains(p.Extra.Host.Kept, p.Names[in.Value])
		w.Buffer.Away = kept || isWritten(p, in.Value)
	}
	m.weights = append(m.weights, w)
	return w
}

// addFirst finds the tensors of a graph of the first forward, and adds constants that only that graph reads.
func (m *moduleTree) addFirst(p *export.Program, byName map[string]*weight, tied map[string]string, root *moduleNode) {
	first := &moduleTree{of: map[int32]*weight{}, sites: map[int32]*linearSite{}}
	m.first[p] = first
	for i := range p.Inputs {
		in := &p.Inputs[i]
		if in.Role == export.UserInput {
			continue
		}
		w := byName[keyOf(in, tied)]
		if w == nil {
			w = m.add(p, in)
			byName[keyOf(in, tied)] = w
			root.put(w, in)
		}
		first.of[in.Value] = w
	}
}

// isWritten reports whether a constant is a literal in the code, such as torch.tensor([1, 2]), which each forward
// creates again.
func isWritten(p *export.Program, constant int32) bool {
	found := false
	for i := range p.Nodes {
		taken := false
		eachInput(&p.Nodes[i], func(v int32) { taken = taken || v == constant })
		if taken && p.Nodes[i].Target != "torch.ops.aten.lift_fresh_copy.default" {
			return false
		}
		found = found || taken
	}
	return found
}

// newWeight makes the tensor of an input.
func newWeight(in *export.Input) *weight {
	w, dims := &weight{name: in.Name}, make([]int64, len(in.Sizes))
	for i, s := range in.Sizes {
		dims[i] = s.Int
	}
	d := dtypes[in.Type]
	if in.Role == export.Parameter {
		w.Parameter = &nn.Parameter{Dims: dims, DType: d, Frozen: !in.RequiresGrad, Strides: denseStrides(in, dims)}
	} else {
		w.Buffer = &nn.Buffer{Dims: dims, DType: d, OfWeights: d.IsFloat(), Constant: in.Role == export.Constant}
	}
	return w
}

// denseStrides returns the strides of a dense tensor whose dimensions are in another order in memory, such as matrices
// of linear algebra: .to(device) preserves them. They are nil for all others.
func denseStrides(in *export.Input, dims []int64) []int64 {
	if len(in.Strides) != len(dims) {
		return nil
	}
	order, strides := make([]int, len(dims)), make([]int64, len(dims))
	for i, s := range in.Strides {
		order[i], strides[i] = i, s.Int
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(strides[b], strides[a]) })
	step, moved, last := int64(1), false, len(dims)
	for _, i := range slices.Backward(order) {
		if dims[i] == 1 {
			continue
		}
		if strides[i] != step {
			return nil
		}
		step *= dims[i]
		moved = moved || i > last
		last = i
	}
	if !moved {
		return nil
	}
	return strides
}

// findSites finds the linear layers: modules with a weight, and optionally a bias, that linear operators read.
func (m *moduleTree) findSites(p *export.Program, root *moduleNode) {
	for i := range p.Nodes {
		n := &p.Nodes[i]
		w := m.of[inputOf(n, "weight")]
		if n.Target != linear || w == nil || w.Parameter == nil || len(w.Parameter.Dims) != 2 ||
			m.sites[inputOf(n, "weight")] != nil {
			continue
		}
		path := ownerOf(w, n, p)
		if b := root.at(path); path != "" && b.isLinear(w) {
			if b.linear == nil {
				b.linear = &nn.Linear{Weight: w.Parameter}
				if len(b.own) == 2 {
					b.linear.Bias = b.own[1].Parameter
				}
			}
			m.sites[inputOf(n, "weight")] = &linearSite{Linear: b.linear, name: path}
		}
	}
}

// ownerOf returns the path of the linear layer that a node calls: the module with the weight, or the module under whose
// name the weight is tied.
func ownerOf(w *weight, n *export.Node, p *export.Program) string {
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Name == n.Module+".weight" && slices.Contains(w.values, in.Value) {
			return n.Module
		}
	}
	return parent(w.name)
}

// moduleNode is a module among others, with its own tensors, and their names.
type moduleNode struct {
	children []string
	below    map[string]*moduleNode
	own      []*weight
	names    []string
	linear   *nn.Linear
	made     *nn.Parts
}

// at returns the module with a path, and creates it if it does not exist.
func (b *moduleNode) at(path string) *moduleNode {
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		next := b.below[name]
		if next == nil {
			if b.below == nil {
				b.below = map[string]*moduleNode{}
			}
			next = &moduleNode{}
			b.below[name] = next
			b.children = append(b.children, name)
		}
		b = next
	}
	return b
}

// put adds a tensor to the module, under the name of an input.
func (b *moduleNode) put(w *weight, in *export.Input) {
	b.own = append(b.own, w)
	b.names = append(b.names, in.Name[strings.LastIndexByte(in.Name, '.')+1:])
}

func (b *moduleNode) isLinear(w *weight) bool {
	switch {
	case len(b.children) > 0 || len(b.own) == 0 || b.own[0] != w || b.names[0] != "weight":
		return false
	case len(b.own) == 1:
		return true
	}
	return len(b.own) == 2 && b.names[1] == "bias" && b.own[1].Parameter != nil
}

// parts makes the module.
func (b *moduleNode) parts() *nn.Parts {
	b.made = &nn.Parts{}
	for i, w := range b.own {
		if w.Parameter != nil {
			b.made.Put(b.names[i], w.Parameter)
		} else {
			b.made.PutBuffer(w.Buffer)
		}
	}
	for _, name := range b.children {
		if child := b.below[name]; child.linear != nil {
			b.made.Add(name, child.linear)
		} else {
			b.made.Add(name, child.parts())
		}
	}
	return b.made
}

func parent(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }

// tiedNames groups the names of parameters that share a tensor; each maps to the first name of its group. Files of
// vprof capture list them. In other files export has replaced a tied parameter by its last name everywhere: the other
// names are unused, and a module uses a parameter of another.
func tiedNames(p *export.Program) map[string]string {
	group := map[string]string{}
	join := func(a, b string) {
		root, other := cmp.Or(group[a], group[b], a), group[b]
		group[a], group[b] = root, root
		for name, g := range group {
			if other != "" && g == other {
				group[name] = root
			}
		}
	}
	if p.Extra != nil && p.Extra.Tied != nil {
		for _, pair := range p.Extra.Tied {
			join(pair[1], pair[0])
		}
		return inOrder(p, group)
	}
	used, strange := parameterUses(p)
	for i := range p.Inputs {
		a := &p.Inputs[i]
		if a.Role != export.Parameter || used[a.Value] {
			continue
		}
		for k := range p.Inputs {
			b := &p.Inputs[k]
			if b.Role == export.Parameter && strange[b.Value] && a.Type == b.Type &&
				slices.EqualFunc(a.Sizes, b.Sizes, sameSize) {
				join(b.Name, a.Name)
				break
			}
		}
	}
	return inOrder(p, group)
}

// inOrder names each group by its first name in the order of inputs.
func inOrder(p *export.Program, group map[string]string) map[string]string {
	first := map[string]string{}
	out := map[string]string{}
	for i := range p.Inputs {
		name := p.Inputs[i].Name
		g, ok := group[name]
		if !ok {
			continue
		}
		if first[g] == "" {
			first[g] = name
		}
		out[name] = first[g]
	}
	return out
}

// parameterUses returns the values that nodes use, and the parameters that nodes of other modules use.
func parameterUses(p *export.Program) (used, strange map[int32]bool) {
	owner := map[int32]string{}
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Role == export.Parameter {
			owner[in.Value] = parent(in.Name)
		}
	}
	used, strange = map[int32]bool{}, map[int32]bool{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, a := range n.Inputs {
			if a.Kind != export.Ref {
				continue
			}
			used[a.Ref] = true
			if of, ok := owner[a.Ref]; ok && of != n.Module && !strings.HasPrefix(of, n.Module+".") && n.Module != "" {
				strange[a.Ref] = true
			}
		}
	}
	return used, strange
}

func sameSize(a, b export.Size) bool { return a.Int == b.Int }

// freeze turns gradients off for the parameters whose names match patterns.
func (m *moduleTree) freeze(names string) error {
	if !slices.ContainsFunc(m.weights, func(w *weight) bool { return w.Parameter != nil }) {
		return errors.New("the model has no parameters; nothing is trained")
	}
	globs := parsePatterns(names)
	found, left := make([]bool, len(globs)), false
	for _, x := range m.weights {
		if x.Parameter == nil {
			continue
		}
		for i := range globs {
			if globs[i:i+1].match(x.name) == 0 {
				x.Frozen, found[i] = true, true
			}
		}
		left = left || !x.Frozen
	}
	for i, ok := range found {
		if !ok {
			return fmt.Errorf("no parameter matches %q; parameters are named like %s", globs[i],
				m.weights[len(m.weights)/2].name)
		}
	}
	if !left {
		return errors.New("all parameters are frozen; nothing is left to train")
	}
	return nil
}

// toChannelsLast runs model.to(memory_format=torch.channels_last): tensors of four dimensions get new storages in turn.
func toChannelsLast(t *trace.Tape, net *nn.Tree) {
	again := func(old *trace.Tensor, c program.Class) *trace.Tensor {
		x := t.Hold(t.NewChannelsLast("to", c, old.DType(), old.Shape()...))
		x.RequireGrad(old.RequiresGrad())
		t.Release(old)
		return x
	}
	net.Each(func(p *nn.Parameter) {
		if len(p.Dims) == 4 {
			p.Tensor = again(p.Tensor, program.Weights)
		}
	}, func(b *nn.Buffer) {
		if len(b.Dims) == 4 && !b.Constant {
			b.Tensor = again(b.Tensor, program.Buffers)
		}
	})
}

// recurrentOperators belong to layers that keep all their weights in one buffer, as cuDNN requires.
var recurrentOperators = []string{
	"torch.ops.aten.lstm.input", "torch.ops.aten.gru.input",
	"torch.ops.aten.rnn_tanh.input", "torch.ops.aten.rnn_relu.input",
}

// flattenRecurrent makes recurrent layers copy their weights into one buffer after they are moved to the device
// (flatten_parameters).
func (m *moduleTree) flattenRecurrent(p *export.Program, root *moduleNode) {
	for i := range p.Nodes {
		n := &p.Nodes[i]
		params := findArgument(n, "params")
		if params == nil || !slices.Contains(recurrentOperators, strings.TrimSuffix(n.Target, ".default")) {
			continue
		}
		var layer []*nn.Parameter
		for _, a := range params.List {
			if w := m.of[a.Ref]; w != nil && w.Parameter != nil {
				layer = append(layer, w.Parameter)
			}
		}
		if len(layer) == 0 || len(layer) < len(params.List) {
			continue // computed in the graph: not a layer's own
		}
		if b := root.at(parent(m.of[params.List[0].Ref].name)); b.made != nil {
			b.made.Moved(func(t *trace.Tape) {
				xs := lists.Map(layer, func(w *nn.Parameter) *trace.Tensor { return w.Tensor })
				ops.FlattenRNNWeights(t, xs)
			})
		}
	}
}

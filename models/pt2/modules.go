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

// weight is a parameter, buffer or constant of the model.
type weight struct {
	name string
	*nn.Parameter
	*nn.Buffer
	// values are the weight's values in the graph; a tied parameter has several.
	values []int32
}

// tensor returns the weight's tensor on the GPU; nil if another layer has replaced its layer.
func (w *weight) tensor() *trace.Tensor {
	return cmp.Or(w.Parameter.TensorOrNil(), w.Buffer.TensorOrNil())
}

// linearSite is a linear layer of the model, which memory-saving options can replace.
type linearSite struct {
	*nn.Linear
	in   *nn.NamedModule
	name string
}

func (s *linearSite) layer() nn.Layer { return s.in.ChildAt(s.name) }

func (m *moduleTree) isReplaced(weight int32) bool {
	s := m.linearSites[weight]
	return s != nil && s.layer() != nn.Layer(s.Linear)
}

// moduleTree is the program's model as a tree of modules with its weights. The order is that of Module._apply, which
// .to(device) calls; constants come last.
type moduleTree struct {
	*nn.NamedModule
	weights     []*weight
	weightOf    map[int32]*weight     // weights by their values
	linearSites map[int32]*linearSite // linear layers by the values of their weights
	// first holds a tree for each graph of the first forward pass, with that graph's values.
	first map[*export.Program]*moduleTree
}

func newModules(p *export.Program) *moduleTree {
	m := &moduleTree{
		weightOf: map[int32]*weight{}, linearSites: map[int32]*linearSite{},
		first: map[*export.Program]*moduleTree{},
	}
	root := &moduleNode{}
	for _, path := range p.Modules {
		root.child(path)
	}
	tied, byName, later := tiedNames(p), map[string]*weight{}, forwardMadeInputs(p)
	for i := range p.Inputs {
		in := &p.Inputs[i]
		if in.Role == export.UserInput || later[in.Value] {
			continue
		}
		w := byName[weightKey(in, tied)]
		if w == nil {
			w = m.addWeight(p, in)
			byName[weightKey(in, tied)] = w
		}
		w.values, m.weightOf[in.Value] = append(w.values, in.Value), w
		b := root
		if in.Role != export.Constant {
			b = root.child(parentPath(in.Name))
		}
		b.addWeight(w, in)
	}
	for _, first := range p.First {
		m.addFirstForward(first, byName, tied, root)
	}
	m.findLinearSites(p, root)
	m.NamedModule = root.build()
	for v, s := range m.linearSites {
		if b := root.child(s.name); b.linear != nil {
			s.in, s.name = root.child(parentPath(s.name)).made, s.name[strings.LastIndexByte(s.name, '.')+1:]
			continue
		}
		delete(m.linearSites, v)
	}
	m.flattenRecurrent(p, root)
	for _, first := range m.first {
		first.NamedModule, first.weights = m.NamedModule, m.weights
		for v, w := range first.weightOf {
			for _, own := range w.values {
				if s := m.linearSites[own]; s != nil {
					first.linearSites[v] = s
				}
			}
		}
	}
	return m
}

// weightKey returns the identity of an input tensor: the first of its tied names. Constants have numbers as names, so
// their identity includes shape and data type.
func weightKey(in *export.Input, tied map[string]string) string {
	if in.Role == export.Constant {
		return fmt.Sprint(in.Name, in.Sizes, in.Type)
	}
	return cmp.Or(tied[in.Name], in.Name)
}

func (m *moduleTree) addWeight(p *export.Program, in *export.Input) *weight {
	w := newWeight(in)
	if in.Role == export.Constant {
		kept := p.Extra != nil && slices.Contains(p.Extra.Host.Kept, p.Names[in.Value])
		w.Buffer.IsElsewhere = kept || isLiteral(p, in.Value)
	}
	m.weights = append(m.weights, w)
	return w
}

// addFirstForward finds the weights of a graph of the first forward pass, and adds constants that only that graph uses.
func (m *moduleTree) addFirstForward(p *export.Program, all map[string]*weight, tied map[string]string, r *moduleNode) {
	first := &moduleTree{weightOf: map[int32]*weight{}, linearSites: map[int32]*linearSite{}}
	m.first[p] = first
	for i := range p.Inputs {
		in := &p.Inputs[i]
		if in.Role == export.UserInput {
			continue
		}
		w := all[weightKey(in, tied)]
		if w == nil {
			w = m.addWeight(p, in)
			all[weightKey(in, tied)] = w
			r.addWeight(w, in)
		}
		first.weightOf[in.Value] = w
	}
}

// isLiteral reports whether a constant is written in the code, like torch.tensor([1, 2]), which each forward creates.
func isLiteral(p *export.Program, constant int32) bool {
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

func newWeight(in *export.Input) *weight {
	w, dims := &weight{name: in.Name}, make([]int64, len(in.Sizes))
	for i, s := range in.Sizes {
		dims[i] = s.Int
	}
	d := dtypes[in.Type]
	if in.Role == export.Parameter {
		w.Parameter = &nn.Parameter{Dims: dims, DType: d, Frozen: !in.RequiresGrad, Strides: denseStrides(in, dims)}
	} else {
		w.Buffer = &nn.Buffer{Dims: dims, DType: d, HasWeightType: d.IsFloat(), Constant: in.Role == export.Constant}
	}
	return w
}

// denseStrides returns the strides of a dense tensor that is not contiguous, which .to(device) preserves; else nil.
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

// findLinearSites sets the linear layers: modules whose weight, and optional bias, linear operators use.
func (m *moduleTree) findLinearSites(p *export.Program, root *moduleNode) {
	for i := range p.Nodes {
		n := &p.Nodes[i]
		w := m.weightOf[inputOf(n, "weight")]
		if n.Target != linearTarget || w == nil || w.Parameter == nil || len(w.Parameter.Dims) != 2 ||
			m.linearSites[inputOf(n, "weight")] != nil {
			continue
		}
		path := linearPath(w, n, p)
		if b := root.child(path); path != "" && b.isLinear(w) {
			if b.linear == nil {
				b.linear = &nn.Linear{Weight: w.Parameter}
				if len(b.own) == 2 {
					b.linear.Bias = b.own[1].Parameter
				}
			}
			m.linearSites[inputOf(n, "weight")] = &linearSite{Linear: b.linear, name: path}
		}
	}
}

// linearPath returns the path of the linear layer that a node calls: the weight's module, or one that shares the
// weight.
func linearPath(w *weight, n *export.Node, p *export.Program) string {
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Name == n.Module+".weight" && slices.Contains(w.values, in.Value) {
			return n.Module
		}
	}
	return parentPath(w.name)
}

// moduleNode is a module under construction: its children, and its own tensors with their names.
type moduleNode struct {
	children []string
	below    map[string]*moduleNode
	own      []*weight
	names    []string
	linear   *nn.Linear
	made     *nn.NamedModule
}

// child returns the module at a path and creates it if it does not exist.
func (b *moduleNode) child(path string) *moduleNode {
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

func (b *moduleNode) addWeight(w *weight, in *export.Input) {
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

func (b *moduleNode) build() *nn.NamedModule {
	b.made = &nn.NamedModule{}
	for i, w := range b.own {
		if w.Parameter != nil {
			b.made.ShareParameter(b.names[i], w.Parameter)
		} else {
			b.made.ShareBuffer(w.Buffer)
		}
	}
	for _, name := range b.children {
		if child := b.below[name]; child.linear != nil {
			b.made.Add(name, child.linear)
		} else {
			b.made.Add(name, child.build())
		}
	}
	return b.made
}

func parentPath(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }

// tiedNames maps the names of parameters that share a tensor to the first of them. Files of vprof capture list such
// names. In other files, torch.export has replaced a tied parameter by its last name everywhere: the other names are
// unused, and a module uses a parameter of another module.
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
		return firstInOrder(p, group)
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
	return firstInOrder(p, group)
}

// firstInOrder maps the names of each group to the one that comes first among the program's inputs.
func firstInOrder(p *export.Program, group map[string]string) map[string]string {
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

// parameterUses returns the values that nodes use, and those parameters that nodes of other modules use.
func parameterUses(p *export.Program) (used, strange map[int32]bool) {
	owner := map[int32]string{}
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Role == export.Parameter {
			owner[in.Value] = parentPath(in.Name)
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

// freezeMatching sets requires_grad=False for the parameters whose names match patterns.
func (m *moduleTree) freezeMatching(names string) error {
	if !slices.ContainsFunc(m.weights, func(w *weight) bool { return w.Parameter != nil }) {
		return errors.New("the model has no parameters, so there is nothing to train or freeze")
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
			return fmt.Errorf("no parameter has a name like %q; the names look like %s", globs[i],
				m.weights[len(m.weights)/2].name)
		}
	}
	if !left {
		return errors.New("all parameters are frozen, so nothing is trained; name fewer")
	}
	return nil
}

// toChannelsLast records model.to(memory_format=torch.channels_last): each 4D tensor gets a new storage.
func toChannelsLast(t *trace.Tape, net *nn.Tree) {
	again := func(old *trace.Tensor, c program.Class) *trace.Tensor {
		x := t.Hold(t.NewChannelsLast("to", c, old.DType(), old.Shape()...))
		x.RequireGrad(old.RequiresGrad())
		t.Release(old)
		return x
	}
	net.ForEach(func(p *nn.Parameter) {
		if len(p.Dims) == 4 {
			p.Tensor = again(p.Tensor, program.Weights)
		}
	}, func(b *nn.Buffer) {
		if len(b.Dims) == 4 && !b.Constant {
			b.Tensor = again(b.Tensor, program.Buffers)
		}
	})
}

// recurrentOperators are the operators of layers that keep all weights in one buffer, as cuDNN requires.
var recurrentOperators = []string{
	"torch.ops.aten.lstm.input", "torch.ops.aten.gru.input",
	"torch.ops.aten.rnn_tanh.input", "torch.ops.aten.rnn_relu.input",
}

// flattenRecurrent makes recurrent layers copy their weights into one buffer on the GPU (flatten_parameters).
func (m *moduleTree) flattenRecurrent(p *export.Program, root *moduleNode) {
	for i := range p.Nodes {
		n := &p.Nodes[i]
		params := findArgument(n, "params")
		if params == nil || !slices.Contains(recurrentOperators, strings.TrimSuffix(n.Target, ".default")) {
			continue
		}
		var layer []*nn.Parameter
		for _, a := range params.List {
			if w := m.weightOf[a.Ref]; w != nil && w.Parameter != nil {
				layer = append(layer, w.Parameter)
			}
		}
		if len(layer) == 0 || len(layer) < len(params.List) {
			continue // the graph computes the weights: the layer does not own them
		}
		if b := root.child(parentPath(m.weightOf[params.List[0].Ref].name)); b.made != nil {
			b.made.OnMoved(func(t *trace.Tape) {
				xs := lists.Map(layer, func(w *nn.Parameter) *trace.Tensor { return w.Tensor })
				ops.FlattenRNNWeights(t, xs)
			})
		}
	}
}

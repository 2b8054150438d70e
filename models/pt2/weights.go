package pt2

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// tensor is a parameter, a buffer or a constant of the model.
type tensor struct {
	name  string
	role  export.Role
	dtype trace.DType
	shape []int64
	// values are those of the graph that it is: several if it is tied.
	values []int32
	frozen bool
	// packed is the layer whose weight it is, if bitsandbytes holds that, and biasOf the
	// bias of such a layer.
	packed nn.Quantized
	biasOf *nn.Parameter

	x *trace.Tensor
}

func (w *tensor) numel() int64 {
	n := int64(1)
	for _, d := range w.shape {
		n *= d
	}
	return n
}

// weights are the tensors of a model.
type weights struct {
	// parameters are in the order of parameters().
	parameters []*tensor
	buffers    []*tensor
	// moved has all in the order in which .to(device) moves them.
	moved []*tensor
	// flat has the weights of each recurrent layer by the last that is moved.
	flat map[*tensor][]*tensor
}

// newWeights finds the tensors of a program.
func newWeights(p *export.Program) *weights {
	w := &weights{}
	tied := ties(p)
	byName := map[string]*tensor{}
	for i := range p.Inputs {
		in := &p.Inputs[i]
		if in.Role == export.UserInput {
			continue
		}
		if first := byName[tied[in.Name]]; first != nil {
			first.values = append(first.values, in.Value)
			continue
		}
		x := &tensor{name: in.Name, role: in.Role, dtype: dtypes[in.Type], values: []int32{in.Value}}
		x.frozen = in.Role != export.Parameter || !in.RequiresGrad
		for _, s := range in.Sizes {
			x.shape = append(x.shape, s.Int)
		}
		name := in.Name
		if group, ok := tied[name]; ok {
			name = group
		}
		byName[name] = x
		if in.Role == export.Parameter {
			w.parameters = append(w.parameters, x)
		} else {
			w.buffers = append(w.buffers, x)
		}
	}
	w.order(p)
	w.flat = w.recurrent(p)
	return w
}

// order finds the order of Module._apply, which .to(device) goes by: the
// children of a module first, in the order in which they were registered, then
// its own parameters, then its own buffers. Constants are no part of it.
func (w *weights) order(p *export.Program) {
	root := &branch{children: map[string]*branch{}}
	for _, path := range p.Modules {
		root.at(path)
	}
	for _, x := range w.parameters {
		b := root.at(parent(x.name))
		b.own = append(b.own, x)
	}
	for _, x := range w.buffers {
		if x.role == export.Buffer {
			b := root.at(parent(x.name))
			b.buffers = append(b.buffers, x)
		}
	}
	root.visit(func(x *tensor) { w.moved = append(w.moved, x) })
	for _, x := range w.buffers {
		if x.role == export.Constant {
			w.moved = append(w.moved, x)
		}
	}
}

// branch is a module among others.
type branch struct {
	names        []string
	children     map[string]*branch
	own, buffers []*tensor
}

// at is the module of a path, made if it is not there yet.
func (b *branch) at(path string) *branch {
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		next := b.children[name]
		if next == nil {
			next = &branch{children: map[string]*branch{}}
			b.children[name] = next
			b.names = append(b.names, name)
		}
		b = next
	}
	return b
}

func (b *branch) visit(each func(*tensor)) {
	for _, name := range b.names {
		b.children[name].visit(each)
	}
	for _, x := range b.own {
		each(x)
	}
	for _, x := range b.buffers {
		each(x)
	}
}

func parent(name string) string {
	return name[:max(strings.LastIndexByte(name, '.'), 0)]
}

// ties groups the names of parameters that are one tensor; each has the first
// name of its group. Files of vprof capture say which are. In others, export has
// replaced a tied parameter by the last of its names everywhere: the others are
// used nowhere, and a module uses what is not its own.
func ties(p *export.Program) map[string]string {
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
	used, strange := usage(p)
	for i := range p.Inputs {
		a := &p.Inputs[i]
		if a.Role != export.Parameter || used[a.Value] {
			continue
		}
		for k := range p.Inputs {
			b := &p.Inputs[k]
			if b.Role == export.Parameter && strange[b.Value] && a.Type == b.Type && sameSizes(a.Sizes, b.Sizes) {
				join(b.Name, a.Name)
				break
			}
		}
	}
	return inOrder(p, group)
}

// inOrder names each group by the first of its names in the order of inputs.
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

// usage finds the values that nodes use, and those that nodes use in modules
// that the parameter is not of.
func usage(p *export.Program) (used, strange map[int32]bool) {
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

func sameSizes(a, b []export.Size) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Int != b[i].Int {
			return false
		}
	}
	return true
}

// cast gives floating-point tensors another type, as model.to(dtype) does.
func (w *weights) cast(d trace.DType) {
	for _, x := range w.moved {
		if x.dtype.IsFloat() {
			x.dtype = d
		}
	}
}

// freeze turns gradients off for the parameters whose names match patterns.
func (w *weights) freeze(names string) error {
	globs := parsePatterns(names)
	found := make([]bool, len(globs))
	for _, x := range w.parameters {
		for i := range globs {
			if globs[i:i+1].match(x.name) == 0 {
				x.frozen, found[i] = true, true
			}
		}
	}
	for i, ok := range found {
		if !ok {
			return fmt.Errorf("%q names no parameter; parameters are named like %s", globs[i], w.parameters[len(w.parameters)/2].name)
		}
	}
	if !slices.ContainsFunc(w.parameters, func(x *tensor) bool { return !x.frozen }) {
		return errors.New("all parameters are frozen; nothing is left to train")
	}
	return nil
}

// trainOnly freezes the parameters whose names do not match, and tells whether some do.
func (w *weights) trainOnly(wanted *regexp.Regexp) (found bool) {
	for _, x := range w.parameters {
		x.frozen = x.frozen || !wanted.MatchString(x.name)
		found = found || !x.frozen
	}
	return found
}

// counts are the numbers of elements.
func (w *weights) counts() models.Counts {
	var c models.Counts
	for _, x := range w.parameters {
		c.Total += x.numel()
		if !x.frozen {
			c.Trainable += x.numel()
			c.Gradients += x.numel() * x.dtype.Size()
		}
	}
	for _, x := range w.buffers {
		c.Buffers += x.numel()
	}
	return c
}

// to is model.to(device).
func (w *weights) to(t *trace.Tape) {
	const op = "to_dtype_layout"
	for _, x := range w.moved {
		class := program.Buffers
		if x.role == export.Parameter {
			class = program.Weights
		}
		if x.packed != nil {
			x.x = x.packed.Load(t)
			continue
		}
		x.x = t.Hold(t.New(op, class, x.dtype, x.shape...))
		if !x.frozen {
			x.x.Leaf()
		}
		if x.biasOf != nil {
			x.biasOf.Tensor = x.x
		}
		if layer := w.flat[x]; layer != nil {
			flatten(t, layer)
		}
	}
}

// toChannelsLast is model.to(memory_format=torch.channels_last): tensors of four
// dimensions get another storage, one after the other.
func (w *weights) toChannelsLast(t *trace.Tape) {
	for _, x := range w.moved {
		if len(x.shape) != 4 || x.role == export.Constant {
			continue
		}
		class := program.Buffers
		if x.role == export.Parameter {
			class = program.Weights
		}
		old := x.x
		x.x = t.Hold(t.NewChannelsLast("to", class, x.dtype, x.shape...))
		if !x.frozen {
			x.x.Leaf()
		}
		t.Release(old)
	}
}

// trainable are the tensors that an optimizer is given.
func (w *weights) trainable() []*trace.Tensor {
	var out []*trace.Tensor
	for _, x := range w.parameters {
		if !x.frozen {
			out = append(out, x.x)
		}
	}
	return out
}

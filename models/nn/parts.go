package nn

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/trace"
)

// NamedModule is a module with named children and parameters, under PyTorch's names. It is for modules that a text-only
// step does not call, such as image encoders, for children whose names cannot be struct fields, and for modules that
// call their children in order ([NewChain]). [NamedModule.ChildAt] finds children by name.
type NamedModule struct {
	Module
	names    []string
	children []Layer
	own      []string
	weights  []*Parameter
	buffers  []*Buffer
	moved    func(t *trace.Tape)
	chained  bool
}

// NewChain returns a module that calls its children in the order in which they are added.
func NewChain() *NamedModule { return &NamedModule{chained: true} }

// Add adds a layer under a name or path. It returns p.
func (p *NamedModule) Add(name string, l Layer) *NamedModule {
	p.names, p.children = append(p.names, name), append(p.children, l)
	return p
}

// AddChild adds an empty child module and returns it.
func (p *NamedModule) AddChild(name string) *NamedModule {
	child := &NamedModule{}
	p.Add(name, child)
	return child
}

// AddParameter adds a new parameter to the module. It returns p.
func (p *NamedModule) AddParameter(name string, dims ...int64) *NamedModule {
	p.own, p.weights = append(p.own, name), append(p.weights, NewParameter(dims...))
	return p
}

// ShareParameter adds an existing parameter, which other modules may share.
func (p *NamedModule) ShareParameter(name string, w *Parameter) {
	p.own, p.weights = append(p.own, name), append(p.weights, w)
}

// ShareBuffer adds an existing buffer.
func (p *NamedModule) ShareBuffer(b *Buffer) { p.buffers = append(p.buffers, b) }

// OnMoved sets a function that is called after the module and its children have moved to the GPU.
func (p *NamedModule) OnMoved(f func(t *trace.Tape)) { p.moved = f }

func (p *NamedModule) afterMove(t *trace.Tape) {
	if p.moved != nil {
		t.OnOtherRank(p.weights[0].IsElsewhere, func() { p.moved(t) })
	}
}

// AddBuffer adds a new buffer to the module. It returns p.
func (p *NamedModule) AddBuffer(d trace.DType, dims ...int64) *NamedModule {
	p.buffers = append(p.buffers, NewBuffer(d, dims...))
	return p
}

// AddWeightBuffer adds a buffer in the data type of the model's weights. It returns p.
func (p *NamedModule) AddWeightBuffer(dims ...int64) *NamedModule {
	p.buffers = append(p.buffers, NewBufferOfWeights(dims...))
	return p
}

// ChildAt returns the layer at a path below the module, or the adapter that wraps it.
func (p *NamedModule) ChildAt(path string) Layer {
	for i, name := range p.names {
		if name == path {
			return p.children[i]
		}
		if below, ok := strings.CutPrefix(path, name+"."); ok {
			return p.children[i].(*NamedModule).ChildAt(below)
		}
	}
	panic("nn: no module is called " + path)
}

// ModuleAt returns the [NamedModule] at a path below the module.
func (p *NamedModule) ModuleAt(path string) *NamedModule { return p.ChildAt(path).(*NamedModule) }

// Parameter returns the module's own parameter with a name; nil if there is none.
func (p *NamedModule) Parameter(name string) *Parameter {
	if i := slices.Index(p.own, name); i >= 0 {
		return p.weights[i]
	}
	return nil
}

// ParameterTensor returns the tensor of the module's own parameter with a name.
func (p *NamedModule) ParameterTensor(name string) *trace.Tensor {
	if w := p.Parameter(name); w != nil {
		return w.TensorOrNil()
	}
	panic("nn: no parameter is called " + name)
}

// RemoveParameter removes the module's own parameter with a name, if it exists.
func (p *NamedModule) RemoveParameter(name string) {
	if i := slices.Index(p.own, name); i >= 0 {
		p.own, p.weights = slices.Delete(p.own, i, i+1), slices.Delete(p.weights, i, i+1)
	}
}

// Parameters returns the module's own parameters, without its children's.
func (p *NamedModule) Parameters() []*Parameter { return p.weights }

// Buffers returns the module's own buffers, without its children's.
func (p *NamedModule) Buffers() []*Buffer { return p.buffers }

// BufferTensor returns the tensor of the module's own buffer number i.
func (p *NamedModule) BufferTensor(i int) *trace.Tensor { return p.buffers[i].TensorOrNil() }

// Forward calls the children of a [NewChain]. Other modules panic, since a step must not call them.
func (p *NamedModule) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if !p.chained {
		panic("nn: " + p.path.Name + " is held and never called")
	}
	for _, l := range p.children {
		f.Set(&x, f.Call(l, x))
	}
	return x
}

func (p *NamedModule) ownParameters() ([]string, []*Parameter) { return p.own, p.weights }

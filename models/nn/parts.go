package nn

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/trace"
)

// Parts is a module with named children and parameters, under PyTorch's names. It is used for modules that a text-only
// step holds and never calls, such as image towers, for children whose names no struct field can have, and for modules
// that call their children one after the other ([NewChain]). Callers find children by name ([Parts.At]).
type Parts struct {
	Module
	names    []string
	children []Layer
	own      []string
	weights  []*Parameter
	buffers  []*Buffer
	moved    func(t *trace.Tape)
	chained  bool
}

// NewChain returns a module that calls the children that are added one after the other.
func NewChain() *Parts { return &Parts{chained: true} }

// Add registers a layer under a name or a path, and returns the module itself.
func (p *Parts) Add(name string, l Layer) *Parts {
	p.names, p.children = append(p.names, name), append(p.children, l)
	return p
}

// In makes a module within this one.
func (p *Parts) In(name string) *Parts {
	child := &Parts{}
	p.Add(name, child)
	return child
}

// Own adds a new parameter to the module.
func (p *Parts) Own(name string, dims ...int64) *Parts {
	p.own, p.weights = append(p.own, name), append(p.weights, NewParameter(dims...))
	return p
}

// Put registers an existing parameter, which other modules may share.
func (p *Parts) Put(name string, w *Parameter) {
	p.own, p.weights = append(p.own, name), append(p.weights, w)
}

// PutBuffer registers an existing buffer.
func (p *Parts) PutBuffer(b *Buffer) { p.buffers = append(p.buffers, b) }

// Moved registers f to run when the module and its children have moved to a device.
func (p *Parts) Moved(f func(t *trace.Tape)) { p.moved = f }

func (p *Parts) afterMove(t *trace.Tape) {
	if p.moved != nil {
		t.OnOtherRank(p.weights[0].Away, func() { p.moved(t) })
	}
}

// Buffer gives the module a buffer.
func (p *Parts) Buffer(d trace.DType, dims ...int64) *Parts {
	p.buffers = append(p.buffers, NewBuffer(d, dims...))
	return p
}

// BufferOfWeights gives the module a buffer in the type of the weights.
func (p *Parts) BufferOfWeights(dims ...int64) *Parts {
	p.buffers = append(p.buffers, NewBufferOfWeights(dims...))
	return p
}

// At returns the layer below the module at a path, an adapter if one has taken its place.
func (p *Parts) At(path string) Layer {
	for i, name := range p.names {
		if name == path {
			return p.children[i]
		}
		if below, ok := strings.CutPrefix(path, name+"."); ok {
			return p.children[i].(*Parts).At(below)
		}
	}
	panic("nn: no module is called " + path)
}

// Part returns the module below this one at a path.
func (p *Parts) Part(path string) *Parts { return p.At(path).(*Parts) }

// Parameter returns the module's own parameter of a name, nil if there is none.
func (p *Parts) Parameter(name string) *Parameter {
	if i := slices.Index(p.own, name); i >= 0 {
		return p.weights[i]
	}
	return nil
}

// Owned returns the value of the module's own parameter of a name.
func (p *Parts) Owned(name string) *trace.Tensor {
	if w := p.Parameter(name); w != nil {
		return w.T()
	}
	panic("nn: no parameter is called " + name)
}

// Remove deletes the module's own parameter of a name, if there is one.
func (p *Parts) Remove(name string) {
	if i := slices.Index(p.own, name); i >= 0 {
		p.own, p.weights = slices.Delete(p.own, i, i+1), slices.Delete(p.weights, i, i+1)
	}
}

// Parameters returns the module's own.
func (p *Parts) Parameters() []*Parameter { return p.weights }

// Buffers returns the module's own.
func (p *Parts) Buffers() []*Buffer { return p.buffers }

// Held returns the module's i-th own buffer.
func (p *Parts) Held(i int) *trace.Tensor { return p.buffers[i].T() }

// Forward implements [Layer] for [NewChain]; for other parts it panics, since a step must not call them.
func (p *Parts) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if !p.chained {
		panic("nn: " + p.path.Name + " is held and never called")
	}
	for _, l := range p.children {
		f.Set(&x, f.Call(l, x))
	}
	return x
}

func (p *Parts) ownParameters() ([]string, []*Parameter) { return p.own, p.weights }

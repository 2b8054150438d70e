package nn

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// ParamWrapper is peft's lora.ParamWrapper with one adapter: a low-rank pair for a parameter of a module, with a rank
// for each expert. A forward pass of the module reads the parameter plus the adapter's product.
type ParamWrapper struct {
	Module
	LoraA *Linear `torch:"lora_A.default"`
	LoraB *Linear `torch:"lora_B.default"`
	// of is the current parameter, whole the parameter before it was packed.
	of, whole *Parameter
	// swapped reports whether the parameter is [experts, out, in], not [experts, in, out].
	swapped bool
	// scaled reports whether the scale is not one.
	scaled      bool
	off, inside bool
	// around is the frame of the outermost wrapper while the module runs; left and right are the factors, adapted is
	// the value of the module's first access.
	around               *trace.Frame
	left, right, adapted *trace.Tensor
}

// newParamWrapper wraps a parameter [experts, out, in], or [experts, in, out] if swapped is off, or a matrix [out, in].
func newParamWrapper(p *Parameter, rank int64, swapped, scaled bool) *ParamWrapper {
	whole := p
	if p.unpack != nil {
		whole = p.unpack.from
	}
	experts, in, out := int64(1), whole.Dims[1], whole.Dims[0]
	if len(whole.Dims) > 2 {
		experts, out = whole.Dims[0], whole.Dims[2]
	}
	if swapped {
		in, out = out, in
	}
	w := &ParamWrapper{
		LoraA: NewLinear(in, rank*experts, false), LoraB: NewLinear(rank*experts, out, false),
		of: p, whole: whole, swapped: swapped, scaled: scaled,
	}
	p.wrapper = w
	return w
}

// Trained implements [Adapter].
func (w *ParamWrapper) Trained() []*Parameter { return []*Parameter{w.LoraA.Weight, w.LoraB.Weight} }

// BaseType implements [Adapter].
func (w *ParamWrapper) BaseType() trace.DType { return w.whole.DType }

// Disable implements [Adapter].
func (w *ParamWrapper) Disable(off bool) { w.off = off }

// prepare computes what the parametrization adds to the parameter: two factors of a product (get_delta_factors), or,
// for a matrix or a packed parameter, the product itself. peft 0.21 makes factors there, too, but never removes such a
// parametrization from a parameter that has another, and raises in the second step; so peft 0.19 is recorded.
func (w *ParamWrapper) prepare(f *trace.Frame) {
	if len(w.whole.Dims) == 2 {
		delta := w.LoraB.Weight.Matmul(w.LoraA.Weight.Tensor).MulScalar()
		w.left = f.Bind(delta.To(w.whole.DType))
		return
	}
	if w.of.unpack != nil {
		w.left = f.Bind(w.product(f))
		g := f.FuncFrame()
		w.value(g)
		g.End()
		return
	}
	left, right := w.factors(f)
	w.left, w.right = f.Bind(left), f.Bind(right)
}

// split reshapes the adapter's weights by expert, without a copy: down [experts, rank, in], up [out, rank, experts].
func (w *ParamWrapper) split(f *trace.Frame) (down, up *trace.Tensor) {
	a, b, experts := w.LoraA.Weight, w.LoraB.Weight, w.whole.Dims[0]
	return f.Bind(a.Reshape(experts, -1, a.Dims[1])), f.Bind(b.Reshape(b.Dims[0], -1, experts))
}

// factors records get_delta_factors: the factors of the product, in the type of the parameter.
func (w *ParamWrapper) factors(f *trace.Frame) (left, right *trace.Tensor) {
	g := f.FuncFrame()
	down, up := w.split(g)
	g.Set(&up, up.Permute(2, 0, 1))
	if w.swapped {
		left, right = g.Bind(up), g.Bind(down)
	} else {
		left, right = g.Bind(down.Transpose(-2, -1)), g.Bind(up.Transpose(-2, -1))
	}
	left, right = left.To(w.whole.DType), right.To(w.whole.DType)
	return g.ReturnPair(left, right)
}

// product records get_delta_weight of peft 0.19.
func (w *ParamWrapper) product(f *trace.Frame) *trace.Tensor {
	g := f.FuncFrame()
	down, up := w.split(g)
	equation := "ore,eri->eio"
	if w.swapped {
		equation = "ore,eri->eoi"
	}
	delta := g.Bind(ops.Einsum(equation, up, down).MulScalar())
	w.value(g)
	return g.Return(g.Set(&delta, delta.To(w.whole.DType)))
}

// sum returns the parameter with the adapter's delta added.
func (w *ParamWrapper) sum(of *trace.Tensor) (y *trace.Tensor) {
	if w.right == nil {
		return of.Add(w.left)
	}
	scale := trace.Factors{Alpha: w.scaled}
	w.left.Tape().NoAutocast(func() { y = of.BAddBMMScaled(w.left, w.right, scale) })
	return y
}

// value returns the parameter as in the module without wrappers. A packed parameter is unpacked at each read, except
// within a wrapper, where the cache is on.
func (w *ParamWrapper) value(f *trace.Frame) (x *trace.Tensor) {
	switch {
	case w.of.unpack == nil:
		return w.of.Tensor
	case w.adapted != nil:
		return w.adapted
	}
	f.Tape().NoGrad(func() { x = w.of.unpack.dequantize(f) })
	if w.inside {
		w.adapted = w.around.Bind(x)
		return x
	}
	return f.Bind(x)
}

// register records register_parametrization, which computes the sum once to check its shape and type. inside reports
// whether another wrapper surrounds it. The cache of a packed parameter then holds the value without this adapter, so
// that the module never uses the adapter.
func (w *ParamWrapper) register(f *trace.Frame, inside bool) {
	w.inside = inside
	w.prepare(f)
	g := f.FuncFrame()
	g.Discard(w.sum(w.value(g)))
	g.End()
}

// Wrappers are the wrappers around one module; each has the next as its base layer.
type Wrappers struct {
	Inner *ParamWrapper `torch:"base_layer"`
	Outer *ParamWrapper `torch:""`
}

// Around runs the forward pass of a module within its wrappers; nil has none.
func (w *Wrappers) Around(f *trace.Frame, args []*trace.Tensor,
	forward func(f *trace.Frame) []*trace.Tensor,
) []*trace.Tensor {
	if w == nil || w.Outer.off {
		return forward(f)
	}
	all := []*ParamWrapper{w.Outer}
	if w.Inner != nil {
		all = append(all, w.Inner)
	}
	g := f.CallFrame(args...)
	g.SetModule(w.Outer)
	frames := []*trace.Frame{g}
	for i, one := range all {
		at := g
		if i > 0 {
			at = frames[0].CallFrame(args...)
			at.SetModule(one)
			frames = append(frames, at)
		}
		one.around = g
		one.register(at, i > 0)
	}
	y := frames[len(frames)-1].BindAll(forward(frames[len(frames)-1]))
	if w.Inner != nil {
		frames[1].End(y...)
		g.BindAll(y)
	}
	for _, one := range slices.Backward(all) {
		if one.around = nil; one.adapted != nil {
			g.Del(&one.adapted)
		}
	}
	g.End(y...)
	return y
}

// access returns the parameter as the module reads it within its wrappers: computed at the first read, and kept until
// the outermost wrapper returns.
func (w *ParamWrapper) access(f *trace.Frame) *trace.Tensor {
	if w.adapted == nil {
		g := f.FuncFrame()
		y := w.sum(w.value(g))
		g.End(y)
		w.adapted = w.around.Bind(y)
	}
	return w.adapted
}

// WrapsParameters is a module whose own parameters adapters can wrap.
type WrapsParameters interface {
	// Wrap offers parameters in their order, by the names that the module has for them, and keeps the wrappers, nil
	// where no adapter is wanted. swapped reports whether a parameter is [experts, out, in].
	Wrap(wrap WrapParameter)
}

// WrapParameter makes the wrapper of a parameter of a module, or nil.
type WrapParameter func(own string, p *Parameter, swapped bool) *ParamWrapper

// Wrapping adds a wrapper around the existing ones; nil adds none.
func (w *Wrappers) Wrapping(around *ParamWrapper) *Wrappers {
	switch {
	case around == nil:
		return w
	case w == nil:
		return &Wrappers{Outer: around}
	default:
		return &Wrappers{Inner: w.Outer, Outer: around}
	}
}

// AdaptParameters wraps in adapters the parameters of experts with the given names, or ends of names, as peft does for
// target_parameters. rank returns a rank by the parameter's name; scaled reports whether alpha differs from the rank.
// It returns the adapters in the order of the parameters, and names without a parameter.
func AdaptParameters(model any, names []string, rank func(own string) int64, scaled bool) (made []Adapter,
	missing []string,
) {
	t, found := NewTree(model), map[string]bool{}
	for i, l := range t.wraps {
		path := t.wrapped[i]
		l.Wrap(func(own string, p *Parameter, swapped bool) *ParamWrapper {
			wanted := false
			for _, n := range names {
				if Matches(join(path, own), n) {
					found[n], wanted = true, true
				}
			}
			if !wanted {
				return nil
			}
			w := newParamWrapper(p, rank(own), swapped, scaled)
			made = append(made, w)
			return w
		})
	}
	return made, notIn(found, names)
}

package nn

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// ParamWrapper is peft's lora.ParamWrapper with one adapter: two low-rank matrices for a parameter, with a rank for
// each expert. During the module's forward, the parameter's attribute returns the parameter plus the adapter's product.
type ParamWrapper struct {
	Module
	LoraA *Linear `torch:"lora_A.default"`
	LoraB *Linear `torch:"lora_B.default"`
	// of is the wrapped parameter. whole is the same parameter before it was quantized.
	of, whole *Parameter
	// swapped reports whether the parameter is [experts, out, in] instead of [experts, in, out].
	swapped bool
	// scaled reports whether the adapter's scale differs from 1.
	scaled      bool
	off, inside bool
	// around is the frame of the outermost wrapper while the module runs. left and right are the factors of the
	// product. adapted is the value of the module's first read.
	around               *trace.Frame
	left, right, adapted *trace.Tensor
}

// newParamWrapper wraps a parameter [experts, in, out] ([experts, out, in] if swapped), or a matrix [out, in].
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

// Trained returns the adapter's trained parameters, for [Adapter].
func (w *ParamWrapper) Trained() []*Parameter { return []*Parameter{w.LoraA.Weight, w.LoraB.Weight} }

// BaseType returns the dtype of the frozen layer's weight, for [Adapter].
func (w *ParamWrapper) BaseType() trace.DType { return w.whole.DType }

// Disable turns the adapter off or on, for [Adapter].
func (w *ParamWrapper) Disable(off bool) { w.off = off }

// computeDelta computes what the parametrization adds to the parameter: the two factors of a product
// (get_delta_factors) or, for a matrix or a quantized parameter, the product itself. For those, peft 0.19 is recorded:
// peft 0.21 also uses factors, but never removes the parametrization from a parameter that has another one, and raises
// in the second step.
func (w *ParamWrapper) computeDelta(f *trace.Frame) {
	if len(w.whole.Dims) == 2 {
		delta := w.LoraB.Weight.Matmul(w.LoraA.Weight.Tensor).MulScalar()
		w.left = f.Bind(delta.To(w.whole.DType))
		return
	}
	if w.of.unpack != nil {
		w.left = f.Bind(w.deltaWeight(f))
		g := f.FunctionFrame()
		w.valueWithoutAdapter(g)
		g.End()
		return
	}
	left, right := w.deltaFactors(f)
	w.left, w.right = f.Bind(left), f.Bind(right)
}

// splitByExpert views the adapter's matrices by expert: down [experts, rank, in], up [out, rank, experts].
func (w *ParamWrapper) splitByExpert(f *trace.Frame) (down, up *trace.Tensor) {
	a, b, experts := w.LoraA.Weight, w.LoraB.Weight, w.whole.Dims[0]
	return f.Bind(a.Reshape(experts, -1, a.Dims[1])), f.Bind(b.Reshape(b.Dims[0], -1, experts))
}

// deltaFactors records get_delta_factors: the two factors of the product, in the data type of the parameter.
func (w *ParamWrapper) deltaFactors(f *trace.Frame) (left, right *trace.Tensor) {
	g := f.FunctionFrame()
	down, up := w.splitByExpert(g)
	g.Set(&up, up.Permute(2, 0, 1))
	if w.swapped {
		left, right = g.Bind(up), g.Bind(down)
	} else {
		left, right = g.Bind(down.Transpose(-2, -1)), g.Bind(up.Transpose(-2, -1))
	}
	left, right = left.To(w.whole.DType), right.To(w.whole.DType)
	return g.ReturnPair(left, right)
}

// deltaWeight records get_delta_weight of peft 0.19, which computes the adapter's product.
func (w *ParamWrapper) deltaWeight(f *trace.Frame) *trace.Tensor {
	g := f.FunctionFrame()
	down, up := w.splitByExpert(g)
	equation := "ore,eri->eio"
	if w.swapped {
		equation = "ore,eri->eoi"
	}
	delta := g.Bind(ops.Einsum(equation, up, down).MulScalar())
	w.valueWithoutAdapter(g)
	return g.Return(g.Set(&delta, delta.To(w.whole.DType)))
}

// addDelta returns the parameter plus the adapter's product.
func (w *ParamWrapper) addDelta(of *trace.Tensor) (y *trace.Tensor) {
	if w.right == nil {
		return of.Add(w.left)
	}
	scale := trace.Factors{Alpha: w.scaled}
	w.left.Tape().NoAutocast(func() { y = of.BAddBMMScaled(w.left, w.right, scale) })
	return y
}

// valueWithoutAdapter returns the parameter without this adapter. A quantized parameter is dequantized at each read;
// inside another wrapper, PyTorch's cache keeps the first value.
func (w *ParamWrapper) valueWithoutAdapter(f *trace.Frame) (x *trace.Tensor) {
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

// registerParametrization records register_parametrization, which computes the sum once to check its shape and type.
// inside reports whether another wrapper is around this one. PyTorch's cache then already holds the dequantized value,
// so that the module never uses this adapter.
func (w *ParamWrapper) registerParametrization(f *trace.Frame, inside bool) {
	w.inside = inside
	w.computeDelta(f)
	g := f.FunctionFrame()
	g.Discard(w.addDelta(w.valueWithoutAdapter(g)))
	g.End()
}

// ParamWrappers are the peft wrappers around one module: Outer's base layer is Inner, and Inner's base layer is the
// module.
type ParamWrappers struct {
	Inner *ParamWrapper `torch:"base_layer"`
	Outer *ParamWrapper `torch:""`
}

// RunForward runs the forward pass of a module inside its wrappers; with nil wrappers it runs the forward pass alone.
func (w *ParamWrappers) RunForward(f *trace.Frame, args []*trace.Tensor,
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
		one.registerParametrization(at, i > 0)
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

// adaptedValue returns the value of the wrapped parameter. It is computed at the module's first read and stays until
// the outermost wrapper returns.
func (w *ParamWrapper) adaptedValue(f *trace.Frame) *trace.Tensor {
	if w.adapted == nil {
		g := f.FunctionFrame()
		y := w.addDelta(w.valueWithoutAdapter(g))
		g.End(y)
		w.adapted = w.around.Bind(y)
	}
	return w.adapted
}

// ParameterWrappable is a module whose own parameters can get adapters.
type ParameterWrappable interface {
	// WrapParameters calls wrap for each of the module's parameters in order, and stores the wrappers that are not nil.
	// swapped reports whether the parameter is [experts, out, in].
	WrapParameters(wrap WrapParameter)
}

// WrapParameter returns the wrapper of a module's parameter named own, or nil.
type WrapParameter func(own string, p *Parameter, swapped bool) *ParamWrapper

// AddOuter adds a wrapper outside the existing ones; nil adds none.
func (w *ParamWrappers) AddOuter(around *ParamWrapper) *ParamWrappers {
	switch {
	case around == nil:
		return w
	case w == nil:
		return &ParamWrappers{Outer: around}
	default:
		return &ParamWrappers{Inner: w.Outer, Outer: around}
	}
}

// AdaptParameters adds adapters to the parameters of experts whose names equal, or end in, one of the given names
// (peft's target_parameters). rank returns the rank by name; scaled reports whether alpha differs from the rank. It
// returns the adapters in the order of the parameters, and the names that match no parameter.
func AdaptParameters(model any, names []string, rank func(own string) int64, scaled bool) (made []Adapter,
	missing []string,
) {
	t, found := NewTree(model), map[string]bool{}
	for i, l := range t.wraps {
		path := t.wrapped[i]
		l.WrapParameters(func(own string, p *Parameter, swapped bool) *ParamWrapper {
			wanted := false
			for _, n := range names {
				if MatchesSuffix(join(path, own), n) {
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
	return made, missingNames(found, names)
}

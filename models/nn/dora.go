package nn

import "github.com/vprof/vprof/profiler/trace"

// magnitude is peft's DoraLinearLayer: a trained length for each row of the adapted weight.
type magnitude struct {
	Module
	Weight *Parameter
}

// Trained implements [Adapter].
func (l *LoRALinear) Trained() []*Parameter {
	all := []*Parameter{l.LoraA.Weight, l.LoraB.Weight}
	if l.Magnitude != nil {
		all = append(all, l.Magnitude.Weight)
	}
	return all
}

// withMagnitude is DoraLinearVariant.forward of peft 0.21, whose layers are no packed ones.
func (l *LoRALinear) withMagnitude(f *trace.Frame, x, result *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(x, result)
	base := result
	if _, drops := l.LoraDropout.(*Dropout); drops {
		g.Set(&x, g.Call(l.LoraDropout, x))
		base = nil
	}
	return g.Return(result.Add(g.Let(l.directed(g, x, base))))
}

// directed is DoraLinearLayer.forward. base is the layer's result, or nil where dropout has
// changed the input since.
func (l *LoRALinear) directed(f *trace.Frame, x, base *trace.Tensor) *trace.Tensor {
	g := f.ModuleFrame(l.Magnitude, x, base)
	frozen := l.BaseLayer.(*Linear)
	delta := g.Let(l.delta(g))
	g.Set(&delta, delta.To(x.DType()))
	weight := g.Let(frozen.Weight.To(x.DType()))
	var length *trace.Tensor
	h := g.FuncFrame(weight, delta)
	sum := h.Let(weight.Add(delta.Detach().MulScalar()))
	length = sum.Norm(2, false, 1)
	h.End(length)
	g.Let(length)
	scale := g.Let(l.Magnitude.Weight.Div(length.Detach()).View(1, -1))
	adapted := g.Let(g.Call(l.LoraB, g.Call(l.LoraA, x)))
	switch {
	case base == nil:
		base = g.Let(x.Linear(weight, nil))
	case frozen.Bias != nil:
		g.Set(&base, base.Sub(frozen.Bias.Tensor))
	}
	return g.Return(g.Let(scale.AddScalar().Mul(base).Add(scale.Mul(adapted).MulScalar())))
}

// byTorchtune is what follows the layer's own result in DoRALinear.forward of torchtune 0.7.
func (l *LoRALinear) byTorchtune(f *trace.Frame, x, base *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(x, base)
	g.In(l.Magnitude)
	in, _ := l.BaseLayer.Widths()
	g.Set(&x, g.Call(l.LoraDropout, x))
	adapted := g.Let(g.Call(l.LoraB, g.Call(l.LoraA, x)))
	eye := g.Let(g.Tape().Filled("eye", x.DType(), in, in))
	delta := g.Let(g.Call(l.LoraB, g.Call(l.LoraA, eye)).Transpose(0, 1))
	weight := g.Let(l.wholeWeight(g).To(x.DType()))
	h := g.FuncFrame(weight, delta.Detach())
	sum := h.Let(weight.Add(delta.Detach().MulScalar()))
	length := sum.Norm(2, false, 1)
	h.End(length)
	g.Let(length)
	g.Set(&length, length.Detach())
	scale := g.Let(l.Magnitude.Weight.Div(length).View(1, -1))
	y := g.Let(scale.AddScalar().Mul(base).Add(scale.Mul(adapted).MulScalar()))
	return g.Return(y.Add(base))
}

// wholeWeight is the frozen weight, unpacked if it is in 4 bits.
func (l *LoRALinear) wholeWeight(f *trace.Frame) *trace.Tensor {
	switch base := l.BaseLayer.(type) {
	case *Linear4bit:
		return base.packed.dequantize(f)
	case *Linear:
		return base.Weight.Tensor
	default:
		panic("nn: magnitudes beside a layer of another kind")
	}
}

// delta is get_lora_weight: the adapter's weight, by way of its layers.
func (l *LoRALinear) delta(f *trace.Frame) *trace.Tensor {
	in, _ := l.BaseLayer.Widths()
	g := f.FuncFrame()
	eye := g.Let(f.Tape().Filled("eye", l.LoraA.Weight.DType, in, in))
	return g.Return(g.Let(g.Call(l.LoraB, g.Call(l.LoraA, eye)).Transpose(0, 1)))
}

// TakesMagnitude tells whether an adapter has no magnitude, or is beside a linear layer as
// PyTorch has it.
func TakesMagnitude(a Adapter) bool {
	l, ok := a.(*LoRALinear)
	if !ok || l.Magnitude == nil {
		return true
	}
	switch l.BaseLayer.(type) {
	case *Linear4bit:
		return l.torchtune
	case *Linear:
		return true
	default:
		return false
	}
}

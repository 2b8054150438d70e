package nn

import "github.com/vprof/vprof/profiler/trace"

// doraMagnitude is peft's DoraLinearLayer: a trained magnitude for each row of the adapted weight.
type doraMagnitude struct {
	Module
	Weight *Parameter
}

// Trained returns the adapter's trained parameters, for [Adapter].
func (l *LoRALinear) Trained() []*Parameter {
	all := []*Parameter{l.LoraA.Weight, l.LoraB.Weight}
	if l.Magnitude != nil {
		all = append(all, l.Magnitude.Weight)
	}
	if l.LoraB.Bias != nil {
		all = append(all, l.LoraB.Bias)
	}
	return all
}

// peftDoRA records DoraLinearVariant.forward of peft 0.21.
func (l *LoRALinear) peftDoRA(f *trace.Frame, x, result *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(x, result)
	base := result
	if _, drops := l.LoraDropout.(*Dropout); drops {
		g.Set(&x, g.Call(l.LoraDropout, x))
		base = nil
	}
	return g.Return(result.Add(g.Bind(l.doraDelta(g, x, base))))
}

// doraDelta records DoraLinearLayer.forward. base is the frozen layer's result; nil if dropout has changed the input.
func (l *LoRALinear) doraDelta(f *trace.Frame, x, base *trace.Tensor) *trace.Tensor {
	g := f.ModuleFrame(l.Magnitude, x, base)
	delta := g.Bind(l.loraWeight(g))
	g.Set(&delta, delta.To(x.DType()))
	weight := g.Bind(l.frozenWeight(g))
	g.Set(&weight, weight.To(x.DType()))
	length := g.Bind(rowNorms(g, weight, delta))
	scale := g.Bind(l.Magnitude.Weight.Div(length.Detach()).View(1, -1))
	adapted := g.Bind(g.Call(l.LoraB, g.Call(l.LoraA, x)))
	if base == nil {
		base = g.Bind(x.Linear(weight, nil))
	} else if bias := l.frozenBias(); bias != nil {
		g.Set(&base, base.Sub(bias))
	}
	return g.Return(g.Bind(scale.AddScalar().Mul(base).Add(scale.Mul(adapted).MulScalar())))
}

// torchtuneDoRA returns the tensor that DoRALinear.forward of torchtune 0.7 adds to the frozen layer's result.
func (l *LoRALinear) torchtuneDoRA(f *trace.Frame, x, base *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(x, base)
	g.SetModule(l.Magnitude)
	in, _ := l.BaseLayer.Widths()
	g.Set(&x, g.Call(l.LoraDropout, x))
	adapted := g.Bind(g.Call(l.LoraB, g.Call(l.LoraA, x)))
	eye := g.Bind(g.Tape().Filled("eye", x.DType(), in, in))
	delta := g.Bind(g.Call(l.LoraB, g.Call(l.LoraA, eye)).Transpose(0, 1))
	weight := g.Bind(l.frozenWeight(g).To(x.DType()))
	length := g.Bind(rowNorms(g, weight, delta.Detach()))
	g.Set(&length, length.Detach())
	scale := g.Bind(l.Magnitude.Weight.Div(length).View(1, -1))
	y := g.Bind(scale.AddScalar().Mul(base).Add(scale.Mul(adapted).MulScalar()))
	return g.Return(y.Add(base))
}

func rowNorms(f *trace.Frame, weight, delta *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(weight, delta)
	sum := g.Bind(weight.Add(delta.Detach().MulScalar()))
	return g.Return(sum.Norm(2, false, 1))
}

func (l *LoRALinear) frozenBias() *trace.Tensor {
	if c, ok := l.BaseLayer.(*Conv1D); ok {
		return c.Bias.TensorOrNil()
	}
	return BiasOf(l.BaseLayer)
}

// frozenWeight returns the frozen weight [out, in], dequantized if it is in 4 bits.
func (l *LoRALinear) frozenWeight(f *trace.Frame) *trace.Tensor {
	switch base := l.BaseLayer.(type) {
	case *Linear4bit:
		return base.packed.dequantize(f)
	case *Linear:
		return base.Weight.Tensor
	case *Conv1D:
		return base.Weight.TensorOrNil().T()
	default:
		panic("nn: DoRA of a layer of another kind")
	}
}

// loraWeight records get_lora_weight: the product of the adapter's two matrices, computed by calling its layers.
func (l *LoRALinear) loraWeight(f *trace.Frame) *trace.Tensor {
	in, _ := l.BaseLayer.Widths()
	g := f.FunctionFrame()
	eye := g.Bind(f.Tape().Filled("eye", l.LoraA.Weight.DType, in, in))
	return g.Return(g.Bind(g.Call(l.LoraB, g.Call(l.LoraA, eye)).Transpose(0, 1)))
}

// SupportsDoRA reports whether vprof can record the adapter's DoRA magnitude. Adapters without a magnitude always pass.
func SupportsDoRA(a Adapter) bool {
	l, ok := a.(*LoRALinear)
	if !ok {
		return false
	}
	switch l.BaseLayer.(type) {
	case *Linear, *Linear4bit:
		return true
	case *Conv1D:
		return !l.torchtune
	default:
		return false
	}
}

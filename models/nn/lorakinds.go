package nn

import "github.com/vprof/vprof/profiler/trace"

// LoRAEmbedding is peft's lora.Embedding with one adapter: a frozen table, and a trained low-rank table with a matrix.
type LoRAEmbedding struct {
	Module
	BaseLayer *Embedding
	LoraA     *Parameter `torch:"lora_embedding_A.default"`
	LoraB     *Parameter `torch:"lora_embedding_B.default"`
	off       bool
}

// Trained returns the adapter's trained parameters, for [Adapter].
func (l *LoRAEmbedding) Trained() []*Parameter { return []*Parameter{l.LoraA, l.LoraB} }

// BaseType returns the dtype of the frozen layer's weight, for [Adapter].
func (l *LoRAEmbedding) BaseType() trace.DType { return l.BaseLayer.Weight.DType }

// Disable turns the adapter off or on, for [Adapter].
func (l *LoRAEmbedding) Disable(off bool) { l.off = off }

// Frozen returns the wrapped embedding.
func (l *LoRAEmbedding) Frozen() Layer { return l.BaseLayer }

// Forward maps indices to rows in the data type of the frozen table.
func (l *LoRAEmbedding) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	result := f.Bind(f.Call(l.BaseLayer, x))
	if l.off {
		return result
	}
	dtype := result.DType()
	down, up := f.Bind(l.LoraA.TensorOrNil().T()), f.Bind(l.LoraB.TensorOrNil().T())
	low := f.Bind(x.Embedding(down))
	more := f.Bind(low.Matmul(up).MulScalar())
	if scale := l.BaseLayer.EmbedScale; scale != nil {
		f.Set(&more, more.Mul(scale.To(more.DType())))
	}
	f.Set(&result, result.Add(more))
	return f.Set(&result, result.To(dtype))
}

// LoRAConv is peft's lora.Conv1d, Conv2d or Conv3d with one adapter: a frozen convolution and, in parallel, a
// convolution to r channels followed by one with kernel size 1.
type LoRAConv struct {
	Module
	BaseLayer   *Conv
	LoraDropout Layer `torch:"lora_dropout.default"`
	LoraA       *Conv `torch:"lora_A.default"`
	LoraB       *Conv `torch:"lora_B.default"`
	off         bool
}

// Trained returns the adapter's trained parameters, for [Adapter].
func (l *LoRAConv) Trained() []*Parameter {
	all := []*Parameter{l.LoraA.Weight, l.LoraB.Weight}
	if l.LoraB.Bias != nil {
		all = append(all, l.LoraB.Bias)
	}
	return all
}

// BaseType returns the dtype of the frozen layer's weight, for [Adapter].
func (l *LoRAConv) BaseType() trace.DType { return l.BaseLayer.Weight.DType }

// Disable turns the adapter off or on, for [Adapter].
func (l *LoRAConv) Disable(off bool) { l.off = off }

// Frozen returns the wrapped convolution.
func (l *LoRAConv) Frozen() Layer { return l.BaseLayer }

// Forward maps [N, in, ...] to [N, out, ...] in the data type of the frozen convolution's result.
func (l *LoRAConv) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	result := f.Bind(f.Call(l.BaseLayer, x))
	if l.off {
		return result
	}
	dtype := result.DType()
	f.Set(&x, x.To(l.LoraA.Weight.DType))
	f.Set(&result, result.Add(f.Call(l.LoraB, f.Call(l.LoraA, f.Call(l.LoraDropout, x))).MulScalar()))
	return f.Set(&result, result.To(dtype))
}

// newLayerAdapter returns an adapter around an embedding or convolution; nil if peft has none for the layer.
func newLayerAdapter(l Layer, o LoRA, rank int64) Adapter {
	switch l := l.(type) {
	case *Embedding:
		n, width := l.Weight.Dims[0], l.Weight.Dims[1]
		return &LoRAEmbedding{BaseLayer: l, LoraA: NewParameter(rank, n), LoraB: NewParameter(width, rank)}
	case *Conv:
		kernel, point := l.Weight.Dims[2:], make([]int64, len(l.Weight.Dims)-2)
		for i := range point {
			point[i] = 1
		}
		groups, a := l.args.Groups, l.args
		in, out := l.Weight.Dims[1]*groups, l.Weight.Dims[0]
		down := ConvOptions{Kernel: kernel, Stride: a.Stride, Padding: a.Padding, NoBias: true}
		return &LoRAConv{
			BaseLayer: l, LoraDropout: o.dropout(), LoraA: NewConv(in, rank, down),
			LoraB: NewConv(rank, out, ConvOptions{Kernel: point, Groups: groups, NoBias: !o.Biased}),
		}
	}
	return nil
}

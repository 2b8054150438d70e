package nn

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The number of values that share a scale: of weights, and of scales that are quantized again.
const (
	weightBlock = 64
	scaleBlock  = 256
)

// quantized4bit is a weight in 4 bits with bitsandbytes' QuantState.
type quantized4bit struct {
	weight *Parameter
	from   *Parameter // the original weight, whose shape and data type dequantizing restores
	double bool
	// unpacks is the data type of the dequantized weight (QuantState.dtype).
	unpacks trace.DType
	// The fields of the QuantState: the scales and, if the scales are quantized, their own scales, the table of 8-bit
	// values and the subtracted offset.
	absmax, absmax2, code2, offset *trace.Tensor
	// shared reports whether the table of 8-bit values, which all layers share, is on the GPU.
	shared *bool
}

// newQuantized4bit quantizes a weight of layers that compute in the type compute. An fp32 weight was loaded in that
// type, since peft's prepare_model_for_kbit_training, which casts parameters to fp32, skips quantized weights.
func newQuantized4bit(from *Parameter, double bool, compute trace.DType, shared *bool) *quantized4bit {
	if from.DType == trace.F32 {
		stored := *from
		stored.DType = compute
		from = &stored
	}
	p := &quantized4bit{
		weight: &Parameter{Dims: []int64{ceil.Div(from.Numel(), 2), 1}, DType: trace.U8, Frozen: true},
		from:   from, double: double, unpacks: from.DType, shared: shared,
	}
	p.weight.load = p.quantize
	return p
}

// quantize records quantize_4bit of weights that were moved to the GPU unquantized.
func (p *quantized4bit) quantize(t *trace.Tape) {
	f := t.Frame()
	w := f.Bind(t.New("to_dtype_layout", program.Temporaries, p.from.DType, p.from.Dims...))
	g := f.FunctionFrame(w)
	t.WithClass(program.Weights, func() {
		absmax := g.Bind(t.Empty(trace.F32, ceil.Div(w.Numel(), weightBlock)))
		packed := g.Bind(t.Empty(trace.U8, p.weight.Dims...))
		t.Kernel("quantize_4bit", 4*w.Numel(), []*trace.Tensor{packed, absmax}, []*trace.Tensor{w})
		p.weight.keepQuantized(t, packed)
		code := t.Hold(t.New("to_device", program.Weights, trace.F32, 16))
		g.Discard(code.Abs().Max())
		if !p.double {
			p.absmax = t.Hold(absmax)
			return
		}
		p.offset = t.Hold(absmax.Mean(false))
		p.quantizeScales(t, g, absmax)
	})
	g.End()
	f.End()
}

// keepQuantized replaces the parameter by its quantized form. If a model is loaded in parts, transformers moves that
// form back to the host until its part is loaded; the scales stay on the GPU (_load_state_dict_into_meta_model under
// FSDP or DeepSpeed's stage 3).
func (p *Parameter) keepQuantized(t *trace.Tape, packed *trace.Tensor) {
	if t.SkipsWeightMemory() {
		packed = t.New("to_cpu", program.Weights, packed.DType(), packed.Shape()...)
	}
	p.Tensor = t.Hold(packed)
}

// quantizeScales records quantize_blockwise(absmax - offset, blocksize=256).
func (p *quantized4bit) quantizeScales(t *trace.Tape, f *trace.Frame, absmax *trace.Tensor) {
	g := f.FunctionFrame(trace.Pointwise("sub_Tensor", 1, absmax))
	if !*p.shared {
		*p.shared = true
		t.Hold(t.New("to_dtype_layout", program.Weights, trace.F32, 256))
	}
	p.absmax2 = t.Hold(t.Empty(trace.F32, ceil.Div(absmax.Numel(), scaleBlock)))
	p.absmax = t.Hold(t.Empty(trace.U8, absmax.Numel()))
	t.Kernel("quantize_blockwise", 4*absmax.Numel(), []*trace.Tensor{p.absmax, p.absmax2}, []*trace.Tensor{absmax})
	p.code2 = t.Hold(t.New("to_dtype_layout", program.Weights, trace.F32, 256))
	g.End()
}

// dequantize records bitsandbytes.functional.dequantize_4bit.
func (p *quantized4bit) dequantize(f *trace.Frame) *trace.Tensor {
	t := f.Tape()
	g := f.FunctionFrame()
	absmax := p.absmax
	if p.double {
		absmax = g.Bind(absmax.FilledLike("empty_like", trace.F32))
		trace.Update("add__Tensor", 1, absmax)
	}
	return g.Return(p.dequantizeTo(t, p.unpacks, absmax))
}

// dequantizeTo records dequantize_blockwise into the type d.
func (p *quantized4bit) dequantizeTo(t *trace.Tape, d trace.DType, absmax *trace.Tensor) *trace.Tensor {
	w := t.Empty(d, p.from.Dims...)
	t.Kernel("dequantize_4bit", 2*w.Numel(), []*trace.Tensor{w}, []*trace.Tensor{p.weight.Tensor, absmax})
	return w
}

// quantized8bit is a weight in 8-bit integers with one scale per row.
type quantized8bit struct {
	weight, from *Parameter
	scales       *trace.Tensor
}

func newQuantized8bit(from *Parameter) *quantized8bit {
	p := &quantized8bit{weight: &Parameter{Dims: from.Dims, DType: trace.U8, Frozen: true, returns: true}, from: from}
	p.weight.load = p.quantize
	return p
}

// quantize records int8_vectorwise_quant of a weight that is moved to the GPU in fp16.
func (p *quantized8bit) quantize(t *trace.Tape) {
	f := t.Frame()
	w := f.Bind(t.New("to_dtype_layout", program.Temporaries, trace.F16, p.from.Dims...))
	t.WithClass(program.Weights, func() {
		p.scales = t.Hold(t.Empty(trace.F32, p.from.Numel()/p.from.Dims[len(p.from.Dims)-1]))
		packed := f.Bind(t.Empty(trace.U8, p.from.Dims...))
		t.Kernel("int8_vectorwise_quant", 4*w.Numel(), []*trace.Tensor{packed, p.scales}, []*trace.Tensor{w})
		p.weight.keepQuantized(t, packed)
	})
	f.End()
}

// dequantize records int8_vectorwise_dequant, whose result is fp32.
func (p *quantized8bit) dequantize(f *trace.Frame) *trace.Tensor {
	g := f.FunctionFrame()
	dims := p.from.Dims
	rows := g.Bind(p.weight.Reshape(-1, dims[len(dims)-1]))
	scaled := g.Bind(rows.FilledLike("mul_Tensor", trace.F32))
	return g.Return(scaled.MulScalar().Reshape(dims...))
}

// ExpertQuantizable is a module whose own parameters, the weights of experts, bitsandbytes can quantize.
type ExpertQuantizable interface {
	// QuantizeParameters replaces the module's weights by the results of pack.
	QuantizeParameters(pack func(*Parameter) *Parameter)
}

// QuantizeExperts quantizes the expert weights of a model, as bitsandbytes.nn.parametrize and axolotl's moe_quant do.
// The module's code dequantizes a weight when it reads the attribute.
func QuantizeExperts(t *Tree, q *Quantizer) (found bool) {
	for _, l := range t.packs {
		found = true
		l.QuantizeParameters(q.quantizeParameter)
	}
	return found
}

func (q *Quantizer) quantizeParameter(p *Parameter) *Parameter {
	unpack := &parametrization{from: p, stuck: &q.stuck}
	var weight *Parameter
	if q.q == Int8 {
		packed := newQuantized8bit(p)
		weight, unpack.dequantize = packed.weight, packed.dequantize
	} else {
		packed := newQuantized4bit(p, q.q == NF4Double, q.compute, &q.loaded)
		weight, unpack.dequantize = packed.weight, packed.dequantize
	}
	weight.unpack = unpack
	return weight
}

// parametrization is the parametrization (torch.nn.utils.parametrize) that dequantizes a parameter, with PyTorch's
// cache, which hooks of the module turn on and off.
type parametrization struct {
	dequantize func(f *trace.Frame) *trace.Tensor
	// from is the parameter before it was quantized.
	from   *Parameter
	cached *trace.Tensor
	// stuck reports whether the cache stays on for all modules, see [EndAttributeReads].
	stuck *bool
}

// ReadAttribute returns the parameter as the module's code reads it. A quantized one is dequantized without autograd
// and stays in PyTorch's cache until the frame f of the module's forward ends.
func (p *Parameter) ReadAttribute(f *trace.Frame) *trace.Tensor {
	if p.wrapper != nil && p.wrapper.around != nil {
		return p.wrapper.adaptedValue(f)
	}
	if p.unpack == nil {
		return p.Tensor
	}
	if p.unpack.cached != nil {
		return p.unpack.cached
	}
	var w *trace.Tensor
	f.Tape().NoGrad(func() { w = f.Bind(p.unpack.dequantize(f)) })
	if *p.unpack.stuck {
		p.unpack.cached = f.Tape().Hold(w)
	}
	return w
}

// EndAttributeReads ends the forward pass of a module that has read params as values. If a recomputation under
// checkpointing stops early, an exception leaves the module and skips the hook that turns PyTorch's cache off. The
// cache then stays on, and the dequantized tensors stay in memory.
func EndAttributeReads(t *trace.Tape, params []*Parameter, values []*trace.Tensor) {
	if !t.Unwinding() {
		return
	}
	for i, p := range params {
		if p.unpack != nil && p.unpack.cached == nil {
			*p.unpack.stuck = true
			p.unpack.cached = t.Hold(values[i])
		}
	}
}

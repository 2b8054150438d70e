package nn

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The blocks that share a scale: of weights, and of scales that are quantized again.
const (
	weightBlock = 64
	scaleBlock  = 256
)

// packed4bit is a weight in 4 bits with its QuantState.
type packed4bit struct {
	weight *Parameter
	from   *Parameter // the weight as it was stored: unpacked, it has its shape and type again
	double bool
	// unpacks is the dtype of the unpacked weight by the QuantState.
	unpacks trace.DType
	// The state: scales, and if those are quantized their own scales, the table of
	// their values, and what was subtracted from them.
	absmax, absmax2, code2, offset *trace.Tensor
	// shared reports whether the table of 8-bit values is on the device.
	shared *bool
}

// newPacked4bit packs a weight for layers that compute in a dtype. An fp32 weight was loaded in that dtype: peft's
// prepare_model_for_kbit_training, which converts the others, skips packed weights.
func newPacked4bit(from *Parameter, double bool, compute trace.DType, shared *bool) *packed4bit {
	if from.DType == trace.F32 {
		stored := *from
		stored.DType = compute
		from = &stored
	}
	p := &packed4bit{
		weight: &Parameter{Dims: []int64{ceil.Div(from.Numel(), 2), 1}, DType: trace.U8, Frozen: true},
		from:   from, double: double, unpacks: from.DType, shared: shared,
	}
	p.weight.load = p.quantize
	return p
}

// quantize records quantize_4bit of weights that are moved to the device unquantized.
func (p *packed4bit) quantize(t *trace.Tape) {
	f := t.Frame()
	w := f.Bind(t.New("to_dtype_layout", program.Temporaries, p.from.DType, p.from.Dims...))
	g := f.FuncFrame(w)
	t.WithClass(program.Weights, func() {
		absmax := g.Bind(t.Empty(trace.F32, ceil.Div(w.Numel(), weightBlock)))
		packed := g.Bind(t.Empty(trace.U8, p.weight.Dims...))
		t.Kernel("quantize_4bit", 4*w.Numel(), []*trace.Tensor{packed, absmax}, []*trace.Tensor{w})
		p.weight.keepPacked(t, packed)
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

// keepPacked replaces the parameter by its packed form on the device. If a model moves to the device in parts,
// transformers moves the packed form back to the host until its part is loaded; the scales stay
// (_load_state_dict_into_meta_model with FSDP or DeepSpeed's stage 3).
func (p *Parameter) keepPacked(t *trace.Tape, packed *trace.Tensor) {
	if t.SkipsWeightMemory() {
		packed = t.New("to_cpu", program.Weights, packed.DType(), packed.Shape()...)
	}
	p.Tensor = t.Hold(packed)
}

// quantizeScales records quantize_blockwise(absmax - offset, blocksize=256).
func (p *packed4bit) quantizeScales(t *trace.Tape, f *trace.Frame, absmax *trace.Tensor) {
	g := f.FuncFrame(trace.Pointwise("sub_Tensor", 1, absmax))
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
func (p *packed4bit) dequantize(f *trace.Frame) *trace.Tensor {
	t := f.Tape()
	g := f.FuncFrame()
	absmax := p.absmax
	if p.double {
		absmax = g.Bind(absmax.FilledLike("empty_like", trace.F32))
		trace.Update("add__Tensor", 1, absmax)
	}
	return g.Return(p.unpacked(t, p.unpacks, absmax))
}

// unpacked returns the weight in a floating-point type.
func (p *packed4bit) unpacked(t *trace.Tape, d trace.DType, absmax *trace.Tensor) *trace.Tensor {
	w := t.Empty(d, p.from.Dims...)
	t.Kernel("dequantize_4bit", 2*w.Numel(), []*trace.Tensor{w}, []*trace.Tensor{p.weight.Tensor, absmax})
	return w
}

// packed8bit is a weight of rows in 8 bits, each with a scale.
type packed8bit struct {
	weight, from *Parameter
	scales       *trace.Tensor
}

func newPacked8bit(from *Parameter) *packed8bit {
	p := &packed8bit{weight: &Parameter{Dims: from.Dims, DType: trace.U8, Frozen: true, returns: true}, from: from}
	p.weight.load = p.quantize
	return p
}

// quantize records int8_vectorwise_quant of weights that come to the device in fp16.
func (p *packed8bit) quantize(t *trace.Tape) {
	f := t.Frame()
	w := f.Bind(t.New("to_dtype_layout", program.Temporaries, trace.F16, p.from.Dims...))
	t.WithClass(program.Weights, func() {
		p.scales = t.Hold(t.Empty(trace.F32, p.from.Numel()/p.from.Dims[len(p.from.Dims)-1]))
		packed := f.Bind(t.Empty(trace.U8, p.from.Dims...))
		t.Kernel("int8_vectorwise_quant", 4*w.Numel(), []*trace.Tensor{packed, p.scales}, []*trace.Tensor{w})
		p.weight.keepPacked(t, packed)
	})
	f.End()
}

// dequantize records int8_vectorwise_dequant, whose result is in fp32.
func (p *packed8bit) dequantize(f *trace.Frame) *trace.Tensor {
	g := f.FuncFrame()
	dims := p.from.Dims
	rows := g.Bind(p.weight.Reshape(-1, dims[len(dims)-1]))
	scaled := g.Bind(rows.FilledLike("mul_Tensor", trace.F32))
	return g.Return(scaled.MulScalar().Reshape(dims...))
}

// PacksParameters is a module whose own parameters bitsandbytes can quantize: weights of experts.
type PacksParameters interface {
	// PackParameters replaces its weights by the results of pack.
	PackParameters(pack func(*Parameter) *Parameter)
}

// PackExperts quantizes the parameters of a tree's [PacksParameters], as bitsandbytes.nn.parametrize and axolotl's
// moe_quant do: reading the module's attribute unpacks them.
func PackExperts(t *Tree, q *Quantizer) (found bool) {
	for _, l := range t.packs {
		found = true
		l.PackParameters(q.parameter)
	}
	return found
}

// parameter returns a parameter as bitsandbytes holds it.
func (q *Quantizer) parameter(p *Parameter) *Parameter {
	unpack := &unpacking{from: p, stuck: &q.stuck}
	var weight *Parameter
	if q.q == Int8 {
		packed := newPacked8bit(p)
		weight, unpack.dequantize = packed.weight, packed.dequantize
	} else {
		packed := newPacked4bit(p, q.q == NF4Double, q.compute, &q.loaded)
		weight, unpack.dequantize = packed.weight, packed.dequantize
	}
	weight.unpack = unpack
	return weight
}

// unpacking is torch.nn.utils.parametrize of a packed parameter, with a cache that hooks turn on and off.
type unpacking struct {
	dequantize func(f *trace.Frame) *trace.Tensor
	// from is the parameter that is packed.
	from   *Parameter
	cached *trace.Tensor
	// stuck reports whether the cache of all modules is on permanently.
	stuck *bool
}

// Access returns the parameter as its module's code reads it: a packed one is unpacked without autograd. f is the frame
// of the module's forward pass; the cache keeps the unpacked tensor until the frame ends.
func (p *Parameter) Access(f *trace.Frame) *trace.Tensor {
	if p.wrapper != nil && p.wrapper.around != nil {
		return p.wrapper.access(f)
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

// Accessed ends the forward pass of a module that has read parameters as values. A recomputation that stops early
// inside leaves by an exception and skips the hook that turns the cache off: the cache then stays on, and all unpacked
// tensors stay in memory.
func Accessed(t *trace.Tape, params []*Parameter, values []*trace.Tensor) {
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

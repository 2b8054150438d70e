package nn

import (
	"reflect"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Quantization is how bitsandbytes holds the weights of linear layers.
type Quantization uint8

// The quantizations.
const (
	// NF4 packs two values into a byte, with a scale in fp32 for each block.
	NF4 Quantization = iota
	// NF4Double has its scales in a byte each, with scales of their own.
	NF4Double
	// Int8 is LLM.int8(): a byte a value, with a scale in fp32 for each row.
	Int8
)

// The blocks that share a scale: of weights, and of scales that are quantized again.
const (
	weightBlock = 64
	scaleBlock  = 256
)

// QuantizeLinears holds the linear layers of a model as bitsandbytes does, but not
// those given: it replaces them with layers that cannot be trained. compute is the
// type that 4-bit layers compute in.
func QuantizeLinears(model any, q Quantization, compute trace.DType, but ...Layer) {
	quantizer := NewQuantizer(q, compute)
	walkLinears(model, but, func(v reflect.Value, _ string) {
		l, ok := v.Interface().(*Linear)
		if !ok {
			return // transformers leaves other layers alone
		}
		v.Set(reflect.ValueOf(quantizer.Layer(l)))
	})
}

// Quantizer makes the layers of one model that bitsandbytes holds.
type Quantizer struct {
	q       Quantization
	compute trace.DType
	loaded  bool // the table of 8-bit values, which all layers share
}

// NewQuantizer begins with a model; compute is the type that 4-bit layers compute in.
func NewQuantizer(q Quantization, compute trace.DType) *Quantizer {
	return &Quantizer{q: q, compute: compute}
}

// Quantized is a linear layer whose weight cannot be trained.
type Quantized interface {
	Projection
	// Load brings the weight to the device and packs it there, and returns it.
	Load(t *trace.Tape) *trace.Tensor
}

// Layer is a linear layer as bitsandbytes holds it, with the bias of l.
func (q *Quantizer) Layer(l *Linear) Quantized {
	if q.q == Int8 {
		return newLinear8bit(l)
	}
	return newLinear4bit(l, q.q == NF4Double, q.compute, &q.loaded)
}

// Linear4bit is bitsandbytes.nn.Linear4bit, of release 0.50.
type Linear4bit struct {
	Module
	Weight, Bias *Parameter
	in, out      int64
	double       bool
	compute      trace.DType
	from         *Parameter // the weight as it was stored: unpacked, it has its type again
	// The state: scales, and if those are quantized their own scales, the table of
	// their values, and what was subtracted from them.
	absmax, absmax2, code2, offset *trace.Tensor
	// shared says whether the table of 8-bit values is on the device.
	shared *bool
}

func newLinear4bit(l *Linear, double bool, compute trace.DType, shared *bool) *Linear4bit {
	in, out := l.widths()
	q := &Linear4bit{
		Weight: &Parameter{Dims: []int64{ceil.Div(in*out, 2), 1}, DType: trace.U8, Frozen: true},
		Bias:   l.Bias, in: in, out: out, double: double, compute: compute, from: l.Weight, shared: shared,
	}
	q.Weight.load = q.quantize
	return q
}

func (l *Linear4bit) widths() (in, out int64) { return l.in, l.out }

// Load implements [Quantized].
func (l *Linear4bit) Load(t *trace.Tape) *trace.Tensor {
	l.quantize(t)
	return l.Weight.Tensor
}

// adapterType is the type that peft makes adapters beside the layer in.
func (l *Linear4bit) adapterType() trace.DType { return l.compute }

// quantize is Params4bit._quantize: the weights come to the device as they are
// stored, and are packed there.
func (l *Linear4bit) quantize(t *trace.Tape) {
	f := t.Frame()
	w := f.Let(t.New("to_dtype_layout", program.Temporaries, l.from.DType, l.out, l.in))
	g := f.FuncFrame(w)
	t.In(program.Weights, func() {
		absmax := g.Let(t.Empty(trace.F32, ceil.Div(w.Numel(), weightBlock)))
		l.Weight.Tensor = t.Hold(t.Empty(trace.U8, l.Weight.Dims...))
		t.Kernel("quantize_4bit", 4*w.Numel(), []*trace.Tensor{l.Weight.Tensor, absmax}, []*trace.Tensor{w})
		code := t.Hold(t.New("to_device", program.Weights, trace.F32, 16))
		g.Discard(code.Abs().Max())
		if !l.double {
			l.absmax = t.Hold(absmax)
			return
		}
		l.offset = t.Hold(absmax.Mean(false))
		l.quantizeScales(t, g, absmax)
	})
	g.End()
	f.End()
}

// quantizeScales is quantize_blockwise(absmax - offset, blocksize=256).
func (l *Linear4bit) quantizeScales(t *trace.Tape, f *trace.Frame, absmax *trace.Tensor) {
	g := f.FuncFrame(trace.Pointwise("sub_Tensor", 1, absmax))
	if !*l.shared {
		*l.shared = true
		t.Hold(t.New("to_dtype_layout", program.Weights, trace.F32, 256))
	}
	l.absmax2 = t.Hold(t.Empty(trace.F32, ceil.Div(absmax.Numel(), scaleBlock)))
	l.absmax = t.Hold(t.Empty(trace.U8, absmax.Numel()))
	t.Kernel("quantize_blockwise", 4*absmax.Numel(), []*trace.Tensor{l.absmax, l.absmax2}, []*trace.Tensor{absmax})
	l.code2 = t.Hold(t.New("to_dtype_layout", program.Weights, trace.F32, 256))
	g.End()
}

// Forward maps [..., in] to [..., out] in the type of x; it computes in another.
func (l *Linear4bit) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	dtype := x.DType()
	f.Set(&x, x.To(l.compute))
	bias := l.Bias.T()
	if bias != nil {
		bias = f.Let(bias.To(l.compute))
	}
	g := f.FuncFrame(x, l.Weight.Tensor)
	var y *trace.Tensor
	if f.Tape().Tracks(x, bias) {
		y = g.Apply(l.function(), x, l.Weight.Tensor, bias)[0]
	} else {
		y = l.multiply(g, x, bias)
	}
	g.End(y)
	return y.To(dtype)
}

// function is MatMul4Bit, of x, the packed weight and a bias.
func (l *Linear4bit) function() *trace.Function {
	return &trace.Function{
		Name: "MatMul4BitBackward",
		Forward: func(f *trace.Frame, _ *trace.FunctionContext, in []*trace.Tensor) []*trace.Tensor {
			return []*trace.Tensor{l.multiply(f, in[0], in[2])}
		},
		Backward: func(f *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
			out := make([]*trace.Tensor, 3)
			grad := grads[0]
			if ctx.NeedsInputGrad(2) {
				out[2] = f.Let(grad.Sum(false, 0))
			}
			if ctx.NeedsInputGrad(0) {
				out[0] = f.Let(grad.Matmul(l.dequantize(f).To(grad.DType())))
			}
			return out
		},
	}
}

// multiply is gemm_4bit: for a few rows one kernel that unpacks as it goes, else the
// weight is unpacked first.
func (l *Linear4bit) multiply(f *trace.Frame, x, bias *trace.Tensor) *trace.Tensor {
	t := f.Tape()
	rows := x.Numel() / l.in
	if l.in%weightBlock == 0 && fusedGemm4bit(t.Board(), x.DType(), rows, l.out, l.in) {
		y := t.Empty(x.DType(), append(append([]int64(nil), x.Shape()[:x.NDim()-1]...), l.out)...)
		t.Product("gemm_4bit", 2*rows*l.in*l.out, []*trace.Tensor{y}, []*trace.Tensor{x, l.Weight.Tensor, l.absmax})
		return y
	}
	g := f.FuncFrame(x, l.absmax)
	absmax := l.absmax
	if l.double {
		scales := g.Let(absmax.FilledLike("empty_like", trace.F32))
		g.Set(&absmax, trace.Pointwise("add_Tensor", 1, scales))
	}
	w := g.Let(l.unpacked(t, x.DType(), absmax))
	y := x.Linear(w, bias)
	g.End(y)
	return y
}

// dequantize is bitsandbytes.functional.dequantize_4bit.
func (l *Linear4bit) dequantize(f *trace.Frame) *trace.Tensor {
	t := f.Tape()
	g := f.FuncFrame()
	absmax := l.absmax
	if l.double {
		absmax = g.Let(absmax.FilledLike("empty_like", trace.F32))
		trace.Update("add__Tensor", 1, absmax)
	}
	w := l.unpacked(t, l.from.DType, absmax)
	g.End(w)
	return w
}

// unpacked is the weight in a type of floating point.
func (l *Linear4bit) unpacked(t *trace.Tape, d trace.DType, absmax *trace.Tensor) *trace.Tensor {
	w := t.Empty(d, l.out, l.in)
	t.Kernel("dequantize_4bit", 2*w.Numel(), []*trace.Tensor{w}, []*trace.Tensor{l.Weight.Tensor, absmax})
	return w
}

// Linear8bit is bitsandbytes.nn.Linear8bitLt without weights in fp16
// (has_fp16_weights=False), as transformers loads it.
type Linear8bit struct {
	Module
	Weight, Bias *Parameter
	in, out      int64
	scales       *trace.Tensor
}

func newLinear8bit(l *Linear) *Linear8bit {
	in, out := l.widths()
	q := &Linear8bit{
		Weight: &Parameter{Dims: []int64{out, in}, DType: trace.U8, Frozen: true},
		Bias:   l.Bias, in: in, out: out,
	}
	q.Weight.load = q.quantize
	return q
}

func (l *Linear8bit) widths() (in, out int64) { return l.in, l.out }

// Load implements [Quantized].
func (l *Linear8bit) Load(t *trace.Tape) *trace.Tensor {
	l.quantize(t)
	return l.Weight.Tensor
}

// adapterType is the type that peft makes adapters beside the layer in.
func (l *Linear8bit) adapterType() trace.DType { return trace.F32 }

// quantize is Int8Params._quantize: the weights come to the device in fp16.
func (l *Linear8bit) quantize(t *trace.Tape) {
	f := t.Frame()
	w := f.Let(t.New("to_dtype_layout", program.Temporaries, trace.F16, l.out, l.in))
	t.In(program.Weights, func() {
		l.scales = t.Hold(t.Empty(trace.F32, l.out))
		l.Weight.Tensor = t.Hold(t.Empty(trace.U8, l.out, l.in))
	})
	t.Kernel("int8_vectorwise_quant", 4*w.Numel(), []*trace.Tensor{l.Weight.Tensor, l.scales}, []*trace.Tensor{w})
	f.End()
}

// Forward maps [..., in] to [..., out].
func (l *Linear8bit) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return f.Apply(l.function(), x, l.Weight.Tensor, l.Bias.T())[0]
}

// function is MatMul8bitLt with the threshold of transformers, 6: columns with
// outliers are multiplied apart. There are as good as none in a batch that is not
// known, but looking for them takes memory.
func (l *Linear8bit) function() *trace.Function {
	return &trace.Function{
		Name: "MatMul8bitLtBackward",
		Forward: func(f *trace.Frame, ctx *trace.FunctionContext, in []*trace.Tensor) []*trace.Tensor {
			x := in[0]
			shape := append([]int64(nil), x.Shape()...)
			f.Set(&x, x.Reshape(-1, l.in))
			y := l.multiply(f, x, in[2])
			if ctx.NeedsInputGrad(0) {
				ctx.Keep(x)
			}
			shape[len(shape)-1] = l.out
			return []*trace.Tensor{y.Reshape(shape...)}
		},
		Backward: func(f *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
			out := make([]*trace.Tensor, 3)
			grad := grads[0]
			if ctx.NeedsInputGrad(2) {
				out[2] = f.Let(grad.Sum(false, 0))
			}
			if ctx.NeedsInputGrad(0) {
				shape := append([]int64(nil), grad.Shape()...)
				shape[len(shape)-1] = l.in
				d := ctx.Kept(0).DType()
				f.Set(&grad, grad.Reshape(-1, l.out).Contiguous())
				w := f.Let(trace.Update("mul__Tensor", 1, l.Weight.FilledLike("to_dtype", d), trace.Pointwise("mul_Tensor", 1, l.scales)))
				out[0] = f.Let(grad.To(d).Matmul(w).View(shape...))
			}
			return out
		},
	}
}

// multiply quantizes x by rows and multiplies in integers (int8_mixed_scaled_mm).
func (l *Linear8bit) multiply(f *trace.Frame, x, bias *trace.Tensor) *trace.Tensor {
	t := f.Tape()
	g := f.FuncFrame(x)
	half := g.Let(x.To(trace.F16))
	rows := half.Numel() / l.in
	scales := g.Let(t.Empty(trace.F32, rows))
	q := g.Let(t.Empty(trace.U8, rows, l.in))
	g.Discard(trace.Pointwise("abs", 1, half).FilledLike("ge_Scalar", trace.Bool).Any(false))
	t.Kernel("int8_vectorwise_quant", 4*half.Numel(), []*trace.Tensor{q, scales}, []*trace.Tensor{half})
	g.Del(&half)
	sums := g.Let(t.Empty(trace.I32, rows, l.out))
	t.Product("int8_linear_matmul", 2*rows*l.in*l.out, []*trace.Tensor{sums}, []*trace.Tensor{q, l.Weight.Tensor})
	y := g.Let(sums.FilledLike("int8_mm_dequant", trace.F16))
	if bias != nil {
		trace.Update("add__Tensor", 1, y, bias)
	}
	result := y.To(x.DType())
	g.End(result)
	return result
}

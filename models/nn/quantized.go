package nn

import (
	"reflect"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Quantization is the format in which bitsandbytes stores the weights of linear layers.
type Quantization uint8

// The names of bitsandbytes' quantizations.
const (
	// NF4 stores two values in a byte, with an fp32 scale for each block of 64 values.
	NF4 Quantization = iota
	// NF4Double also quantizes the scales to 8 bits (bnb_4bit_use_double_quant).
	NF4Double
	// Int8 is LLM.int8(): one byte per value, with an fp32 scale for each row.
	Int8
)

// QuantizeLinears replaces a model's linear layers, except the excluded ones, by bitsandbytes' layers, which cannot
// be trained. It returns their number.
func QuantizeLinears(model any, q *Quantizer, excluded ...Layer) (replaced int) {
	WalkLinears(model, excluded, func(v reflect.Value, _ string) {
		l, ok := v.Interface().(*Linear)
		if !ok {
			return // transformers quantizes no other layers
		}
		v.Set(reflect.ValueOf(q.quantizeLinear(l)))
		replaced++
	})
	return replaced
}

// Quantizer replaces the linear layers of one model by bitsandbytes' layers.
type Quantizer struct {
	q       Quantization
	compute trace.DType
	loaded  bool // the table of 8-bit values, which all layers share, is on the GPU
	stuck   bool // the cache of dequantized parameters stays on, see [EndAttributeReads]
	early   bool // see [Quantizer.UseEarlyRelease]
}

// NewQuantizer returns a quantizer for one model. compute is the data type in which 4-bit layers compute.
func NewQuantizer(q Quantization, compute trace.DType) *Quantizer {
	return &Quantizer{q: q, compute: compute}
}

// UseEarlyRelease selects the 4-bit layers of bitsandbytes 0.42, which always dequantize to fp16 first and save their
// inputs although backward does not need them.
func (q *Quantizer) UseEarlyRelease() { q.early = true }

func (q *Quantizer) quantizeLinear(l *Linear) Projection {
	if q.q == Int8 {
		return newLinear8bit(l)
	}
	made := newLinear4bit(l, q.q == NF4Double, q.compute, &q.loaded)
	if q.early {
		made.early, made.packed.unpacks = true, trace.F16
	}
	return made
}

// Linear4bit is bitsandbytes.nn.Linear4bit, of release 0.50.
type Linear4bit struct {
	Module
	Weight, Bias *Parameter
	in, out      int64
	compute      trace.DType
	packed       *quantized4bit
	early        bool
}

func newLinear4bit(l *Linear, double bool, compute trace.DType, shared *bool) *Linear4bit {
	in, out := l.Widths()
	q := &Linear4bit{Bias: l.Bias, in: in, out: out, compute: compute}
	q.packed = newQuantized4bit(l.Weight, double, compute, shared)
	q.Weight = q.packed.weight
	return q
}

// Widths returns the layer's input and output widths, for [Projection].
func (l *Linear4bit) Widths() (in, out int64) { return l.in, l.out }

// AdapterType returns the dtype of adapters on the layer, for [Projection].
func (l *Linear4bit) AdapterType() trace.DType { return l.compute }

// Forward maps [..., in] to [..., out] in the data type of x; the product is computed in the layer's compute type.
func (l *Linear4bit) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	dtype := x.DType()
	f.Set(&x, x.To(l.compute))
	l.castBias(f.Tape())
	bias := l.Bias.TensorOrNil()
	if bias != nil {
		bias = f.Bind(bias.To(l.compute))
	}
	g := f.FunctionFrame(x, l.Weight.Tensor)
	var y *trace.Tensor
	if f.Tape().RequiresGrad(x, bias) {
		y = g.Apply(l.function(), x, l.Weight.Tensor, bias)[0]
	} else {
		y = l.multiply(g, x, bias)
	}
	g.End(y)
	return y.To(dtype)
}

// castBias casts a frozen bias to the compute type for good (bias.data = bias.data.to(x.dtype)).
func (l *Linear4bit) castBias(t *trace.Tape) {
	b := l.Bias
	if b == nil || !b.Frozen || b.DType == l.compute {
		return
	}
	wide := b.Tensor
	b.DType = l.compute
	b.Tensor = t.Hold(t.New("to_copy", program.Weights, b.DType, b.Dims...))
	t.Release(wide)
}

// function returns the autograd function MatMul4Bit of x, the quantized weight and a bias.
func (l *Linear4bit) function() *trace.Function {
	return &trace.Function{
		Name: "MatMul4BitBackward",
		Forward: func(f *trace.Frame, ctx *trace.FunctionContext, in []*trace.Tensor) []*trace.Tensor {
			y := l.multiply(f, in[0], in[2])
			if l.early {
				ctx.Keep(in[0]) // ctx.tensors = (A, B)
			}
			return []*trace.Tensor{y}
		},
		Backward: func(f *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
			out := make([]*trace.Tensor, 3)
			grad := grads[0]
			if ctx.NeedsInputGrad(2) {
				out[2] = f.Bind(grad.Sum(false, 0))
			}
			if ctx.NeedsInputGrad(0) {
				out[0] = f.Bind(grad.Matmul(l.packed.dequantize(f).To(grad.DType())))
			}
			return out
		},
	}
}

// multiply records gemm_4bit. For few rows one kernel dequantizes and multiplies; else the weight is dequantized first.
func (l *Linear4bit) multiply(f *trace.Frame, x, bias *trace.Tensor) *trace.Tensor {
	if l.early {
		g := f.FunctionFrame(x)
		y := x.Linear(g.Bind(l.packed.dequantize(g).To(x.DType())), bias)
		return g.Return(y)
	}
	t := f.Tape()
	rows := x.Numel() / l.in
	if l.in%weightBlock == 0 && trace.GPUProperty(t, func(gpu trace.GPU) bool {
		return fusedGemm4bit(gpu, x.DType(), rows, l.out, l.in)
	}) {
		y := t.Empty(x.DType(), append(slices.Clone(x.Shape()[:x.NDim()-1]), l.out)...)
		t.Product("gemm_4bit", 2*rows*l.in*l.out, []*trace.Tensor{y},
			[]*trace.Tensor{x, l.Weight.Tensor, l.packed.absmax})
		return y
	}
	g := f.FunctionFrame(x, l.packed.absmax)
	absmax := l.packed.absmax
	if l.packed.double {
		scales := g.Bind(absmax.FilledLike("empty_like", trace.F32))
		g.Set(&absmax, trace.Pointwise("add_Tensor", 1, scales))
	}
	w := g.Bind(l.packed.dequantizeTo(t, x.DType(), absmax))
	var y *trace.Tensor
	t.BelowDispatch(func() { y = x.Linear(w, bias) })
	return g.Return(y)
}

// Linear8bit is bitsandbytes.nn.Linear8bitLt with has_fp16_weights=False, as transformers creates it.
type Linear8bit struct {
	Module
	Weight, Bias *Parameter
	in, out      int64
	packed       *quantized8bit
}

func newLinear8bit(l *Linear) *Linear8bit {
	in, out := l.Widths()
	q := &Linear8bit{Bias: l.Bias, in: in, out: out, packed: newQuantized8bit(l.Weight)}
	q.Weight = q.packed.weight
	return q
}

// Widths returns the layer's input and output widths, for [Projection].
func (l *Linear8bit) Widths() (in, out int64) { return l.in, l.out }

// AdapterType returns the dtype of adapters on the layer, for [Projection].
func (l *Linear8bit) AdapterType() trace.DType { return trace.F32 }

// Forward maps [..., in] to [..., out].
func (l *Linear8bit) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return f.Apply(l.function(), x, l.Weight.Tensor, l.Bias.TensorOrNil())[0]
}

// function returns the autograd function MatMul8bitLt with transformers' threshold, 6. Columns with values above it
// are multiplied separately. The recording assumes that there are none, but searching for them allocates memory.
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
				out[2] = f.Bind(grad.Sum(false, 0))
			}
			if ctx.NeedsInputGrad(0) {
				shape := append([]int64(nil), grad.Shape()...)
				shape[len(shape)-1] = l.in
				d := ctx.Attribute(0).DType()
				f.Set(&grad, grad.Reshape(-1, l.out).Contiguous())
				w := f.Bind(trace.Update("mul__Tensor", 1, l.Weight.FilledLike("to_dtype", d),
					trace.Pointwise("mul_Tensor", 1, l.packed.scales)))
				out[0] = f.Bind(grad.To(d).Matmul(w).View(shape...))
			}
			return out
		},
	}
}

// multiply quantizes the rows of x and multiplies 8-bit integers (int8_mixed_scaled_mm).
func (l *Linear8bit) multiply(f *trace.Frame, x, bias *trace.Tensor) *trace.Tensor {
	t := f.Tape()
	g := f.FunctionFrame(x)
	half := g.Bind(x.To(trace.F16))
	rows := half.Numel() / l.in
	scales := g.Bind(t.Empty(trace.F32, rows))
	q := g.Bind(t.Empty(trace.U8, rows, l.in))
	g.Discard(trace.Pointwise("abs", 1, half).FilledLike("ge_Scalar", trace.Bool).Any(false))
	t.Kernel("int8_vectorwise_quant", 4*half.Numel(), []*trace.Tensor{q, scales}, []*trace.Tensor{half})
	g.Del(&half)
	sums := g.Bind(t.Empty(trace.I32, rows, l.out))
	t.Product("int8_linear_matmul", 2*rows*l.in*l.out, []*trace.Tensor{sums}, []*trace.Tensor{q, l.Weight.Tensor})
	y := g.Bind(sums.FilledLike("int8_mm_dequant", trace.F16))
	if bias != nil {
		trace.Update("add__Tensor", 1, y, bias)
	}
	result := y.To(x.DType())
	return g.Return(result)
}

package nn

import (
	"reflect"
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// FakeQuantization holds the options of torchao's quantization-aware training: linear layers round weights to 4 bits
// and inputs to 8 bits per token, and keep their data types.
type FakeQuantization struct {
	// Group is the number of weights of a row that share a scale.
	Group int64
	// Legacy selects Int8DynActInt4WeightQATQuantizer. Otherwise weights are rounded as in Int4WeightFakeQuantizer,
	// by fp32 operators whose results autograd saves.
	Legacy bool
}

// FakeQuantizeLinears replaces the linear layers whose paths are wanted, except the excluded ones, by torchao's
// FakeQuantizedLinear. It returns the number of replaced layers, and of layers whose inputs the group does not
// divide, which stay. Legacy quantization skips layers that share their weight with the embedding, which torchtune
// does not call as modules.
func FakeQuantizeLinears(model any, q FakeQuantization, wanted func(path string) bool,
	excluded ...Layer,
) (replaced, undivided int) {
	words := map[*Parameter]bool{}
	if q.Legacy {
		w := &layerWalk{wanted: func(l Layer, _ string) bool {
			if e, ok := l.(*Embedding); ok {
				words[e.Weight] = true
			}
			return false
		}}
		w.model(model)
	}
	WalkLinears(model, excluded, func(v reflect.Value, path string) {
		l, ok := v.Interface().(*Linear)
		switch {
		case !ok || words[l.Weight] || !wanted(path):
		case l.Weight.Dims[1]%q.Group != 0:
			undivided++
		default:
			v.Set(reflect.ValueOf(&FakeQuantizedLinear{Weight: l.Weight, Bias: l.Bias, q: q}))
			replaced++
		}
	})
	return replaced, undivided
}

// FakeQuantizedLinear is torchao.quantization.qat.FakeQuantizedLinear of torchao 0.17.
type FakeQuantizedLinear struct {
	Module
	Weight, Bias *Parameter
	q            FakeQuantization
	// inputs and weights are the scale and zero point of the last call, which the fake quantizers keep.
	inputs, weights [2]*trace.Tensor
}

// Widths returns the layer's input and output widths, for [Projection].
func (l *FakeQuantizedLinear) Widths() (in, out int64) { return l.Weight.Dims[1], l.Weight.Dims[0] }

// AdapterType returns the dtype of adapters on the layer, for [Projection].
func (l *FakeQuantizedLinear) AdapterType() trace.DType { return l.Weight.DType }

// OutputWeight returns the weight of an output layer, for losses that compute the logits themselves.
func OutputWeight(l Layer) *trace.Tensor {
	if q, ok := BaseLayerOf(l).(*FakeQuantizedLinear); ok {
		return q.Weight.Tensor
	}
	return BaseLayerOf(l).(*Linear).Weight.Tensor
}

// Forward maps [..., in] to [..., out].
func (l *FakeQuantizedLinear) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	f.Set(&x, l.fakeQuantize(f, x, &l.inputs, x.Size(-1), false))
	var w *trace.Tensor
	if l.q.Legacy {
		w = f.Bind(l.fakeQuantize(f, l.Weight.Tensor, &l.weights, l.q.Group, true))
	} else {
		w = f.Bind(l.fakeQuantizeInt4(f, l.Weight.Tensor))
	}
	return x.Linear(w, l.Bias.TensorOrNil())
}

// fakeQuantize records IntxFakeQuantizer. Each block of the last dimension has a scale and a zero point, which the
// layer stores in kept.
func (l *FakeQuantizedLinear) fakeQuantize(f *trace.Frame, x *trace.Tensor, kept *[2]*trace.Tensor, block int64,
	symmetric bool,
) *trace.Tensor {
	t, g := f.Tape(), f.FunctionFrame(x)
	var scale, zero *trace.Tensor
	t.NoGrad(func() { scale, zero = l.chooseScales(g, x, block, symmetric) })
	g.BindAll([]*trace.Tensor{scale, zero})
	if !t.Unwinding() {
		replaceHeld(t, &kept[0], scale)
		replaceHeld(t, &kept[1], zero)
	}
	q := g.Bind(quantizeAffine(g, x, scale, zero, block))
	return g.Return(dequantizeAffine(g, q, scale, zero, block, x.DType()))
}

// blockShapes returns the shape of x with its last dimension split into blocks, and the shape of the blocks' scales.
func blockShapes(x *trace.Tensor, block int64) (whole, scales []int64) {
	last := x.NDim() - 1
	whole = append(append(whole, x.Shape()[:last]...), x.Size(last)/block, block)
	scales = append(append(scales, x.Shape()[:last]...), x.Size(last)/block, 1)
	if x.Size(last) == block {
		whole = slices.Clone(x.Shape())
		scales = append(slices.Clone(x.Shape()[:last]), 1)
	}
	return whole, scales
}

// chooseScales records choose_qparams_affine: scales in fp32, and zero points in fp32 or in 32-bit integers.
func (l *FakeQuantizedLinear) chooseScales(f *trace.Frame, x *trace.Tensor, block int64, symmetric bool) (scale,
	zero *trace.Tensor,
) {
	g := f.FunctionFrame(x)
	whole, _ := blockShapes(x, block)
	g.Set(&x, x.View(whole...))
	least := g.Bind(x.AMin(false, -1))
	most := g.Bind(x.AMax(false, -1))
	low := g.Bind(least.Minimum(least.ZerosLike()))
	high := g.Bind(most.Maximum(most.ZerosLike()))
	if symmetric {
		g.Set(&high, low.Neg().Maximum(high))
		scale = g.Bind(high.DivScalar())
		zero = g.Bind(scale.FilledLike("full_like", scale.DType()))
		g.Set(&scale, scale.ClampOneSided())
	} else {
		scale = g.Bind(high.Sub(low).DivScalar())
		g.Set(&scale, scale.ClampOneSided())
		zero = g.Bind(low.Div(scale).Round().RSubScalar())
		g.Set(&zero, zero.Clamp())
	}
	points := trace.I32
	if l.q.Legacy {
		points = trace.F32
	}
	scale, zero = scale.To(trace.F32), zero.To(points)
	return g.ReturnPair(scale, zero)
}

// quantizeAffine records _quantize_affine_no_dtype_cast.
func quantizeAffine(f *trace.Frame, x, scale, zero *trace.Tensor, block int64) *trace.Tensor {
	g := f.FunctionFrame(x, scale, zero)
	shape := slices.Clone(x.Shape())
	whole, narrow := blockShapes(x, block)
	g.Set(&x, x.View(whole...))
	g.Set(&scale, scale.View(narrow...))
	g.Set(&zero, zero.View(narrow...))
	q := g.Bind(roundSTE(g, x.Mul(scale.Reciprocal())).Add(zero).Clamp())
	return g.Return(g.Set(&q, q.View(shape...)))
}

// dequantizeAffine records _dequantize_affine_no_dtype_check.
func dequantizeAffine(f *trace.Frame, q, scale, zero *trace.Tensor, block int64, d trace.DType) *trace.Tensor {
	g := f.FunctionFrame(q, scale, zero)
	shape := slices.Clone(q.Shape())
	whole, narrow := blockShapes(q, block)
	g.Set(&q, q.View(whole...))
	g.Set(&scale, scale.View(narrow...))
	g.Set(&zero, zero.View(narrow...))
	var y *trace.Tensor
	if q.DType() == d {
		y = g.Bind(q.Clone())
	} else {
		y = g.Bind(q.To(d))
	}
	g.Set(&y, y.Sub(zero.To(d)))
	g.Set(&y, y.Mul(scale))
	return g.Return(y.View(shape...).To(d))
}

// fakeQuantizeInt4 records Int4WeightFakeQuantizer where activations are in bf16.
func (l *FakeQuantizedLinear) fakeQuantizeInt4(f *trace.Frame, w *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(w)
	grouped := g.Bind(w.To(trace.F32).View(w.Size(0), -1, l.q.Group))
	most := g.Bind(grouped.AMax(true, -1))
	least := g.Bind(grouped.AMin(true, -1))
	scale := g.Bind(most.Sub(least).ClampOneSided().DivScalar())
	zero := g.Bind(least.Add(scale.MulScalar()))
	q := g.Bind(roundSTE(g, grouped.Sub(least).Div(scale)).Clamp())
	g.Set(&q, q.AddScalar())
	g.Set(&q, q.Mul(scale).Add(zero))
	return g.Return(q.View(w.Shape()...).To(w.DType()))
}

// roundSTE records _Round: round() in forward, identity in backward.
func roundSTE(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return f.Apply(&trace.Function{
		Name: "_RoundBackward",
		Forward: func(_ *trace.Frame, _ *trace.FunctionContext, in []*trace.Tensor) []*trace.Tensor {
			return []*trace.Tensor{in[0].Round()}
		},
		Backward: func(_ *trace.Frame, _ *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
			return []*trace.Tensor{grads[0]}
		},
	}, x)[0]
}

// Package liger records liger-kernel 0.8: fused Triton kernels for operators of transformers' decoders, and a loss that
// never holds all logits. Names and the order of statements follow liger-kernel's Python code.
package liger

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Norm holds how liger-kernel's RMSNorm differs between models.
type Norm struct {
	// OutOfPlace gives the input's gradient a tensor of its own instead of the output gradient's (in_place=False).
	OutOfPlace bool
}

// RMSNorm records LigerRMSNormFunction over the last dimension.
func (n Norm) RMSNorm(f *frame, x, weight *tensor) *tensor {
	return f.Apply(&trace.Function{
		Name: "LigerRMSNormFunctionBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			t, shape := f.Tape(), in[0].Shape()
			x := f.Bind(f.Bind(in[0].Contiguous()).View(-1, in[0].Size(-1)))
			y := f.Bind(t.Empty(x.DType(), x.Shape()...))
			rstd := f.Bind(t.Empty(trace.F32, x.Size(0)))
			t.Kernel("rms_norm_forward", 4*x.Numel(), []*tensor{y, rstd}, []*tensor{x, weight})
			ctx.SaveForBackward(x, weight, rstd)
			return []*tensor{y.View(shape...)}
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			t, shape := f.Tape(), grads[0].Shape()
			dy := f.Bind(f.Bind(grads[0].Contiguous()).View(-1, grads[0].Size(-1)))
			x, dx, parts := ctx.Saved(0), dy, (*tensor)(nil)
			if ctx.NeedsInputGrad(1) {
				sms := trace.GPUProperty(t, func(gpu trace.GPU) int { return gpu.SMs })
				parts = f.Bind(t.Empty(trace.F32, int64(sms), dy.Size(-1)))
			}
			if n.OutOfPlace {
				dx = f.Bind(dy.ZerosLike())
			}
			t.Kernel("rms_norm_backward", 8*x.Numel(), []*tensor{dx, parts}, []*tensor{dy, x, weight, ctx.Saved(2)})
			out := []*tensor{f.Bind(dx.View(shape...)), nil}
			if parts != nil {
				out[1] = f.Bind(parts.Sum(false, 0).To(weight.DType()))
			}
			return out
		},
	}, x, weight)[0]
}

// Rotate records liger_rotary_pos_emb, which rotates query and key [batch, heads, length, size] in place. A tensor
// whose memory is not ordered by tokens is copied first.
func Rotate(f *frame, q, k, cos, sin *tensor) (*tensor, *tensor) {
	return rotate(f, "LigerRopeFunctionBackward", "rope", true, q, k, cos, sin)
}

// RotateComplex records liger_llama4_text_rotary_pos_emb, which rotates query and key [batch, length, heads, size] in
// place by complex numbers. A tensor that is not contiguous is copied first.
func RotateComplex(f *frame, q, k, angles *tensor) (*tensor, *tensor) {
	return rotate(f, "LigerLlama4RopeFunctionBackward", "llama4_rope", false, q, k, angles)
}

// rotate records an autograd.Function that rotates q and k in place; its backward rotates their gradients in place.
func rotate(f *frame, node, kernel string, headsFirst bool, q, k *tensor, angles ...*tensor) (*tensor, *tensor) {
	transposed := func(x *tensor) *tensor {
		if headsFirst {
			return x.Transpose(1, 2)
		}
		return x
	}
	run := func(f *frame, name string, x, angles []*tensor) []*tensor {
		q := f.Bind(f.Bind(transposed(x[0])).Contiguous())
		k := f.Bind(f.Bind(transposed(x[1])).Contiguous())
		f.Tape().Kernel(name, 3*(q.Numel()+k.Numel()), []*tensor{q, k}, append([]*tensor{q, k}, angles...))
		return []*tensor{transposed(q), transposed(k)}
	}
	ys := f.Apply(&trace.Function{
		Name: node,
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			ys := run(f, kernel+"_forward", in, in[2:])
			ctx.SaveForBackward(in[2:]...)
			return ys
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			saved := lists.Make(len(angles), ctx.Saved)
			return append(run(f, kernel+"_backward", grads, saved), make([]*tensor, len(angles))...)
		},
	}, append([]*tensor{q, k}, angles...)...)
	return ys[0], ys[1]
}

// GatedProduct records LigerSiLUMulFunction or LigerGELUMulFunction: activation(gate) * up. Backward writes the
// gradients into the saved inputs.
func GatedProduct(f *frame, gate, up *tensor) *tensor {
	return f.Apply(&trace.Function{
		Name: "LigerSiLUMulFunctionBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			a := f.Bind(f.Bind(in[0].Contiguous()).View(-1, in[0].Size(-1)))
			b := f.Bind(f.Bind(in[1].Contiguous()).View(-1, in[1].Size(-1)))
			c := f.Bind(a.EmptyLike())
			f.Tape().Kernel("swiglu_forward", 10*a.Numel(), []*tensor{c}, []*tensor{a, b})
			ctx.SaveForBackward(a, b)
			return []*tensor{c.View(in[0].Shape()...)}
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			dc := f.Bind(grads[0].Contiguous())
			a, b := ctx.Saved(0), ctx.Saved(1)
			f.Tape().Kernel("swiglu_backward", 20*a.Numel(), []*tensor{a, b}, []*tensor{dc, a, b})
			return []*tensor{a.View(dc.Shape()...), b.View(dc.Shape()...)}
		},
	}, gate, up)[0]
}

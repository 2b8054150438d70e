// Package liger is liger-kernel 0.8: kernels of Triton in place of what the decoders
// of transformers compute in several, and a loss that never holds all scores. Names
// and statements follow its Python code.
package liger

import (
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Norm is what distinguishes the norms of models.
type Norm struct {
	// Fresh says that the gradient is a tensor of its own; otherwise it takes the
	// place of the one that comes in.
	Fresh bool
}

// RMSNorm is LigerRMSNormFunction over the last dimension.
func (n Norm) RMSNorm(f *frame, x, weight *tensor) *tensor {
	return f.Apply(&trace.Function{
		Name: "LigerRMSNormFunctionBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			t, shape := f.Tape(), in[0].Shape()
			x := f.Let(f.Let(in[0].Contiguous()).View(-1, in[0].Size(-1)))
			y := f.Let(t.Empty(x.DType(), x.Shape()...))
			rstd := f.Let(t.Empty(trace.F32, x.Size(0)))
			t.Kernel("rms_norm_forward", 4*x.Numel(), []*tensor{y, rstd}, []*tensor{x, weight})
			ctx.SaveForBackward(x, weight, rstd)
			return []*tensor{y.View(shape...)}
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			t, shape := f.Tape(), grads[0].Shape()
			dy := f.Let(f.Let(grads[0].Contiguous()).View(-1, grads[0].Size(-1)))
			x, dx, parts := ctx.Saved(0), dy, (*tensor)(nil)
			if ctx.NeedsInputGrad(1) {
				parts = f.Let(t.Empty(trace.F32, int64(t.Board().SMs), dy.Size(-1)))
			}
			if n.Fresh {
				dx = f.Let(dy.ZerosLike())
			}
			t.Kernel("rms_norm_backward", 8*x.Numel(), []*tensor{dx, parts}, []*tensor{dy, x, weight, ctx.Saved(2)})
			out := []*tensor{f.Let(dx.View(shape...)), nil}
			if parts != nil {
				out[1] = f.Let(parts.Sum(false, 0).To(weight.DType()))
			}
			return out
		},
	}, x, weight)[0]
}

// Rotate is liger_rotary_pos_emb: it turns query and key [batch, heads, length, size]
// in place, and copies what is not laid out by tokens first.
func Rotate(f *frame, q, k, cos, sin *tensor) (*tensor, *tensor) {
	turn := func(f *frame, name string, q, k, cos, sin *tensor) []*tensor {
		q = f.Let(f.Let(q.Transpose(1, 2)).Contiguous())
		k = f.Let(f.Let(k.Transpose(1, 2)).Contiguous())
		f.Tape().Kernel(name, 3*(q.Numel()+k.Numel()), []*tensor{q, k}, []*tensor{q, k, cos, sin})
		return []*tensor{q.Transpose(1, 2), k.Transpose(1, 2)}
	}
	ys := f.Apply(&trace.Function{
		Name: "LigerRopeFunctionBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			ys := turn(f, "rope_forward", in[0], in[1], in[2], in[3])
			ctx.SaveForBackward(in[2], in[3])
			return ys
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			return append(turn(f, "rope_backward", grads[0], grads[1], ctx.Saved(0), ctx.Saved(1)), nil, nil)
		},
	}, q, k, cos, sin)
	return ys[0], ys[1]
}

// RotateComplex is liger_llama4_text_rotary_pos_emb: it turns query and key [batch, length,
// heads, size] in place by complex numbers, and copies what is not contiguous first.
func RotateComplex(f *frame, q, k, angles *tensor) (*tensor, *tensor) {
	turn := func(f *frame, name string, q, k, angles *tensor) []*tensor {
		q, k = f.Let(q.Contiguous()), f.Let(k.Contiguous())
		f.Tape().Kernel(name, 3*(q.Numel()+k.Numel()), []*tensor{q, k}, []*tensor{q, k, angles})
		return []*tensor{q, k}
	}
	ys := f.Apply(&trace.Function{
		Name: "LigerLlama4RopeFunctionBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			ys := turn(f, "llama4_rope_forward", in[0], in[1], in[2])
			ctx.SaveForBackward(in[2])
			return ys
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			return append(turn(f, "llama4_rope_backward", grads[0], grads[1], ctx.Saved(0)), nil)
		},
	}, q, k, angles)
	return ys[0], ys[1]
}

// GatedProduct is LigerSiLUMulFunction or LigerGELUMulFunction: activation(gate) * up.
// Their gradients take the places of what was kept.
func GatedProduct(f *frame, gate, up *tensor) *tensor {
	return f.Apply(&trace.Function{
		Name: "LigerSiLUMulFunctionBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			a := f.Let(f.Let(in[0].Contiguous()).View(-1, in[0].Size(-1)))
			b := f.Let(f.Let(in[1].Contiguous()).View(-1, in[1].Size(-1)))
			c := f.Let(a.EmptyLike())
			f.Tape().Kernel("swiglu_forward", 10*a.Numel(), []*tensor{c}, []*tensor{a, b})
			ctx.SaveForBackward(a, b)
			return []*tensor{c.View(in[0].Shape()...)}
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			dc := f.Let(grads[0].Contiguous())
			a, b := ctx.Saved(0), ctx.Saved(1)
			f.Tape().Kernel("swiglu_backward", 20*a.Numel(), []*tensor{a, b}, []*tensor{dc, a, b})
			return []*tensor{a.View(dc.Shape()...), b.View(dc.Shape()...)}
		},
	}, gate, up)[0]
}

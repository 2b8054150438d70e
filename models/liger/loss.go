package liger

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/trace"
)

// CausalLMLoss records LigerForCausalLMLoss of hidden states [batch, length, width] and an output weight [vocabulary,
// width]. It never holds all logits.
func CausalLMLoss(f *frame, x, weight, labels *tensor) *tensor {
	g := f.FunctionFrame(x, labels)
	g.Set(&labels, labels.Pad(0, 1))
	shifted := g.Bind(labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	g.Set(&x, x.View(-1, x.Size(-1)))
	g.Set(&shifted, shifted.View(-1))
	loss := g.Apply(fusedLinearCrossEntropy(), x, weight, shifted)[0]
	return g.Return(loss)
}

// LinearCrossEntropy records LigerFusedLinearCrossEntropyLoss of hidden states [..., width], an output weight
// [vocabulary, width], and a label for each token.
func LinearCrossEntropy(f *frame, x, weight, labels *tensor) *tensor {
	g := f.FunctionFrame(x, labels)
	g.Set(&x, x.View(-1, x.Size(-1)))
	g.Set(&labels, labels.View(-1))
	loss := g.Apply(fusedLinearCrossEntropy(), x, weight, labels)[0]
	return g.Return(loss)
}

// chunkRows returns the number of tokens in a chunk of n tokens. Its logits have about the bytes of all hidden states.
func chunkRows(n, width, vocabulary int64) int64 {
	want := ceil.Div(n, ceil.Div(vocabulary, width))
	rows := int64(1)
	for rows < want {
		rows *= 2
	}
	return min(rows, n)
}

// fusedLinearCrossEntropy returns LigerFusedLinearCrossEntropyFunction of hidden states [n, width], a weight
// [vocabulary, width] and labels [n]. Forward already computes the gradients; backward returns them.
func fusedLinearCrossEntropy() *trace.Function {
	return &trace.Function{
		Name: "LigerFusedLinearCrossEntropyFunctionBackward", AMP: true,
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			g := f.FunctionFrame(in...)
			loss, dx, dw := lossAndGradients(g, in[0], in[1], in[2], ctx.NeedsInputGrad(1))
			g.End(loss, dx, dw)
			f.Bind(dx)
			if dw != nil {
				f.Bind(dw)
			}
			ctx.SaveForBackward(dx, dw)
			return []*tensor{loss}
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			one := f.Tape().Full(trace.F32)
			f.Discard(trace.Pointwise("equal", 1, grads[0], one))
			return []*tensor{ctx.Saved(0), ctx.Saved(1), nil}
		},
	}
}

// lossAndGradients follows liger-kernel's fused_linear_cross_entropy_forward.
func lossAndGradients(f *frame, x, weight, labels *tensor, weightNeeds bool) (loss, dx, dw *tensor) {
	t := f.Tape()
	rows, vocabulary := x.Size(0), weight.Size(0)
	chunk := chunkRows(rows, x.Size(1), vocabulary)
	dx = f.Bind(x.ZerosLike())
	if weightNeeds {
		dw = f.Bind(weight.ZerosLike())
	}
	losses := f.Bind(t.Zeros(trace.F32, rows))
	valid := f.Bind(labels.EqScalar())
	f.Discard(valid.Sum(false))
	half, casting := t.Autocasting()
	var scores *tensor
	if x.DType() == weight.DType() && (!casting || x.DType() == half) {
		scores = f.Bind(t.Empty(x.DType(), chunk, vocabulary))
	}
	for from := int64(0); from < rows; from += chunk {
		chunkGradients(f, scores, x.Slice(0, from, min(from+chunk, rows)), weight, dx, dw)
		t.Kernel("liger_cross_entropy", 8*chunk*vocabulary, []*tensor{losses}, []*tensor{labels})
	}
	if scores != nil {
		f.Del(&scores)
	}
	return losses.Sum(false), dx, dw
}

// chunkGradients computes the logits of some rows, their gradients in place, and from these the gradients of the rows
// and the weight. scores is memory for the logits, nil if each product allocates its own under autocast.
func chunkGradients(f *frame, scores, x, weight, dx, dw *tensor) {
	t := f.Tape()
	g := f.FunctionFrame(x)
	rows, work := x.Size(0), 2*x.Numel()*weight.Size(0)
	if scores != nil {
		y := g.Bind(scores.Slice(0, 0, rows))
		t.Product("mm_out", work, []*tensor{y}, []*tensor{x, weight})
		t.Product("mm_out", work, []*tensor{dx}, []*tensor{y, weight})
		weightGradient(g, y, x, dw)
		g.End()
		return
	}
	y := g.Bind(x.Matmul(weight.T()))
	g.Discard(y.Matmul(weight))
	weightGradient(g, y, x, dw)
	g.End()
}

// weightGradient adds the contribution of some rows to the weight's gradient, which may be nil: in place where tensor
// cores of Ampere or later multiply in half precision, else through a separate product.
func weightGradient(f *frame, scores, x, dw *tensor) {
	if dw == nil {
		return
	}
	t := f.Tape()
	g := f.FunctionFrame()
	if scores.DType().IsHalf() && trace.GPUProperty(t, func(gpu trace.GPU) bool { return gpu.Capability >= 80 }) &&
		(dw.DType() == trace.F32 || dw.DType() == scores.DType()) {
		part := g.Bind(x.To(scores.DType()))
		t.Product("addmm_out", 2*x.Numel()*dw.Size(0), []*tensor{dw}, []*tensor{scores, part, dw})
	} else {
		g.Discard(trace.Update("add__Tensor", 1, dw, scores.T().Matmul(x).To(trace.F32)))
	}
	g.End()
}

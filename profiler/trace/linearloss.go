package trace

import (
	"math/bits"

	"github.com/vprof/vprof/internal/ceil"
)

// LinearLossRules describe how torch.nn.functional.linear_cross_entropy processes rows in
// chunks, with the default LinearCrossEntropyOptions().
type LinearLossRules struct {
	// Known reports whether the release has the function.
	Known bool
	// Halved reports whether chunks have half as many rows as the ratio of classes to features, without an upper limit.
	Halved bool
	// Materializes reports whether backward receives zero gradients for outputs that only backward uses.
	Materializes bool
}

// chunkRows returns the batch_chunk_size of LinearCrossEntropyOptions._adjust.
func (r LinearLossRules) chunkRows(rows, width, classes int64) int64 {
	want := ceil.Div(rows, ceil.Div(classes, width))
	chunk := int64(1) << bits.Len64(uint64(want-1))
	if r.Halved {
		return max(1, min(chunk/2, rows))
	}
	most := int64(1)
	if n := rows * classes / (4 * width); n >= 1 {
		most = 1 << (bits.Len64(uint64(n)) - 1)
	}
	return max(1, min(chunk, rows, most))
}

// LinearCrossEntropy records torch.nn.functional.linear_cross_entropy(x, weight, target,
// options=LinearCrossEntropyOptions()) of hidden states [rows, width], the weight of the
// output layer [classes, width] and class indices [rows]: the mean loss, with the
// gradients computed on the way (torch/nn/modules/linear_cross_entropy.py).
func (f *Frame) LinearCrossEntropy(x, weight, target *Tensor) *Tensor {
	rules := f.t.rules.LinearLoss
	return f.Apply(&Function{
		Name: "torch_nn::_linear_cross_entropy_batch_chunked",
		Forward: func(f *Frame, ctx *FunctionContext, in []*Tensor) []*Tensor {
			g := f.FunctionFrame(in...)
			l := newLinearLoss(g, in[0], in[1], in[2], ctx.NeedsInputGrad(0), ctx.NeedsInputGrad(1), rules)
			l.run(g)
			loss, dx, dw := g.Bind(l.loss.To(l.x.dtype)), l.dx, l.dw
			g.End(loss, dx, dw)
			for _, d := range []*Tensor{dx, dw} {
				if d != nil {
					ctx.Keep(f.Bind(d))
				}
			}
			return []*Tensor{loss}
		},
		Backward: func(f *Frame, ctx *FunctionContext, grads []*Tensor) []*Tensor {
			out := make([]*Tensor, 3)
			kept := 0
			for i := range 2 {
				if !ctx.NeedsInputGrad(i) {
					continue
				}
				d := ctx.Take(f, kept)
				kept++
				if rules.Materializes {
					f.Bind(f.t.Zeros(d.dtype, d.shape...))
				}
				out[i] = d
			}
			for _, d := range out {
				if d != nil {
					Update("mul__Tensor", 1, d, grads[0])
				}
			}
			return out
		},
	}, x, weight, target)[0]
}

// linearLoss is the state of one call (_ChunkContext), under the policy "compact".
type linearLoss struct {
	x, weight, target *Tensor
	chunk             int64
	mixed             bool // sums are in fp32, x in half precision
	// The logits of a chunk; its input in fp32 (nil if not needed); a number for each row of it; the scale of each row;
	// the loss; and the gradients (nil for none).
	scores, wide, numbers, scale, loss, dx, dw *Tensor
}

// newLinearLoss allocates the buffers that all chunks share.
func newLinearLoss(f *Frame, x, weight, target *Tensor, needsX, needsWeight bool, rules LinearLossRules) *linearLoss {
	t := f.t
	rows, width, classes := x.shape[0], x.shape[1], weight.shape[0]
	l := &linearLoss{x: x, weight: weight, chunk: rules.chunkRows(rows, width, classes)}
	tensorCores := map[DType]int{BF16: 80, F16: 70}[x.dtype]
	l.mixed = x.dtype.IsHalf() && t.atLeast(tensorCores)
	scores, loss, scale := x.dtype, x.dtype, x.dtype
	if l.mixed {
		scale = F32
		if x.dtype == F16 {
			loss = F32
		} else {
			scores = F32
		}
	}
	l.scores = f.Bind(t.Empty(scores, l.chunk, classes))
	l.numbers = f.Bind(t.Empty(scores, l.chunk))
	l.loss = f.Bind(t.Zeros(loss))
	if needsX {
		l.dx = f.Bind(t.Empty(x.dtype, x.shape...))
	}
	if needsWeight {
		l.dw = f.Bind(t.Zeros(x.dtype, weight.shape...))
	}
	ignored := f.Bind(target.EqScalar())
	l.target = f.Bind(target.FilledLike("where", I64))
	if l.mixed && needsWeight {
		l.wide = f.Bind(t.Empty(F32, l.chunk, width))
	}
	l.scale = f.Bind(Pointwise("bitwise_not", 1, ignored).To(scale))
	g := f.FunctionFrame()
	count := g.Bind(l.scale.Sum(false))
	Update("div__Tensor", 1, l.scale, g.Bind(count.Neg()))
	g.End()
	return l
}

func (l *linearLoss) run(f *Frame) {
	// The half-precision logits and the rows of the weight's gradient live until the next ones are allocated.
	var half, rows *Tensor
	for from := int64(0); from < l.x.shape[0]; from += l.chunk {
		g := f.FunctionFrame()
		l.lossOf(g, from)
		if (l.dx != nil || l.dw != nil) && l.scores.dtype != l.x.dtype {
			f.Set(&half, l.scores.Slice(0, 0, l.rowsFrom(from)).To(l.x.dtype))
		}
		l.gradientsOf(g, from)
		if l.dw != nil && !l.mixed && l.weight.shape[0] < l.weight.shape[1] {
			f.Set(&rows, f.t.Empty(l.x.dtype, l.rowsFrom(from), l.x.shape[1]))
		}
		g.End()
	}
}

func (l *linearLoss) rowsFrom(from int64) int64 { return min(l.chunk, l.x.shape[0]-from) }

// lossOf computes the logits of a chunk, adds its loss, and overwrites the logits with the scaled softmax.
func (l *linearLoss) lossOf(f *Frame, from int64) {
	t, n := f.t, l.rowsFrom(from)
	x := f.Bind(l.x.Slice(0, from, from+n))
	scores := f.Bind(l.scores.Slice(0, 0, n))
	target := f.Bind(l.target.Slice(0, from, from+n))
	scale := f.Bind(l.scale.Slice(0, from, from+n))
	if l.wide != nil {
		t.Kernel("copy_", n*x.shape[1], []*Tensor{l.wide}, []*Tensor{x})
	}
	t.Product("mm_out", 2*n*l.x.shape[1]*l.weight.shape[0], []*Tensor{scores}, []*Tensor{x, l.weight})
	t.Kernel("amax_out", scores.Numel(), []*Tensor{l.numbers}, []*Tensor{scores})
	Update("sub__Tensor", 1, scores)
	picked := f.Bind(scores.Gather(f.Bind(target.Unsqueeze(1))).Squeeze(1).To(scale.dtype))
	Update("add__Tensor", 1, l.loss, f.Bind(dot(picked)))
	f.Del(&picked)
	Update("exp_", 1, scores)
	sums := f.Bind(t.Empty(l.sumType(), n))
	t.Kernel("sum_dim_IntList", scores.Numel(), []*Tensor{sums}, []*Tensor{scores})
	if l.dx != nil || l.dw != nil {
		t.Kernel("div_out", n, []*Tensor{l.numbers}, []*Tensor{scale, sums})
		Update("mul_out", 1, scores, l.numbers.Slice(0, 0, n).Unsqueeze(1))
	}
	Update("sub__Tensor", 1, l.loss, f.Bind(dot(sums)))
}

func (l *linearLoss) sumType() DType {
	if l.mixed || l.x.dtype == F16 {
		return F32
	}
	return l.x.dtype
}

// dot records the dot product of two vectors.
func dot(x *Tensor) *Tensor { return x.tape.Empty(x.dtype) }

// gradientsOf adds a chunk's contribution to the gradients.
func (l *linearLoss) gradientsOf(f *Frame, from int64) {
	t, n := f.t, l.rowsFrom(from)
	work := 2 * n * l.x.shape[1] * l.weight.shape[0]
	if l.dx != nil {
		g := f.FunctionFrame()
		g.Bind(l.weight.IndexSelect(0, l.target.Slice(0, from, from+n)))
		g.Bind(l.scale.Slice(0, from, from+n).To(l.dx.dtype))
		t.Kernel("mul_out", n*l.x.shape[1], []*Tensor{l.dx}, []*Tensor{l.weight})
		g.End()
		t.Product("addmm_out", work, []*Tensor{l.dx}, []*Tensor{l.scores, l.weight})
	}
	if l.dw == nil {
		return
	}
	t.Product("addmm_", work, []*Tensor{l.dw}, []*Tensor{l.scores, l.x})
	t.Kernel("index_add_", n*l.x.shape[1], []*Tensor{l.dw}, []*Tensor{l.x})
}

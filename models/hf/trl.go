package hf

import (
	"cmp"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Sizes in trl.kernels and trl.trainer: tokens and vocabulary entries of a tile of logits (TOKEN_CHUNK_SIZE,
// _CHUNKED_LOGPROB_CHUNK_SIZE), and tokens of a chunk in SFTTrainer up to TRL 1.14 (_CHUNKED_LM_HEAD_CHUNK_SIZE).
const (
	tileTokens  = 4096
	tileWords   = 32768
	chunkTokens = 256
)

func tiledLoss(f *frame, x, weight, labels *tensor) *tensor {
	g := f.FunctionFrame(x, labels)
	logs := fusedForward(g, x, weight, labels, 0, trace.F32, trace.Bool) // is_top1, entropy
	return g.Return(logs[0].Neg().Sum(false).DivScalar())
}

// loggedLoss records compute_loss of SFTTrainer up to TRL 1.14 on the model's logits. It logs their entropies and the
// accuracy of tokens.
func (c *modelCaller) loggedLoss(f *frame, b TextBatch) (loss *tensor) {
	t, g := f.Tape(), f.FunctionFrame(b.IDs, b.Padding, b.Labels)
	c.text.Begin(g) // the model's output, which compute_loss holds, has the cache
	logits := g.Bind(c.text.autocast(g, b, func(f *frame, b TextBatch) *tensor {
		h := f.ModuleFrame(c.net, b.IDs, b.Padding, b.Labels)
		c.text.Context.shardBatch(h, &b)
		text := c.text.withBatchPositions(h, b)
		y := h.Bind(text.callHead(h, *c.output, h.Bind(c.decoder.Call(h, b.IDs, b.Padding, text))))
		text.adjustLogits(h, &y)
		loss = g.Bind(text.causalLMLoss(h, y, b))
		return h.Return(y)
	}))
	t.NoGrad(func() {
		h := g.FunctionFrame(logits)
		shifted := h.Bind(logits.Slice(1, 0, logits.Size(1)-1))
		if !t.Rules().Libraries.LogKernels {
			recordEntropies(h, shifted)
		}
		h.Discard(shifted.ArgMax(false, -1))
		h.End()
	})
	return g.Return(loss)
}

// fusedForward records _fused_forward of add_fused_lm_head (trl/trainer/utils.py of TRL 1.15 and newer) for hidden
// states [rows, length, width] and token labels. The last keep tokens of a row count; zero means all. It returns
// log-probabilities [rows, length - 1], and as many logged numbers of each type. The logits exist one tile at a time.
func fusedForward(f *frame, x, weight, labels *tensor, keep int64, types ...trace.DType) []*tensor {
	t, g := f.Tape(), f.FunctionFrame(x, labels)
	g.Set(&x, x.Slice(1, 0, x.Size(1)-1))
	g.Set(&labels, labels.Slice(1, 1, labels.Size(1)))
	mask := g.Bind(labels.EqScalar())
	mask.SetTrue(mask.Size(0) * cmp.Or(keep, mask.Size(1)))
	all := g.Apply(tiledLogProbs(types), x.Index(mask), weight, labels.Index(mask))
	g.BindAll(all)
	for i := range all {
		g.Set(&all[i], g.Bind(t.Zeros(all[i].DType(), mask.Shape()...)).MaskedScatter(mask, all[i]))
	}
	g.Discard(all[0].Sum(false).Neg().Div(mask.Sum(false).ClampMin())) // outputs.loss
	g.End(all...)
	return f.BindAll(all)
}

// tiledLogProbs records ChunkedLogProbFunction of hidden states [n, width], a weight [vocabulary, width] and targets
// [n]. It returns log-probabilities, and logged numbers of the given types.
func tiledLogProbs(types []trace.DType) *trace.Function {
	var d trace.DType
	return &trace.Function{
		Name: "ChunkedLogProbFunctionBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			t, n := f.Tape(), in[0].Size(0)
			d = in[0].DType()
			if half, casting := t.Autocasting(); casting {
				d = half
			}
			stats := lists.Make(7, func(int) *tensor { return f.Bind(t.Zeros(trace.F32, n)) })
			forEachTile(f, d, in[0], in[1], nil)
			z := f.Bind(stats[0].Add(f.Bind(stats[1].Log())))
			all := []*tensor{f.Bind(stats[6].Sub(z))}
			for _, d := range types {
				all = append(all, f.Bind(t.New("div", program.Temporaries, d, n)))
			}
			ctx.SaveForBackward(in[0], in[1], in[2], z, all[len(all)-1])
			return all
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			return tileGradients(f, ctx, d, grads[0])
		},
	}
}

// tileGradients records the backward of ChunkedLogProbFunction: gradients of hidden states and of the weight are
// summed in fp32.
func tileGradients(f *frame, ctx *trace.FunctionContext, d trace.DType, grad *tensor) []*tensor {
	t, of := f.Tape(), []*tensor{ctx.Saved(0), ctx.Saved(1)}
	sums := make([]*tensor, 3)
	for i, x := range of {
		if ctx.NeedsInputGrad(i) {
			sums[i] = f.Bind(t.Zeros(trace.F32, x.Shape()...))
		}
	}
	f.Bind(grad.To(trace.F32))
	forEachTile(f, d, of[0], of[1], func(scores *tensor, others ...*tensor) {
		for i, other := range others {
			if sums[i] != nil {
				t.UseBLAS()
				t.Product("addmm_out", 2*scores.Numel()*other.Size(1), sums[i:i+1], []*tensor{scores, other})
			}
		}
	})
	for i, x := range of {
		if sums[i] != nil {
			sums[i] = f.Bind(sums[i].To(x.DType()))
		}
	}
	return sums
}

// forEachTile computes logits tile by tile in one buffer of type d. If show is not nil, it is called with each tile,
// and its parts of the weight and of the hidden states; f holds these until the next tile, as Python's variables do.
func forEachTile(f *frame, d trace.DType, x, weight *tensor, show func(scores *tensor, others ...*tensor)) {
	t, n, words := f.Tape(), x.Size(0), weight.Size(0)
	buffer := f.Bind(t.Empty(d, min(n, tileTokens), tileWords))
	var tokens, w, scores *tensor
	for from := int64(0); from < n; from += tileTokens {
		f.Set(&tokens, x.Slice(0, from, min(from+tileTokens, n)).To(d))
		for word := int64(0); word < words; word += tileWords {
			end := min(word+tileWords, words)
			f.Set(&w, weight.Slice(0, word, end).To(d))
			f.Set(&scores, buffer.Slice(0, 0, tokens.Size(0)).Slice(1, 0, end-word))
			t.UseBLAS()
			t.Product("mm_out", 2*tokens.Numel()*(end-word), []*tensor{scores}, []*tensor{tokens, w})
			t.Kernel("fold", scores.Numel(), []*tensor{scores}, []*tensor{scores})
			if show == nil {
				f.Del(&w)
				continue
			}
			show(scores, w, tokens)
		}
	}
}

// kernelLogProbs records selective_log_softmax_and_entropy of TRL 1.14: one kernel computes log-probabilities and
// entropies of logits [rows, tokens, vocabulary], another one the gradient of the logits. The first half of the
// kernel's results is not saved for backward.
func kernelLogProbs(f *frame, logits, labels *tensor, results int) *tensor {
	return f.Apply(&trace.Function{
		Name: "_LogProbEntropyFunctionBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			t, of := f.Tape(), make([]*tensor, results)
			for i := range of {
				of[i] = f.Bind(t.Empty(trace.F32, in[1].Shape()...))
			}
			t.Kernel("_forward_kernel", in[0].Numel(), of, in)
			ctx.SaveForBackward(append([]*tensor{in[0], in[1]}, of[results/2:]...)...)
			return of[:1]
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			t, x := f.Tape(), ctx.Saved(0)
			y := f.Bind(t.Empty(x.DType(), x.Shape()...))
			t.Kernel("_backward_kernel", x.Numel(), []*tensor{y}, []*tensor{x, grads[0]})
			return []*tensor{y, nil}
		},
	}, logits, labels)[0]
}

// checkpointedLoss records _chunked_cross_entropy_loss of SFTTrainer in TRL 1.7 to 1.14: chunks of tokens whose
// logits backward recomputes. All tokens count.
func checkpointedLoss(f *frame, x, weight, labels *tensor, adjust func(f *frame, scores **tensor)) *tensor {
	t, g := f.Tape(), f.FunctionFrame(x, labels)
	g.Set(&x, x.Slice(1, 0, x.Size(1)-1).Reshape(-1, x.Size(-1)))
	g.Set(&labels, labels.Slice(1, 1, labels.Size(1)).Reshape(-1))
	order := g.Bind(t.New("argsort", program.Activations, trace.I64, labels.Numel()))
	g.Set(&x, x.Index(order))
	g.Set(&labels, labels.Index(order))
	total, n := g.Bind(t.Zeros(trace.F32)), x.Size(0)
	var tokens, targets *tensor
	for from := int64(0); from < n; from += chunkTokens {
		g.Set(&tokens, x.Slice(0, from, min(from+chunkTokens, n)))
		g.Set(&targets, labels.Slice(0, from, min(from+chunkTokens, n)))
		parts := g.CheckpointAll(func(f *frame, in []*tensor) []*tensor {
			return chunkLoss(f, in[0], in[1], in[2], adjust)
		}, tokens, weight, targets)
		g.BindAll(parts)
		g.Set(&total, total.Add(parts[0]))
	}
	return g.Return(total.DivScalar())
}

// chunkLoss records _chunk: a chunk's loss, the number of its right tokens, and their entropy.
func chunkLoss(f *frame, x, weight, labels *tensor, adjust func(f *frame, scores **tensor)) []*tensor {
	g := f.FunctionFrame(x, weight, labels)
	var scores *tensor
	if f.Tape().Rules().Libraries.ChunksInHalf {
		scores = g.Bind(x.Matmul(weight.To(x.DType()).T()).To(trace.F32))
	} else {
		scores = g.Bind(x.To(trace.F32).Matmul(weight.To(trace.F32).T()))
	}
	adjust(g, &scores)
	logs := g.Bind(scores.LogSoftmax(-1))
	loss := g.Bind(logs.NLLLoss(labels, nil, trace.ReduceSum))
	valid := g.Bind(labels.EqScalar())
	right := g.Bind(g.Bind(scores.ArgMax(false, -1)).EqScalar().Sum(false).To(trace.F32))
	entropy := g.Bind(logs.Exp().Mul(logs).Sum(false, -1).Neg().Mul(valid).Sum(false))
	g.End(loss, right, entropy)
	return []*tensor{loss, right, entropy}
}

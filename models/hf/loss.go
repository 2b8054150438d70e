package hf

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// CausalLMLoss records ForCausalLMLoss: the fp32 cross entropy of next-token prediction.
func CausalLMLoss(f *frame, logits, labels *tensor) *tensor {
	return shiftedLoss(f, logits, labels, crossEntropy)
}

func crossEntropy(_ *frame, source, target *tensor) *tensor { return source.CrossEntropy(target) }

// causalLMLoss computes [CausalLMLoss] of a batch, under loss_parallel if ranks shard the logits.
func (t Text) causalLMLoss(f *frame, logits *tensor, b TextBatch) *tensor {
	labels := b.Labels
	switch {
	case b.Shifted:
		g := f.FunctionFrame(logits, labels)
		g.Set(&logits, logits.To(trace.F32))
		g.Set(&logits, logits.View(-1, logits.Size(-1)))
		return g.Return(logits.CrossEntropy(g.Bind(labels.View(-1))))
	case t.VocabRanks == 0 && t.OwnLoss.isInRelease(f):
		return truncatedLoss(f, logits, labels, crossEntropy)
	case t.VocabRanks == 0:
		return CausalLMLoss(f, logits, labels)
	}
	return shiftedLoss(f, logits, labels, func(_ *frame, source, target *tensor) *tensor {
		return source.CrossEntropyAmong(target, t.VocabRanks)
	})
}

// ModelLoss is the loss code in a model's own forward, in releases of transformers before models called [CausalLMLoss].
type ModelLoss struct {
	// Until is the group of models that changed to CausalLMLoss in the same release; zero is Llama's.
	Until trace.FunctionSharers
	// Unconverted keeps the logits' data type. Otherwise they are converted to fp32 first.
	Unconverted bool
}

func (o ModelLoss) isInRelease(f *frame) bool {
	return f.Tape().Rules().Libraries.SharedFunctions < max(o.Until, trace.SharedByLlama)
}

// shiftedLoss computes the loss of flattened fp32 logits and shifted labels; each row's last label is ignored.
func shiftedLoss(f *frame, logits, labels *tensor, of func(f *frame, source, target *tensor) *tensor) *tensor {
	g := f.FunctionFrame(logits, labels)
	g.Set(&logits, logits.To(trace.F32))
	if !f.Tape().Rules().Libraries.ShiftsLabels {
		return g.Return(truncatedLoss(g, logits, labels, of))
	}
	g.Set(&labels, labels.Pad(0, 1))
	shifted := g.Bind(labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	g.Set(&logits, logits.View(-1, logits.Size(-1)))
	g.Set(&shifted, shifted.View(-1))
	g.Set(&shifted, shifted.ToGPUOf(logits))
	return g.Return(of(g, logits, shifted))
}

// truncatedLoss computes the loss of a copy of the logits without each sequence's last token.
func truncatedLoss(f *frame, logits, labels *tensor, of func(f *frame, source, target *tensor) *tensor) *tensor {
	g := f.FunctionFrame(logits, labels)
	g.Set(&logits, logits.Slice(-2, 0, logits.Size(-2)-1).Contiguous())
	g.Set(&labels, labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	g.Set(&logits, logits.View(-1, logits.Size(-1)))
	return g.Return(of(g, logits, g.Set(&labels, labels.View(-1))))
}

// OutputLoss is a cross entropy that computes the logits from hidden states [..., width] itself, in chunks of tokens.
type OutputLoss struct {
	// Output computes the logits.
	Output nn.Layer
	// Adjust scales or caps the logits of a chunk; nil leaves them.
	Adjust func(f *trace.Frame, scores **trace.Tensor)
	// Unshifted reports whether labels are used unshifted; otherwise each token predicts the next one.
	Unshifted bool
}

// ChunkedLoss records LinearCrossEntropyLoss of torchtune 0.7 (torchtune/modules/loss/cross_entropy_loss.py).
// tensor_split splits the tokens, and the logits of one chunk exist at a time. Autograd keeps each chunk's log-softmax,
// so only the logits and their copies are saved. All labels count, also each row's last, which torchtune leaves out.
func (l OutputLoss) ChunkedLoss(f *trace.Frame, x, labels *trace.Tensor, chunks int64) *trace.Tensor {
	t, g := f.Tape(), f.FunctionFrame(x, labels)
	if !l.Unshifted {
		g.Set(&labels, g.Bind(labels.Pad(0, 1)).Slice(-1, 1, labels.Size(-1)+1).Contiguous())
	}
	g.Set(&labels, labels.View(-1))
	g.Set(&x, x.View(-1, x.Size(-1)))
	counted := g.Bind(t.New("nonzero", program.Activations, trace.I64, labels.Numel()))
	g.Set(&x, x.IndexSelect(0, counted))
	g.Set(&labels, labels.IndexSelect(0, counted))
	starts := trace.Sections(x.Size(0), min(chunks, x.Size(0))) // with fewer tokens, further chunks are empty
	targets := g.BindAll(labels.TensorSplit(starts, 0))
	total := g.Bind(t.Zeros(trace.F32))
	for i, part := range g.BindAll(x.TensorSplit(starts, 0)) {
		scores := g.Bind(g.Call(l.Output, part))
		if l.Adjust != nil {
			l.Adjust(g, &scores)
		}
		loss := scores.To(trace.F32).CrossEntropyWith(targets[i], trace.CrossEntropyArgs{Reduction: trace.ReduceSum})
		g.Set(&total, total.Add(g.Bind(loss)))
		g.Del(&scores)
	}
	return g.Return(g.Set(&total, total.DivScalar()))
}

// keptLogits records TransformerDecoder.chunked_output of torchtune before 0.7, which returns the logits of all chunks.
func (l OutputLoss) keptLogits(f *trace.Frame, x *trace.Tensor, chunks int64) []*trace.Tensor {
	g := f.FunctionFrame(x)
	scores := lists.Map(g.BindAll(x.Chunk(chunks, 1)), func(part *trace.Tensor) *trace.Tensor {
		one := g.Bind(g.Call(l.Output, part))
		if l.Adjust != nil {
			l.Adjust(g, &one)
		}
		return one
	})
	g.End(scores...)
	return scores
}

// keptLogitsLoss records CEWithChunkedOutputLoss of torchtune before 0.7.
func keptLogitsLoss(f *trace.Frame, scores []*trace.Tensor, labels *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(labels)
	total := g.Bind(f.Tape().Zeros(trace.F32))
	f.Tape().SaveOnGPU(func() {
		g.Set(&labels, g.Bind(labels.Pad(0, 1)).Slice(-1, 1, labels.Size(-1)+1).Contiguous())
		for i, target := range g.BindAll(labels.Chunk(int64(len(scores)), 1)) {
			flat := g.Bind(g.Bind(target.Contiguous()).View(-1))
			loss := g.Bind(scores[i].View(-1, scores[i].Size(-1))).To(trace.F32).CrossEntropyWith(flat,
				trace.CrossEntropyArgs{Reduction: trace.ReduceSum})
			g.Set(&total, total.Add(g.Bind(loss)))
		}
		g.Set(&total, total.DivScalar())
	})
	return g.Return(total)
}

// LinearCrossEntropy records torch.nn.functional.linear_cross_entropy with the output layer's weight.
func (l OutputLoss) LinearCrossEntropy(f *trace.Frame, x, weight, labels *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(x, labels)
	if !l.Unshifted {
		g.Set(&labels, labels.Pad(0, 1))
		g.Set(&labels, labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	}
	g.Set(&labels, labels.View(-1))
	g.Set(&x, x.View(-1, x.Size(-1)))
	return g.Return(g.LinearCrossEntropy(x, weight, labels))
}

// EndWithLoss ends the frame of a model that returns an output object with the loss. The object's other tensors, such
// as logits, live as long as the training loop keeps the object.
func EndWithLoss(f *frame, loss *tensor, rest ...*tensor) *tensor {
	return Text{}.EndWithLoss(f, loss, rest...)
}

// Begin starts the frame of a model and empties its cache.
func (t Text) Begin(f *frame) { t.Cache.reset(f) }

// EndWithLoss ends a model's frame as the function [EndWithLoss] does; the output also holds the cache.
func (t Text) EndWithLoss(f *frame, loss *tensor, rest ...*tensor) *tensor {
	all, cache := append([]*tensor{loss}, rest...), t.Cache.OutputTensors()
	f.End(append(slices.Clip(all), cache...)...)
	// the cache stays on its layers' GPUs (_skip_keys_device_placement)
	all = append(f.Tape().OutputsToBatchGPU(all), cache...)
	f.Tape().Output(all...)
	return all[0]
}

// ulyssesLoss records per_token_loss_func_sp of ms-swift, outside of the model. It computes a loss for every token of
// the rank, gathers the losses of all ranks and sums them.
func (c ContextParallel) ulyssesLoss(f *frame, model *modelCaller, b TextBatch) *tensor {
	g := f.FunctionFrame(b.IDs, b.Labels)
	labels := g.Bind(c.localTokens(g, b.Labels))
	b.Labels = nil
	logits := g.Bind(model.castLogits(g, b))
	batch := logits.Size(0)
	h := g.FunctionFrame(labels)
	losses := h.Bind(logits.View(-1, logits.Size(-1)).CrossEntropyWith(h.Bind(labels.View(-1)),
		trace.CrossEntropyArgs{Reduction: trace.ReduceNone}))
	all := g.Apply(c.gatherLosses(), losses.Reshape(batch, -1))[0]
	h.End(all)
	g.Bind(all)
	return g.Return(all.Sum(false).DivScalar())
}

// gatherLosses records GatherLoss over losses [batch, local length].
func (c ContextParallel) gatherLosses() *trace.Function {
	return &trace.Function{
		Name: "GatherLossBackward",
		Forward: func(f *frame, _ *trace.FunctionContext, in []*tensor) []*tensor {
			t, x := f.Tape(), in[0]
			parts := lists.Make(c.Ranks, func(int64) *tensor { return f.Bind(t.Empty(x.DType(), x.Shape()...)) })
			t.Collective(program.AllGather, c.Ranks, parts[0], x)
			return []*tensor{trace.Cat(1, parts...)}
		},
		Backward: func(f *frame, _ *trace.FunctionContext, grads []*tensor) []*tensor {
			return []*tensor{c.sequencePart(f.Bind(grads[0].MulScalar()))}
		},
	}
}

package hf

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// CausalLMLoss follows ForCausalLMLoss: the cross entropy in fp32, where every token predicts the next one.
func CausalLMLoss(f *frame, logits, labels *tensor) *tensor {
	return shiftedLoss(f, logits, labels, crossEntropy)
}

func crossEntropy(_ *frame, source, target *tensor) *tensor { return source.CrossEntropy(target) }

// causalLMLoss computes [CausalLMLoss] of a batch, under loss_parallel where ranks share the scores.
func (t Text) causalLMLoss(f *frame, logits *tensor, b TextBatch) *tensor {
	labels := b.Labels
	switch {
	case b.Shifted:
		g := f.FuncFrame(logits, labels)
		g.Set(&logits, logits.To(trace.F32))
		g.Set(&logits, logits.View(-1, logits.Size(-1)))
		return g.Return(logits.CrossEntropy(g.Bind(labels.View(-1))))
	case t.VocabRanks == 0 && t.OwnLoss.appliesTo(f):
		return cutLoss(f, logits, labels, crossEntropy)
	case t.VocabRanks == 0:
		return CausalLMLoss(f, logits, labels)
	}
	return shiftedLoss(f, logits, labels, func(_ *frame, source, target *tensor) *tensor {
		return source.CrossEntropyAmong(target, t.VocabRanks)
	})
}

// OwnLoss describes the loss in a model's own forward, in releases of transformers before it called [CausalLMLoss].
type OwnLoss struct {
	// Until is the group with which it shares that; zero is Llama's.
	Until trace.FunctionSharers
	// Unconverted leaves the logits in their type. Otherwise they are converted to fp32 first.
	Unconverted bool
}

// appliesTo reports whether the model computes its own loss in the release of the recording.
func (o OwnLoss) appliesTo(f *frame) bool {
	return f.Tape().Rules().Libraries.SharedFunctions < max(o.Until, trace.SharedByLlama)
}

// shiftedLoss computes the loss of flattened fp32 logits and shifted labels; the last label of a row is ignored.
func shiftedLoss(f *frame, logits, labels *tensor, of func(f *frame, source, target *tensor) *tensor) *tensor {
	g := f.FuncFrame(logits, labels)
	g.Set(&logits, logits.To(trace.F32))
	if !f.Tape().Rules().Libraries.ShiftsLabels {
		return g.Return(cutLoss(g, logits, labels, of))
	}
	g.Set(&labels, labels.Pad(0, 1))
	shifted := g.Bind(labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	g.Set(&logits, logits.View(-1, logits.Size(-1)))
	g.Set(&shifted, shifted.View(-1))
	g.Set(&shifted, shifted.ToGPUOf(logits))
	return g.Return(of(g, logits, shifted))
}

// cutLoss returns the loss of a copy of the logits of all tokens but the last of each sequence.
func cutLoss(f *frame, logits, labels *tensor, of func(f *frame, source, target *tensor) *tensor) *tensor {
	g := f.FuncFrame(logits, labels)
	g.Set(&logits, logits.Slice(-2, 0, logits.Size(-2)-1).Contiguous())
	g.Set(&labels, labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	g.Set(&logits, logits.View(-1, logits.Size(-1)))
	return g.Return(of(g, logits, g.Set(&labels, labels.View(-1))))
}

// OutputLoss is a cross entropy that computes logits from hidden states [..., width] itself, for some tokens at a time.
type OutputLoss struct {
	// Output gives the scores.
	Output nn.Layer
	// Adjust changes the scores of some tokens; nil leaves them.
	Adjust func(f *trace.Frame, scores **trace.Tensor)
	// OwnLabels reports whether labels are not shifted; otherwise each token predicts the next.
	OwnLabels bool
}

// Chunked records the LinearCrossEntropyLoss of torchtune 0.7 (torchtune/modules/loss/cross_entropy_loss.py): tokens
// are split by tensor_split, and the logits of one chunk exist at a time. Autograd keeps the log-softmax of every
// chunk, so only the logits and their copies are saved. All labels count, also the last of a row, which torchtune
// leaves out.
func (l OutputLoss) Chunked(f *trace.Frame, x, labels *trace.Tensor, chunks int64) *trace.Tensor {
	t, g := f.Tape(), f.FuncFrame(x, labels)
	if !l.OwnLabels {
		g.Set(&labels, g.Bind(labels.Pad(0, 1)).Slice(-1, 1, labels.Size(-1)+1).Contiguous())
	}
	g.Set(&labels, labels.View(-1))
	g.Set(&x, x.View(-1, x.Size(-1)))
	counted := g.Bind(t.New("nonzero", program.Activations, trace.I64, labels.Numel()))
	g.Set(&x, x.IndexSelect(0, counted))
	g.Set(&labels, labels.IndexSelect(0, counted))
	starts := trace.Sections(x.Size(0), min(chunks, x.Size(0))) // what follows with fewer tokens is empty
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

// ChunkedKeepingLogits returns the CEWithChunkedOutputLoss of torchtune before 0.7: the model returns the scores of all
// chunks.
func (l OutputLoss) ChunkedKeepingLogits(f *trace.Frame, x, labels *trace.Tensor, chunks int64) *trace.Tensor {
	g := f.FuncFrame(x, labels)
	var scores []*trace.Tensor
	for _, part := range g.BindAll(x.Chunk(chunks, 1)) {
		one := g.Bind(g.Call(l.Output, part))
		if l.Adjust != nil {
			l.Adjust(g, &one)
		}
		scores = append(scores, one)
	}
	total := g.Bind(f.Tape().Zeros(trace.F32))
	f.Tape().SaveOnGPU(func() {
		g.Set(&labels, g.Bind(labels.Pad(0, 1)).Slice(-1, 1, labels.Size(-1)+1).Contiguous())
		for i, target := range g.BindAll(labels.Chunk(chunks, 1)) {
			flat := g.Bind(g.Bind(target.Contiguous()).View(-1))
			loss := g.Bind(scores[i].View(-1, scores[i].Size(-1))).To(trace.F32).CrossEntropyWith(flat,
				trace.CrossEntropyArgs{Reduction: trace.ReduceSum})
			g.Set(&total, total.Add(g.Bind(loss)))
		}
		g.Set(&total, total.DivScalar())
	})
	return g.Return(total)
}

// Linear follows torch.nn.functional.linear_cross_entropy, by the weight of the output layer.
func (l OutputLoss) Linear(f *trace.Frame, x, weight, labels *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(x, labels)
	if !l.OwnLabels {
		g.Set(&labels, labels.Pad(0, 1))
		g.Set(&labels, labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	}
	g.Set(&labels, labels.View(-1))
	g.Set(&x, x.View(-1, x.Size(-1)))
	return g.Return(g.LinearCrossEntropy(x, weight, labels))
}

// EndWithLoss ends the frame of a model that returns an output object with a loss. The object's other tensors, such as
// the logits, live as long as the training loop keeps it.
func EndWithLoss(f *frame, loss *tensor, rest ...*tensor) *tensor {
	return Text{}.EndWithLoss(f, loss, rest...)
}

// Begin starts the frame of a model; its cache, if any, is emptied.
func (t Text) Begin(f *frame) { t.Cache.begin(f) }

// EndWithLoss calls [EndWithLoss]; the output also has the text's cache, if there is one.
func (t Text) EndWithLoss(f *frame, loss *tensor, rest ...*tensor) *tensor {
	all, cache := append([]*tensor{loss}, rest...), t.Cache.Returned()
	f.End(append(slices.Clip(all), cache...)...)
	all = append(f.Tape().OutputsToBatchGPU(all), cache...) // which stays with its layers (_skip_keys_device_placement)
	f.Tape().Output(all...)
	return all[0]
}

// loss follows per_token_loss_func_sp of ms-swift, outside of the model's own frame. It computes a loss for every token
// of the rank, gathers the losses of all ranks, and sums them.
func (c ContextParallel) loss(f *frame, model *modelCaller, b TextBatch) *tensor {
	g := f.FuncFrame(b.IDs, b.Labels)
	labels := g.Bind(c.local(g, b.Labels))
	b.Labels = nil
	logits := g.Bind(model.castLogits(g, b))
	batch := logits.Size(0)
	h := g.FuncFrame(labels)
	losses := h.Bind(logits.View(-1, logits.Size(-1)).CrossEntropyWith(h.Bind(labels.View(-1)),
		trace.CrossEntropyArgs{Reduction: trace.ReduceNone}))
	all := g.Apply(c.gatherLosses(), losses.Reshape(batch, -1))[0]
	h.End(all)
	g.Bind(all)
	return g.Return(all.Sum(false).DivScalar())
}

// gatherLosses follows GatherLoss of losses [batch, local length].
func (c ContextParallel) gatherLosses() *trace.Function {
	return &trace.Function{
		Name: "GatherLossBackward",
		Forward: func(f *frame, _ *trace.FunctionContext, in []*tensor) []*tensor {
			t, x := f.Tape(), in[0]
			parts := lists.Times(c.Ranks, func(int64) *tensor { return f.Bind(t.Empty(x.DType(), x.Shape()...)) })
			t.Collective(program.AllGather, c.Ranks, parts[0], x)
			return []*tensor{trace.Cat(1, parts...)}
		},
		Backward: func(f *frame, _ *trace.FunctionContext, grads []*tensor) []*tensor {
			return []*tensor{c.sequencePart(f.Bind(grads[0].MulScalar()))}
		},
	}
}

package hf

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/trace"
)

// valueHead is TRL's ValueHead, which computes a number for each token from the last hidden states.
type valueHead struct {
	nn.Module
	Dropout *nn.Dropout
	Summary *nn.Linear
}

const valueHeadDropout = 0.1

func newValueHead(width int64) *valueHead {
	return &valueHead{Dropout: nn.NewDropout(valueHeadDropout), Summary: nn.NewLinear(width, 1, true)}
}

// Forward returns values [rows, length, 1].
func (h *valueHead) Forward(f *frame, x *tensor) *tensor {
	x = f.Bind(f.Call(h.Dropout, x))
	f.Set(&x, x.To(h.Summary.Weight.DType))
	return f.Call(h.Summary, x)
}

type valueHeadModel struct {
	nn.Module
	PretrainedModel any
	VHead           *valueHead
}

// rewardModelLoss is the loss of LLaMA-Factory 0.9.6's reward model (stage rm, train/rm/trainer.py), which learns from
// the last token's value which of two answers is better. TRL's AutoModelForCausalLMWithValueHead also computes logits,
// and keeps the states of all layers until it returns.
type rewardModelLoss struct {
	model *modelCaller
	net   *valueHeadModel
}

// loss records compute_loss of LLaMA-Factory's reward trainer.
func (v *rewardModelLoss) loss(f *frame, b TextBatch) *tensor {
	g := f.FunctionFrame(b.IDs, b.Padding)
	values := g.Bind(v.values(g, b))
	parts := g.BindAll(values.Chunk(2, 0))
	for i, x := range parts {
		last := g.Bind(f.Tape().Filled("sum", trace.I64, x.Size(0), 1))
		parts[i] = g.Bind(g.Bind(x.Gather(last)).Squeeze(-1))
	}
	return g.Return(parts[0].To(trace.F32).Sub(parts[1].To(trace.F32)).LogSigmoid().Mean(false).Neg())
}

// values returns the values [rows, length] of all tokens, under autocast.
func (v *rewardModelLoss) values(f *frame, b TextBatch) *tensor {
	var value, logits *tensor
	on := false
	g := f.FunctionFrame(b.IDs, b.Padding)
	train.Autocast(f.Tape(), v.model.text.AMP, func() {
		h := g.ModuleFrame(v.net, b.IDs, b.Padding)
		logits = h.Bind(v.model.callWithStates(h, b, func(x *tensor) { value = h.Bind(x) }))
		value = h.Bind(h.Call(v.net.VHead, value))
		value = value.Squeeze(-1)
		h.Bind(value)
		if logits.DType() != trace.F32 {
			h.Set(&logits, logits.To(trace.F32))
		}
		h.End(value, logits)
		_, on = f.Tape().Autocasting()
	})
	g.BindAll([]*tensor{value, logits})
	if on {
		g.Set(&value, value.To(trace.F32))
	}
	return g.Return(value)
}

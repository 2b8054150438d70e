package hf

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Decoder maps token ids [batch, length] and a padding mask of the same shape (or nil) to hidden states [batch,
// length, width].
type Decoder interface {
	Call(f *frame, ids, padding *tensor, text Text) *tensor
}

// withBatchPositions returns the text with the batch's positions. It raises an error if tensor-parallel ranks cannot
// share the batch.
func (t Text) withBatchPositions(f *frame, b TextBatch) Text {
	switch {
	case t.TokenRanks > 1 && b.IDs.Size(1)%t.TokenRanks != 0:
		f.Tape().Raise(fmt.Errorf("%d ranks cannot share sequences of %d tokens evenly (sequence parallelism); use a "+
			"--seq-len that %d divides, or leave out sequence", t.TokenRanks, b.IDs.Size(1), t.TokenRanks))
	case t.VocabRanks > 1 && !t.needsAllLogits():
		f.Tape().Raise(errors.New("loss_parallel (loss=true of --strategy) needs the logits of the output layer; " +
			"leave out --set fused-loss and chunked-loss, or loss of --strategy"))
	}
	t.positions = b.Positions
	return t
}

// checkLinearLoss raises an error if a fused loss would skip what the model does to its logits.
func (t Text) checkLinearLoss(f *frame) {
	if t.SoftCap || t.ScaledLogits {
		f.Tape().Raise(errors.New("the setting linear-cross-entropy needs unchanged logits, but this model scales or " +
			"caps them; use --set chunked-loss=N"))
	}
}

// modelWithHead is a decoder with the head of a task, like transformers' ...For... classes.
type modelWithHead struct {
	nn.Module
	nn.TorchNames
	Model         any
	LmHead, Score nn.Layer
}

// CausalLM returns the task of next-token prediction with a decoder and an output layer. names maps model and lm_head
// to other names in transformers' class. holder is the module that contains the decoder, usually the decoder itself.
func CausalLM(names nn.TorchNames, holder any, m Decoder, inputs *nn.Embedding, output nn.Layer, text Text) *TextTask {
	net := &modelWithHead{TorchNames: names, Model: holder, LmHead: output}
	return CausalLMOf(net, m, inputs, &net.LmHead, text)
}

// CausalLMOf returns the task of next-token prediction for a decoder and an output layer that net contains. Adapters
// can replace the layer.
func CausalLMOf(net trainingModule, m Decoder, inputs *nn.Embedding, output *nn.Layer, text Text) *TextTask {
	task := &TextTask{
		Text: text, Net: net, Inputs: inputs, Output: *output,
		Call: func(f *frame, b TextBatch) *tensor {
			g := f.ModuleFrame(net, b.IDs, b.Padding, b.Labels)
			text.Begin(g)
			text.Context.shardBatch(g, &b)
			text := text.withBatchPositions(g, b)
			x := g.Bind(m.Call(g, b.IDs, b.Padding, text))
			switch {
			case text.Headless:
				return text.EndWithLoss(g, g.Bind(x.Sum(false)))
			case text.FusedLoss && net.Training(): // in evaluation its forward computes all logits
				return text.EndWithLoss(g, g.Bind(liger.CausalLMLoss(g, x, headWeight(g, *output), b.Labels)))
			case text.LinearLoss:
				text.checkLinearLoss(f)
				return text.EndWithLoss(g,
					g.Bind(OutputLoss{}.LinearCrossEntropy(g, x, headWeight(g, *output), b.Labels)))
			case text.TiledLoss:
				return text.EndWithLoss(g, g.Bind(tiledLoss(g, x, headWeight(g, *output), b.Labels)))
			case text.CheckpointedLoss:
				return text.EndWithLoss(g, g.Bind(checkpointedLoss(g, x, headWeight(g, *output), b.Labels,
					text.adjustLogits)))
			case text.LossChunks > 1:
				l := OutputLoss{Output: *output, Adjust: text.adjustLogits}
				if text.KeptLogits {
					scores := g.BindAll(l.keptLogits(g, x, text.LossChunks))
					g.Del(&x) // the loss is computed after the model has returned
					return text.EndWithLoss(g, g.Bind(keptLogitsLoss(g, scores, b.Labels)))
				}
				g.Tape().SaveOnGPU(func() { x = l.ChunkedLoss(g, x, b.Labels, text.LossChunks) })
				return text.EndWithLoss(g, g.Bind(x))
			}
			logits := g.Bind(text.callHead(g, *output, x))
			text.adjustLogits(g, &logits)
			if text.OwnLoss.isInRelease(g) && !text.OwnLoss.Unconverted {
				g.Set(&logits, logits.To(trace.F32))
			}
			return text.EndWithLoss(g, g.Bind(text.causalLMLoss(g, logits, b)), logits)
		},
	}
	c := &modelCaller{net, m, output, text}
	task.nextLogits = c.castLogits
	switch {
	case text.hasPerTokenLoss():
		task.Call = func(f *frame, b TextBatch) *tensor { return text.Context.ulyssesLoss(f, c, b) }
		return task
	case text.LoggedLoss && text.needsAllLogits():
		task.Call, task.model = c.loggedLoss, c
		return task
	case text.Objective.IsZero():
		return task
	}
	task.model = c
	task.setObjective(c)
	return task
}

// setObjective sets the loss of a training objective, such as DPO.
func (t *TextTask) setObjective(c *modelCaller) {
	switch o := t.Objective; {
	case o.Name == models.GKD:
		t.Call = (&distillationLoss{t, o.AnswerTokens()}).loss
	case o.Name == models.Reward:
		t.valueHeadModel = &valueHeadModel{PretrainedModel: t.Net, VHead: newValueHead(t.Inputs.Weight.Dims[1])}
		t.Call = (&rewardModelLoss{c, t.valueHeadModel}).loss
	case o.Generates():
		t.policy = &policyTask{task: t, objective: o}
		t.Call = func(f *frame, _ TextBatch) *tensor { return t.policy.loss(f) }
	default:
		t.Call = (&preferenceTask{o, t}).loss
	}
}

// headWeight returns the output layer's weight for a loss that does not call the layer. An adapter around the layer
// is then neither used nor trained.
func headWeight(f *frame, output nn.Layer) *tensor {
	if nn.BaseLayerOf(output) != nn.TrainedCopyOf(output) {
		f.Tape().Raise(
			errors.New("the chunked loss uses the weight of the output layer without its adapter; leave the output " +
				"layer out of target= in --lora, or use another loss"))
	}
	return nn.OutputWeight(output)
}

func (t Text) callHead(f *frame, output nn.Layer, x *tensor) *tensor {
	if t.FloatLogits {
		return f.Call(output, x.To(nn.OutputWeight(output).DType())).To(trace.F32)
	}
	return f.Call(output, x)
}

// adjustLogits scales logits, as Granite does, or caps them by tanh, as Gemma 2 does.
func (t Text) adjustLogits(f *frame, scores **tensor) {
	if t.ScaledLogits {
		f.Set(scores, (*scores).MulScalar())
	}
	if t.SoftCap {
		SoftCap(f, scores)
	}
}

// SoftCap caps a tensor by tanh.
func SoftCap(f *frame, x **tensor) {
	f.Set(x, (*x).DivScalar())
	f.Set(x, (*x).Tanh())
	f.Set(x, (*x).MulScalar())
}

// SequenceClassification returns the task of predicting classes, or a number, for each row with a decoder and a
// linear layer; see [CausalLM]. padToken reports whether the configuration has a padding token.
func SequenceClassification(names nn.TorchNames, holder any, m Decoder, inputs *nn.Embedding, width int64,
	classes Classes, padToken bool, text Text,
) *TextTask {
	net := &modelWithHead{TorchNames: names, Model: holder, Score: nn.NewLinear(width, classes.Count, false)}
	score := &net.Score
	return &TextTask{
		Text: text, Net: net, Inputs: inputs, Output: *score, Classes: &classes, Heads: []*nn.Layer{score},
		Call: func(f *frame, b TextBatch) *tensor {
			g := f.ModuleFrame(net, b.IDs, b.Padding, b.Labels)
			text.Begin(g)
			x := g.Bind(m.Call(g, b.IDs, b.Padding, text))
			scores := g.Bind(g.Call(*score, x))
			// TRL and ms-swift set a padding token themselves.
			logits := lastTokenLogits(g, b.IDs, scores, padToken || !text.Objective.IsZero())
			if text.Objective.Name == models.Reward {
				return text.EndWithLoss(g, g.Bind(rewardLoss(g, logits)), logits)
			}
			return text.EndWithLoss(g, g.Bind(classes.Loss(logits, b.Labels.ToGPUOf(logits))), logits)
		},
	}
}

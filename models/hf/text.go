package hf

import (
	"errors"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/peft"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Text holds the options of training on token ids: sequences, checkpointing, logits and loss, and parallelism.
type Text struct {
	SequenceOptions
	Recomputation
	LogitsOptions
	Parallelism
	// Objective is the training objective; zero is next-token prediction.
	Objective models.Objective
	// AMP is the precision of autocast.
	AMP models.Autocast
	// Micro is the number of micro-batches of a step.
	Micro int64
	// Liger uses the kernels of liger-kernel.
	Liger bool
	// Adapted reports whether peft wraps the model.
	Adapted bool
	// Tiles splits the tokens in feed-forward layers (tiled_mlp).
	Tiles Tiles
	// Cache stores the keys and values of all layers; nil without a cache.
	Cache *KVCache

	// hidden is called with the embeddings and the output of each layer (output_hidden_states).
	hidden func(x *tensor)
	// positions are the position ids [1, length]; nil if the model creates them.
	positions *tensor
}

// SequenceOptions describes the sequences of a batch.
type SequenceOptions struct {
	// Length is the number of tokens of a sequence.
	Length int64
	// SharedLabels reports whether labels and token ids are one tensor.
	SharedLabels bool
	// Padded reports whether some row is padded. Packed is whether some row holds several sequences. Both need an
	// attention mask.
	Padded bool
	Packed Packing
	// Flat reports whether all sequences of a batch are in one row.
	Flat bool
}

// Parallelism describes how several GPUs share a step.
type Parallelism struct {
	// Ranks is the number of GPUs with batches of their own.
	Ranks int64
	// Context splits sequences among ranks.
	Context ContextParallel
	// TokenRanks is the number of tensor-parallel ranks that shard tokens (sequence parallelism), VocabRanks the
	// number that shard logits; zero means none.
	TokenRanks, VocabRanks int64
	Experts                ExpertParallelism
}

// ExpertParallelism distributes the experts of a mixture among ranks.
type ExpertParallelism struct {
	// Ranks is the number of ranks that share the experts; zero means none.
	Ranks int64
	// AllToAll sends each token once for each of its experts by all-to-all ([models.TorchExperts]) instead of DeepEP.
	AllToAll bool
	// Load is the number of tokens that the rank's experts process, divided by the number if all experts were chosen
	// equally often: from 1 to the number of ranks in the group.
	Load float64
	// Tensor is the number of ranks that shard linear layers by transformers' plan and process the same tokens; zero
	// means none. With shared experts each of them sends its part of the tokens; otherwise each has a part of every
	// expert.
	Tensor int64
}

// Recomputation selects the layers that backward recomputes (activation checkpointing).
type Recomputation struct {
	// Checkpointing recomputes every layer, or every Every-th.
	Checkpointing bool
	Every         int
	// Reentrant selects torch.utils.checkpoint's reentrant variant. TrainedOnly skips untrained layers.
	Reentrant, TrainedOnly bool
}

// LogitsOptions select how the logits and the loss are computed.
type LogitsOptions struct {
	// SoftCap caps the logits by tanh. ScaledLogits multiplies them by a number.
	SoftCap, ScaledLogits bool
	// FloatLogits converts the logits to fp32 in the model, as Mamba does.
	FloatLogits bool
	// OwnLoss is the loss code in the model's own forward.
	OwnLoss ModelLoss
	// FusedLoss uses liger-kernel's fused linear cross entropy, which processes chunks of tokens.
	FusedLoss bool
	// LossChunks is the number of chunks of tokens in torchtune's loss; zero and one mean all tokens at once.
	LossChunks int64
	// KeptLogits keeps the logits of all chunks until the loss is computed.
	KeptLogits bool
	// LinearLoss uses torch.nn.functional.linear_cross_entropy.
	LinearLoss bool
	// TiledLoss is TRL's loss in tiles. CheckpointedLoss is TRL's loss in chunks that backward recomputes.
	TiledLoss, CheckpointedLoss bool
	// LoggedLoss logs the entropies of the model's logits, as TRL does.
	LoggedLoss bool
	// Headless leaves the output layer out: the loss is the sum of the hidden states.
	Headless bool
}

// needsAllLogits reports whether the output layer computes the logits of all tokens at once.
func (s LogitsOptions) needsAllLogits() bool {
	return !s.FusedLoss && !s.LinearLoss && s.LossChunks < 2 && !s.TiledLoss && !s.CheckpointedLoss && !s.Headless
}

// IsModelCall reports whether the model itself computes logits and loss.
func (t Text) IsModelCall() bool { return t.needsAllLogits() && t.Objective.IsZero() }

// TextBatch is a batch of token ids [n, length]. Padding is its attention mask or nil. Labels has one label for each
// token or row. Keep is logits_to_keep, the number of last tokens whose logits are computed; zero means all.
type TextBatch struct {
	IDs, Padding, Labels *tensor
	// Positions are the position ids [1 or batch, length]; nil if the model creates them.
	Positions *tensor
	// Shifted reports whether labels are already shifted to the next tokens.
	Shifted bool
	Keep    int64
}

// TextTask is a training task on texts. It implements [train.Adaptable].
type TextTask struct {
	Text
	Net any
	// Inputs is the word embedding, Output the last layer.
	Inputs *nn.Embedding
	Output nn.Layer
	// Classes describes the classification head in Output; nil for a language model, whose Output computes logits
	// over the vocabulary.
	Classes *Classes
	// Heads are pointers to the layers that peft trains as a whole next to adapters (task_type SEQ_CLS).
	Heads []*nn.Layer
	// Bidirectional reports whether a batch has a padding mask even if no row is padded.
	Bidirectional bool
	// Call computes the loss of a batch. All other tensors of the call are freed when it returns.
	Call func(f *trace.Frame, b TextBatch) *trace.Tensor
	// Reference is the frozen reference model of an objective; nil if there is none, or if it is the model with its
	// adapters disabled.
	Reference *TextTask

	// model calls the model for objectives whose trainer computes the loss; nil if the model computes it.
	model *modelCaller
	// nextLogits returns the logits of the next tokens; nil if the task cannot generate.
	nextLogits func(f *trace.Frame, b TextBatch) *trace.Tensor
	batch      TextBatch
	// Extra holds a batch's inputs besides text; nil for most models.
	Extra ExtraInput
	// valueHeadModel is the model with a value head; nil without one.
	valueHeadModel *valueHeadModel
	// policy is the task of learning from generated answers; nil for other objectives.
	policy *policyTask
	// Attentions are the attention modules, one for each layer, to which a peft method adds prompts; nil without any.
	Attentions []peft.Attention
	// embeddingMethod is a peft method at the embedding; nil for most methods.
	embeddingMethod *peft.AdaptedLayer
}

// ExtraInput is a model input besides text, such as images.
type ExtraInput interface {
	// Load copies the input of some rows to the GPU.
	Load(t *trace.Tape, rows int64)
	// RequireGrads makes the first result computed from the input require gradients.
	RequireGrads()
}

// Model returns the model to train, for [train.Task].
func (t *TextTask) Model() any { return t.Net }

// Head returns the output layer that freeze stage head trains, for [train.Task].
func (t *TextTask) Head() any { return t.Output }

// OutputLayers returns the output layers, which get adapters only by name, for [train.Adaptable].
func (t *TextTask) OutputLayers() []nn.Layer {
	if t.Classes == nil {
		return []nn.Layer{t.Output}
	}
	return nil
}

// LayersToSave returns the layers of which peft trains a copy, for [train.Adaptable].
func (t *TextTask) LayersToSave() []*nn.Layer { return t.Heads }

// RequireInputGrads makes embeddings return tensors that require gradients, for [train.Adaptable].
func (t *TextTask) RequireInputGrads() {
	t.Inputs.RequireGrads()
	if t.Extra != nil {
		t.Extra.RequireGrads()
	}
}

// DetachesLoss implements [train.LossDetacher]: training_step of TRL's trainers returns loss.detach().
func (t *TextTask) DetachesLoss() bool { return t.LoggedLoss }

// PrepareCheckpointing makes embeddings require gradients, for [train.CheckpointPreparer].
func (t *TextTask) PrepareCheckpointing() { t.RequireInputGrads() }

// ValueHead returns the model with the value head, and the head, for [train.ValueHeadHolder].
func (t *TextTask) ValueHead() (model, head any) {
	if t.valueHeadModel == nil {
		return nil, nil
	}
	return t.valueHeadModel, t.valueHeadModel.VHead
}

// Load copies a batch of n samples to the GPU, for [train.Task].
func (t *TextTask) Load(tape *trace.Tape, n int64) {
	fresh := func(op string, shape ...int64) *tensor {
		return tape.Hold(tape.New(op, program.Batch, trace.I64, shape...))
	}
	if t.policy != nil {
		t.policy.loadAnswers(fresh, tape, n)
		return
	}
	n *= t.Objective.SequencesPerSample()
	if t.Objective.Packed {
		t.batch = TextBatch{IDs: fresh("randint", 1, n*t.Length), Labels: fresh("clone", 1, n*t.Length)}
		fresh("clone", 1, n*t.Length) // position_ids, which restart at each sequence
		return
	}
	if t.Flat {
		t.batch = TextBatch{
			IDs: fresh("randint", 1, n*t.Length), Labels: fresh("clone", 1, n*t.Length),
			Positions: fresh("clone", 1, n*t.Length),
		}
		return
	}
	t.batch = TextBatch{IDs: fresh("randint", n, t.Length)}
	if t.TokenRanks > 1 { // from its shard of the embeddings the model would count only the rank's tokens
		t.batch.Positions = fresh("arange", 1, t.Length)
	}
	if t.Context.IsActive() && t.Context.Algorithm == models.TorchRing {
		t.batch.Positions = t.Context.allocateBuffers(fresh, n, t.Length)
	}
	if t.Bidirectional || t.Padded {
		t.batch.Padding = fresh("ones", n, t.Length)
	}
	switch {
	case t.SharedLabels && t.batch.Positions == nil:
		t.batch.Labels = t.batch.IDs
	case t.Classes == nil || t.Classes.Tokens || !t.Objective.IsZero():
		t.batch.Labels = fresh("clone", n, t.Length)
	default:
		t.batch.Labels = tape.Hold(t.Classes.Labels(tape, n))
	}
	t.loadExtra(tape, n)
}

// loadExtra copies the other inputs of n rows to the GPU.
func (t *TextTask) loadExtra(tape *trace.Tape, n int64) {
	if t.Extra != nil {
		t.Extra.Load(tape, n)
	}
}

// Prepare records what precedes the forward passes of a step, for [train.StepPreparer].
func (t *TextTask) Prepare(f *trace.Frame) {
	if t.policy != nil {
		t.policy.computeLogProbs(f)
	}
}

// EntersAutocast reports whether the task itself enters autocast for its forward passes.
func (t *TextTask) EntersAutocast() bool { return t.model != nil }

// Loss records forward and the loss of the batch, for [train.Task].
func (t *TextTask) Loss(f *trace.Frame, loss **trace.Tensor) {
	if t.embeddingMethod == nil {
		f.Set(loss, t.Call(f, t.batch))
	} else {
		f.Set(loss, t.promptedLoss(f))
	}
	f.Tape().Mark("forward")
}

// AdaptEmbeddings puts a peft method at the input embeddings, for [train.EmbeddingAdapter].
func (t *TextTask) AdaptEmbeddings(method peft.Config) (nn.Adapter, error) {
	plain := t.Classes == nil && t.Extra == nil && t.Objective.IsZero() && t.Packed != SeveralSequences
	if method.ForLanguageModels() && !plain || t.Context.Ranks > 1 {
		return nil, errors.New("vprof adds methods of peft to embeddings only in language models trained on the next " +
			"token, with one text in each sequence; name other layers, or run your own script with \"vprof run\"")
	}
	words := peft.Words{Embeddings: t.Inputs, Output: t.Output, Attentions: t.Attentions}
	tuned, err := peft.AdaptEmbeddings(t.Net, method, words)
	if err != nil {
		return nil, err
	}
	t.embeddingMethod = tuned
	return tuned, nil
}

// promptedLoss returns the loss of a batch with virtual tokens before each row, which labels and mask cover
// (PeftModelForCausalLM.forward).
func (t *TextTask) promptedLoss(f *frame) *tensor {
	b, g := t.batch, f.FunctionFrame(t.batch.IDs, t.batch.Labels, t.batch.Padding)
	t.embeddingMethod.SetCaller(g)
	n := t.embeddingMethod.VirtualTokens()
	if n > 0 && b.Padding != nil {
		seen := g.Bind(g.Tape().New("to_device", program.Temporaries, trace.F32, b.IDs.Size(0), n))
		b.Padding = g.Bind(trace.Cat(1, seen, b.Padding))
	}
	if n > 0 {
		unread := g.Bind(g.Tape().New("to_device", program.Temporaries, trace.I64, b.IDs.Size(0), n))
		b.Labels = g.Bind(trace.Cat(1, unread, b.Labels))
	}
	return g.Return(t.Call(g, b))
}

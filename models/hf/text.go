package hf

import (
	"errors"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/peft"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Text describes the training of a model over token ids: rows, recomputation, logits and loss, and the ranks' shares
// of the step.
type Text struct {
	Rows
	Recomputation
	LogitsOptions
	Sharing
	// Objective is the training objective, if it is not the next token.
	Objective models.Objective
	// AMP is the precision of autocast.
	AMP models.Autocast
	// Micro is the number of micro-batches of a step.
	Micro int64
	// Liger has the kernels of liger-kernel.
	Liger bool
	// Adapted reports whether peft's model is around it.
	Adapted bool
	// Tiles has feed-forward layers see a part of the tokens at a time.
	Tiles Tiles
	// Cache has the keys and values of all layers; nil for none.
	Cache *KVCache

	// hidden is called with the embeddings and the output of every layer (output_hidden_states).
	hidden func(x *tensor)
	// positions are the positions of tokens [1, length], nil if the model counts them.
	positions *tensor
}

// Rows describes the sequences of a batch.
type Rows struct {
	// Length is the number of tokens of a row.
	Length int64
	// SharedLabels reports whether the labels of tokens are the very tensor of the ids.
	SharedLabels bool
	// Padded reports whether some row is padded, Packed whether some row holds several
	// sequences. Attention needs a mask in both cases.
	Padded bool
	Packed Packing
	// Flat reports whether all sequences of a batch are in one row.
	Flat bool
}

// Sharing describes how several GPUs share a step.
type Sharing struct {
	// Ranks is the number of GPUs with batches of their own.
	Ranks int64
	// Context has ranks share each sequence.
	Context ContextParallel
	// TokenRanks is how many ranks share tokens outside of layers that they share (sequence
	// parallelism), VocabRanks how many share the logits; zero none.
	TokenRanks, VocabRanks int64
	Experts                ExpertParallelism
}

// ExpertParallelism is how ranks share the experts of a mixture.
type ExpertParallelism struct {
	// Ranks is how many ranks share the experts out, zero none.
	Ranks int64
	// AllToAll has them exchange pairs of tokens and experts by all-to-all ([models.TorchExperts]), not by DeepEP.
	AllToAll bool
	// Load is the number of tokens that come to the rank, relative to experts that are chosen equally often: 1 or
	// more; as many as its group has at most.
	Load float64
	// Tensor is how many ranks share linear layers by transformers' plan and see the same tokens, zero none: each sends
	// its share of the tokens to the ranks of their experts, and where none share these out has a part of every expert.
	Tensor int64
}

// Recomputation is the set of layers that run again in backward (activation checkpointing).
type Recomputation struct {
	// Checkpointing recomputes every layer, or every Every-th.
	Checkpointing bool
	Every         int
	// Reentrant has torch.utils.checkpoint's reentrant variant do it; TrainedOnly leaves out layers
	// that have nothing to train.
	Reentrant, TrainedOnly bool
}

// LogitsOptions describes how the logits and the loss are computed.
type LogitsOptions struct {
	// SoftCap holds the scores down by a tanh; ScaledLogits scales them.
	SoftCap, ScaledLogits bool
	// FloatLogits brings them to fp32 at once, as Mamba does.
	FloatLogits bool
	// OwnLoss is the model's own code of the loss.
	OwnLoss OwnLoss
	// FusedLoss has liger-kernel compute them and their loss, chunk by chunk of tokens.
	FusedLoss bool
	// LossChunks is the number of chunks of tokens that PyTorch computes them for, one after the
	// other, as torchtune does; zero and one are all tokens at once.
	LossChunks int64
	// KeptLogits has the scores of all chunks there until the loss is computed.
	KeptLogits bool
	// LinearLoss has torch.nn.functional.linear_cross_entropy compute them.
	LinearLoss bool
	// TiledLoss has TRL compute them in tiles, CheckpointedLoss in chunks that backward computes again.
	TiledLoss, CheckpointedLoss bool
	// LoggedLoss has TRL log the entropies of scores that the model computes.
	LoggedLoss bool
	// Headless leaves the output layer out: the loss is the sum of what it would take.
	Headless bool
}

// needsAllLogits reports whether the output layer computes the logits of all tokens at once.
func (s LogitsOptions) needsAllLogits() bool {
	return !s.FusedLoss && !s.LinearLoss && s.LossChunks < 2 && !s.TiledLoss && !s.CheckpointedLoss && !s.Headless
}

// IsModelCall reports whether the model itself computes logits and loss, without a replacement.
func (t Text) IsModelCall() bool { return t.needsAllLogits() && t.Objective.IsZero() }

// TextBatch is a batch of token ids [n, length]. Padding is its attention mask or nil. Labels has one for each token or
// for each row. Keep is the number of last tokens whose logits are computed (logits_to_keep), zero for all.
type TextBatch struct {
	IDs, Padding, Labels *tensor
	// Positions are the positions of tokens [1 or batch, length], nil where the model counts them.
	Positions *tensor
	// Shifted reports whether labels are shifted to the next tokens already.
	Shifted bool
	Keep    int64
}

// TextTask is a task over texts; it implements [train.Adaptable].
type TextTask struct {
	Text
	Net any
	// Inputs are the word embeddings, Output the last layer.
	Inputs *nn.Embedding
	Output nn.Layer
	// Classes describes the classification head that Output is; nil for a language
	// model, whose Output has a score for every word of the vocabulary at every token.
	Classes *Classes
	// Heads are the places of the layers that peft trains as a whole besides adapters, with task_type SEQ_CLS.
	Heads []*nn.Layer
	// Bidirectional reports whether a batch comes with a padding mask even if no row is padded.
	Bidirectional bool
	// Call computes the loss of a batch. Everything else that the call allocates is freed when it returns.
	Call func(f *trace.Frame, b TextBatch) *trace.Tensor
	// Reference is the frozen model that an objective compares with; nil if there is none,
	// or the model without its adapters is.
	Reference *TextTask

	// model is called for what a trainer computes of its results, in the precision of training; nil if it computes the
	// loss.
	model *modelCaller
	// next gives the logits of the tokens that follow a batch; nil of tasks that generate nothing.
	next  func(f *trace.Frame, b TextBatch) *trace.Tensor
	batch TextBatch
	// Extra has tensors of a batch beside its texts; nil for most.
	Extra Extra
	// valued is the model with a head of values; nil for most.
	valued *valuedModel
	// policy learns from generated answers; nil for most.
	policy *policyTask
	// Attentions are the modules, one a layer, that a method of peft puts prompts at; nil if it has none for the model.
	Attentions []peft.Attention
	// tuned is a method of peft at the embeddings; nil for most.
	tuned *peft.Site
}

// Extra is an additional input of texts, such as images.
type Extra interface {
	// Load brings that of some rows to the device.
	Load(t *trace.Tape, rows int64)
	// RequireGrads makes the model's first result for it require gradients.
	RequireGrads()
}

// Model implements [train.Task].
func (t *TextTask) Model() any { return t.Net }

// Head implements [train.Task].
func (t *TextTask) Head() any { return t.Output }

// Unadapted implements [train.Adaptable].
func (t *TextTask) Unadapted() []nn.Layer {
	if t.Classes == nil {
		return []nn.Layer{t.Output}
	}
	return nil
}

// Saved implements [train.Adaptable].
func (t *TextTask) Saved() []*nn.Layer { return t.Heads }

// RequireInputGrads implements [train.Adaptable].
func (t *TextTask) RequireInputGrads() {
	t.Inputs.RequireGrads()
	if t.Extra != nil {
		t.Extra.RequireGrads()
	}
}

// DetachesLoss implements [train.LossDetacher]: training_step of TRL's trainers returns loss.detach().
func (t *TextTask) DetachesLoss() bool { return t.LoggedLoss }

// PrepareRecomputation implements [train.RecomputePreparer].
func (t *TextTask) PrepareRecomputation() { t.RequireInputGrads() }

// Valued implements [train.ValueHeadHolder].
func (t *TextTask) Valued() (model, head any) {
	if t.valued == nil {
		return nil, nil
	}
	return t.valued, t.valued.VHead
}

// Load implements [train.Task].
func (t *TextTask) Load(tape *trace.Tape, n int64) {
	fresh := func(op string, shape ...int64) *tensor {
		return tape.Hold(tape.New(op, program.Batch, trace.I64, shape...))
	}
	if t.policy != nil {
		t.policy.load(fresh, tape, n)
		return
	}
	n *= t.Objective.SequencesPerSample()
	if t.Objective.Packed {
		t.batch = TextBatch{IDs: fresh("randint", 1, n*t.Length), Labels: fresh("clone", 1, n*t.Length)}
		fresh("clone", 1, n*t.Length) // position_ids, which begin anew with each text
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
	if t.TokenRanks > 1 { // the model would count the embeddings of the rank alone
		t.batch.Positions = fresh("arange", 1, t.Length)
	}
	if t.Context.On() && t.Context.By == models.TorchRing {
		t.batch.Positions = t.Context.buffers(fresh, n, t.Length)
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

// loadExtra copies the extra input of n rows of texts to the device.
func (t *TextTask) loadExtra(tape *trace.Tape, n int64) {
	if t.Extra != nil {
		t.Extra.Load(tape, n)
	}
}

// Prepare implements [train.StepPreparer].
func (t *TextTask) Prepare(f *trace.Frame) {
	if t.policy != nil {
		t.policy.score(f)
	}
}

// Casts implements [train.AutocastTask].
func (t *TextTask) Casts() bool { return t.model != nil }

// Loss implements [train.Task].
func (t *TextTask) Loss(f *trace.Frame, loss **trace.Tensor) {
	if t.tuned == nil {
		f.Set(loss, t.Call(f, t.batch))
	} else {
		f.Set(loss, t.prompted(f))
	}
	f.Tape().Mark("forward")
}

// AdaptEmbeddings implements [train.EmbeddingAdapter].
func (t *TextTask) AdaptEmbeddings(method peft.Config) (nn.Adapter, error) {
	plain := t.Classes == nil && t.Extra == nil && t.Objective.IsZero() && t.Packed != SeveralSequences
	if method.ForLanguageModels() && !plain || t.Context.Ranks > 1 {
		return nil, errors.New("vprof records methods of peft at the embeddings of language models that learn the " +
			"next token of sequences with one text each; use \"vprof run\"")
	}
	words := peft.Words{Embeddings: t.Inputs, Output: t.Output, Attentions: t.Attentions}
	tuned, err := peft.AdaptEmbeddings(t.Net, method, words)
	if err != nil {
		return nil, err
	}
	t.tuned = tuned
	return tuned, nil
}

// prompted returns the loss of a batch with virtual tokens before each row, whose labels and mask cover them
// (PeftModelForCausalLM.forward).
func (t *TextTask) prompted(f *frame) *tensor {
	b, g := t.batch, f.FuncFrame(t.batch.IDs, t.batch.Labels, t.batch.Padding)
	t.tuned.CalledFrom(g)
	n := t.tuned.VirtualTokens()
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

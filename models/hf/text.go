package hf

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Text is how a model over token ids is trained.
type Text struct {
	// Length is the number of tokens of a row.
	Length int64
	// Padded says that some row is padded, Packed that some row holds several
	// sequences. Attention needs a mask in both cases.
	Padded, Packed bool
	// Checkpointing recomputes layers in backward: every one, or every Every-th;
	// Reentrant has another way of doing it; OfTrained does it for layers alone that have
	// something to train.
	Checkpointing bool
	Reentrant     bool
	OfTrained     bool
	Every         int
	// Liger has the kernels of liger-kernel.
	Liger bool
	// ScoreCap holds the scores of words down by a tanh; ScoreScaled scales them.
	ScoreCap, ScoreScaled bool
	// ScoresWhole brings the scores of words to fp32 at once, as Mamba does.
	ScoresWhole bool
	// FusedLoss has the scores and their loss computed as liger-kernel does, and nothing
	// else; LossChunks is the number of chunks of tokens that they are computed in, one
	// after the other, as torchtune does.
	FusedLoss  bool
	LossChunks int64
	// LinearLoss has them computed by torch.nn.functional.linear_cross_entropy.
	LinearLoss bool
	// Objective is what is learnt in place of the next token.
	Objective models.Objective
	// hidden is shown the words and what every layer makes of them (output_hidden_states).
	hidden func(x *tensor)
	// AMP is the precision of autocast.
	AMP models.Autocast
	// Micro is the number of micro-batches of a step, Ranks that of GPUs with batches of
	// their own.
	Micro, Ranks int64
	// Adapted says that peft's model is around it.
	Adapted bool
	// Tiles has feed-forward layers see a part of the tokens at a time.
	Tiles Tiles
	// Context has ranks share each sequence.
	Context Context
	// ExpertRanks is how many ranks share out the experts of a mixture, zero none.
	ExpertRanks int64
}

// The names of the settings of texts.
const (
	lengthSetting = "seq-len"
	packedSetting = "packed"
	chunksSetting = "chunked-loss"
	fusedSetting  = "fused-loss"
	linearSetting = "linear-cross-entropy"
	plainSetting  = "plain-loss"
)

// LengthSetting is the number of tokens of a row.
func LengthSetting(usual, most int64) models.Setting {
	return models.Setting{Name: lengthSetting, Usage: "tokens of a sequence", Length: true, Default: min(usual, most), Min: 1, Max: most}
}

// Padding is the name of the setting that says whether rows are padded.
const Padding = "padding"

// PaddingSetting says whether rows are padded, which needs a mask.
func PaddingSetting(usual int64) models.Setting {
	return models.Setting{Name: Padding, Usage: "1 if a sequence of the batch is padded, 0 if none is", Default: usual, Min: 0, Max: 1}
}

// PaddingNote tells what padding costs.
const PaddingNote = "a batch without padding needs no attention mask, and flash attention serves it in half precision: --set padding=0"

// PackedSetting says whether rows hold several sequences, which needs a mask.
func PackedSetting(usual int64) models.Setting {
	return models.Setting{Name: packedSetting, Usage: "1 if rows hold several sequences, 0 if each holds one", Default: usual, Min: 0, Max: 1}
}

// flashSetting is the name of a setting of models whose attention is eager.
const flashSetting = "flash"

// FlashSetting says which kernels serve attention where FlashAttention needs another step
// than the attention that models are loaded with: of eager ones, and of those with a mask.
func FlashSetting() models.Setting {
	return models.Setting{Name: flashSetting, Usage: "1 if FlashAttention serves attention (attn_implementation), 0 if what the model is loaded with does", Default: 0, Min: 0, Max: 1}
}

// eagerSetting is the name of a setting of models whose attention is not eager.
const eagerSetting = "eager"

// EagerSetting says whether scores are computed and kept.
func EagerSetting() models.Setting {
	return models.Setting{Name: eagerSetting, Usage: "1 if attention is eager (attn_implementation), 0 if PyTorch's fused attention serves it", Default: 0, Min: 0, Max: 1}
}

// EagerOf reads whether eager attention was chosen.
func EagerOf(c models.Case) bool { return c.Settings[eagerSetting] == 1 }

// flexSetting is the name of a setting of models that flex_attention can serve.
const flexSetting = "flex"

// FlexSetting says whether kernels of torch.nn.attention.flex_attention serve attention.
func FlexSetting() models.Setting {
	return models.Setting{Name: flexSetting, Usage: "1 if TorchInductor's kernels of flex_attention serve attention (attn_implementation), 0 if PyTorch's fused attention does", Default: 0, Min: 0, Max: 1}
}

// FlexOf reads whether flex_attention was chosen.
func FlexOf(c models.Case) bool { return c.Settings[flexSetting] == 1 }

// FlashOf reads whether FlashAttention was chosen.
func FlashOf(c models.Case) bool { return c.Settings[flashSetting] == 1 }

// PackedNote tells what packing costs.
const PackedNote = "rows that hold one sequence each need no attention mask, and flash attention serves them in half precision: --set packed=0"

// LossSettings are how the scores of a language model and their loss are computed.
func LossSettings() []models.Setting {
	return append(ChunkSettings(),
		models.Setting{Name: plainSetting, Usage: "1 if PyTorch computes scores and loss where --liger replaces layers, 0 if liger-kernel's fused loss does", Default: 0, Min: 0, Max: 1},
		models.Setting{Name: fusedSetting, Usage: "1 if liger-kernel's fused linear cross entropy computes scores and loss, 0 if PyTorch does", Default: 0, Min: 0, Max: 1},
	)
}

// ChunkSettings are the ways of PyTorch and torchtune to compute them for some tokens at a
// time.
func ChunkSettings() []models.Setting {
	return []models.Setting{
		{Name: chunksSetting, Usage: "chunks of tokens whose scores and loss are computed one after the other, as torchtune's LinearCrossEntropyLoss does; 0 for all at once", Default: 0, Min: 0, Max: 1 << 12},
		{Name: linearSetting, Usage: "1 if torch.nn.functional.linear_cross_entropy of PyTorch 2.13 and newer computes scores and loss in chunks of tokens, with LinearCrossEntropyOptions() as it is; 0 if not", Default: 0, Min: 0, Max: 1},
	}
}

// LossSettingNames are their names.
func LossSettingNames() []string {
	return []string{chunksSetting, fusedSetting, linearSetting, plainSetting}
}

// CheckLoss finds settings of the loss that do not go together, and says why.
func CheckLoss(c models.Case) (setting, reason string) {
	if c.Settings[plainSetting] == 1 && (!c.Liger || c.Settings[fusedSetting] == 1) {
		return plainSetting, "is about --liger without its fused loss; leave it out, or give --liger alone"
	}
	if c.Settings[chunksSetting] > 1 && fusedLoss(c) {
		return chunksSetting, "the fused loss of liger-kernel goes through chunks of its own; give one of the two"
	}
	if c.Settings[linearSetting] != 1 {
		return "", ""
	}
	if fusedLoss(c) || c.Settings[chunksSetting] > 1 {
		return linearSetting, "another way of computing scores and loss is asked for, too; give one of them"
	}
	if s, err := c.Release(); err == nil && !s.Rules().LinearLoss.Known {
		return linearSetting, "PyTorch " + c.ReleaseName() + " has no linear_cross_entropy, which began with 2.13; use another --torch or --chunked-loss N"
	}
	return "", ""
}

// fusedLoss says that liger-kernel computes scores and loss.
func fusedLoss(c models.Case) bool {
	return c.Liger && c.Settings[plainSetting] != 1 || c.Settings[fusedSetting] == 1
}

// ReadsHead tells whether the loss reads the weight of the output layer instead of calling the
// layer.
func ReadsHead(c models.Case) bool { return fusedLoss(c) || c.Settings[linearSetting] == 1 }

// LigerLoss tells whether the fused loss comes with liger-kernel's replacement of modules
// (--liger), and not from a setting of its own.
func LigerLoss(c models.Case) bool { return fusedLoss(c) && c.Settings[fusedSetting] != 1 }

// TextOf reads the settings of a case.
func TextOf(c models.Case) Text {
	return Text{
		Length: c.Settings[lengthSetting],
		Padded: c.Settings[Padding] == 1, Packed: c.Settings[packedSetting] == 1,
		Checkpointing: c.Checkpointing, Reentrant: c.Recompute == models.Reentrant || c.Recompute == models.ReentrantTrained, OfTrained: c.Recompute == models.ReentrantTrained, Every: c.EveryLayers(),
		Liger: c.Liger, FusedLoss: fusedLoss(c), LossChunks: c.Settings[chunksSetting], LinearLoss: c.Settings[linearSetting] == 1,
		Objective: c.Objective, Tiles: tilesOf(c), Context: contextOf(c), ExpertRanks: expertRanks(c), AMP: c.AMP, Micro: int64(max(1, c.Accumulate)), Ranks: int64(max(1, c.GPUs)), Adapted: c.LoRA != nil,
	}
}

// TextBatch is a batch of token ids [n, length]; Padding is its attention mask
// or nil, Labels has one for each token or one for each row. Keep is the number of
// last tokens that scores are computed for (logits_to_keep), zero for all.
type TextBatch struct {
	IDs, Padding, Labels *tensor
	Keep                 int64
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
	// Heads are the places of the layers that peft trains as a whole beside
	// adapters, with task_type SEQ_CLS.
	Heads []*nn.Layer
	// Bidirectional says that a batch comes with a padding mask even if no row
	// is padded.
	Bidirectional bool
	// Call is the loss of a batch, of which nothing else outlives the call.
	Call func(f *trace.Frame, b TextBatch) *trace.Tensor
	// Reference is the frozen model that an objective compares with; nil if there is none,
	// or the model without its adapters is.
	Reference *TextTask

	// scores are those of the model's call in the precision of training; states shows
	// hidden states of a call in the model's own type, with the scores or without.
	scores func(f *trace.Frame, b TextBatch) *trace.Tensor
	// chunks are the scores of chunks of tokens.
	chunks func(f *trace.Frame, b TextBatch, n int64) []*trace.Tensor
	states func(f *trace.Frame, b TextBatch, visit func(x *trace.Tensor), scores bool) *trace.Tensor
	batch  TextBatch
	// Beside is what a batch has beside its texts; nil for most.
	Beside Beside
	// valued is the model with a head of values; nil for most.
	valued *valuedModel
	// policy learns from generated answers; nil for most.
	policy *policy
}

// Beside is what comes with texts, such as images.
type Beside interface {
	// Load brings that of some rows to the device.
	Load(t *trace.Tape, rows int64)
	// RequireGrads makes what is first made of it require gradients.
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
	if t.Beside != nil {
		t.Beside.RequireGrads()
	}
}

// PrepareRecomputation implements [train.Recomputing].
func (t *TextTask) PrepareRecomputation() { t.RequireInputGrads() }

// Valued implements [train.Valued].
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
	samples := n
	n *= t.Objective.Rows()
	if t.Objective.Packed {
		t.batch = TextBatch{IDs: fresh("randint", 1, n*t.Length), Labels: fresh("clone", 1, n*t.Length)}
		fresh("clone", 1, n*t.Length) // the places of tokens in their texts
		return
	}
	if t.Objective.Unpadded {
		t.batch = TextBatch{IDs: fresh("randint", 1, n*t.Length), Labels: fresh("clone", n)}
		fresh("clone", 1, n*t.Length) // the places of tokens in their texts
		t.loadBeside(tape, n)
		return
	}
	t.batch = TextBatch{IDs: fresh("randint", n, t.Length)}
	if t.Bidirectional || t.Padded {
		t.batch.Padding = fresh("ones", n, t.Length)
	}
	switch {
	case t.Objective.Name == models.Embedding:
		t.batch.Labels = tape.Hold(tape.New("clone", program.Batch, trace.F32, samples*(t.Objective.Rows()-1)))
	case t.Objective.Name == models.Reranker:
		t.batch.Labels = fresh("clone", n)
	case t.Classes == nil || t.Classes.Tokens || !t.Objective.IsZero():
		t.batch.Labels = fresh("clone", n, t.Length)
	default:
		t.batch.Labels = t.Classes.Labels(tape, n)
	}
	t.loadBeside(tape, n)
}

// loadBeside brings what comes with n rows of texts to the device.
func (t *TextTask) loadBeside(tape *trace.Tape, n int64) {
	if t.Beside != nil {
		t.Beside.Load(tape, n)
	}
}

// Prepare implements [train.Preparing].
func (t *TextTask) Prepare(f *trace.Frame) {
	if t.policy != nil {
		t.policy.score(f)
	}
}

// Casts implements [train.Casting].
func (t *TextTask) Casts() bool { return t.scores != nil }

// Loss implements [train.Task].
func (t *TextTask) Loss(f *trace.Frame, loss **trace.Tensor) {
	f.Set(loss, t.Call(f, t.batch))
	f.Tape().Mark("forward")
}

package models

import (
	"cmp"

	"github.com/vprof/vprof/internal/options"
)

// Objective is what a language model learns from pairs of answers, or from answers that
// were judged, in place of the next token, or how it weighs tokens. The zero value is the next
// token.
type Objective struct {
	// Name is one of [Objectives].
	Name string
	// Precomputed says that the log-probabilities of the reference came before training.
	Precomputed bool
	// Packed has pairs of answers fill one row without padding, of ms-swift's DPO.
	Packed bool
	// Completion is the number of tokens of a generated answer, the last ones of a row; zero
	// is [UsualCompletion]. Of objectives whose answers are generated.
	Completion int64
	// Reference compares generated answers with a reference (beta is not zero), and Old takes
	// their log-probabilities before the steps that learn from them.
	Reference, Old bool
	// Chunks is the number of chunks of tokens whose scores are compared with those of a
	// teacher one after the other; zero compares all at once.
	Chunks int64
	// Negatives is the number of texts of a sample that do not belong to it; zero is none of
	// embeddings and [UsualNegatives] of rerankers.
	Negatives int64
	// Pairs compares embeddings in pairs; else all with all. Unpadded has the texts of a batch
	// as one row without padding. Of objectives over texts that belong together.
	Pairs, Unpadded bool
	// As is the trainer whose code computes log-probabilities, one of [ObjectiveTrainers];
	// empty is TRL. Of EAFT it is [AsAxolotl], of DFT [AsSwift] or [AsTRL]; empty is
	// LLaMA-Factory, as of the other losses that weigh tokens.
	As string
}

// The objectives.
const (
	DPO    = "dpo"
	GKD    = "gkd"
	KD     = "kd"
	EBFT   = "ebft"
	GRPO   = "grpo"
	KTO    = "kto"
	ORPO   = "orpo"
	CPO    = "cpo"
	SimPO  = "simpo"
	Reward = "reward"
	DFT    = "dft"
	ASFT   = "asft"
	EAFT   = "eaft"

	Embedding = "embedding"
	Reranker  = "reranker"
)

// Objectives returns the names of all objectives.
func Objectives() []string {
	return []string{ASFT, CPO, DFT, DPO, EAFT, EBFT, Embedding, GKD, GRPO, KD, KTO, ORPO, Reranker, Reward, SimPO}
}

// The trainers whose code differs, of most objectives from that of TRL.
const (
	AsAxolotl      = "axolotl"
	AsLLaMAFactory = "llama-factory"
	AsSwift        = "ms-swift"
	AsTorchtune    = "torchtune"
	AsTRL          = "trl"
)

// ObjectiveTrainers returns the values of [Objective.As] of what is learnt from compared answers.
func ObjectiveTrainers() []string { return []string{AsLLaMAFactory, AsSwift, AsTorchtune} }

// objectiveOptions holds the options, in the order in which they are written.
var objectiveOptions = options.Table[Objective]{
	options.Count("completion", 1, mostCompletion, func(o *Objective) *int64 { return &o.Completion }).
		For(GRPO, EBFT, GKD),
	options.Switch("reference", func(o *Objective) *bool { return &o.Reference }).For(GRPO, EBFT),
	options.Switch("old", func(o *Objective) *bool { return &o.Old }).For(GRPO, EBFT),
	options.Count("chunks", 1, mostChunks, func(o *Objective) *int64 { return &o.Chunks }).For(KD),
	options.Count("negatives", 1, mostNegatives, func(o *Objective) *int64 { return &o.Negatives }).
		For(Embedding, Reranker),
	options.Switch("pairs", func(o *Objective) *bool { return &o.Pairs }).For(Embedding),
	options.Switch("unpadded", func(o *Objective) *bool { return &o.Unpadded }).For(Embedding, Reranker),
	options.Switch("precomputed", func(o *Objective) *bool { return &o.Precomputed }).For(DPO, KTO),
	options.Switch("packed", func(o *Objective) *bool { return &o.Packed }).For(DPO),
	{
		Key: "as", Names: []string{DPO, KTO, ORPO, CPO, SimPO, Reward, GRPO, DFT, EAFT},
		Read: (*Objective).setTrainer, Write: func(o *Objective) string { return o.As },
	},
}

// ParseObjective reads an objective like "dpo" or "dpo:precomputed,as=llama-factory".
func ParseObjective(text string) (o Objective, err error) {
	err = objectiveOptions.ReadNamed(&o, &o.Name, "objective", text, Objectives())
	return o, err
}

func (o *Objective) setTrainer(name string) (err error) {
	o.As, err = options.OneOf(name, o.trainers()...)
	return err
}

// trainers lists the trainers whose version of this objective differs from the default.
func (o *Objective) trainers() []string {
	switch o.Name {
	case GRPO:
		return []string{AsSwift}
	case EAFT:
		return []string{AsAxolotl}
	case DFT:
		return []string{AsSwift, AsTRL}
	}
	return ObjectiveTrainers()
}

// UsualCompletion is TRL's max_completion_length, and mostCompletion bounds it.
const (
	UsualCompletion = 512
	mostCompletion  = 1 << 22
	mostChunks      = 1 << 12
)

// UsualNegatives is ms-swift's MAX_NEGATIVE_SAMPLES, and mostNegatives bounds it.
const (
	UsualNegatives = 7
	mostNegatives  = 1 << 12
)

// Distills tells whether the model learns from the scores of a teacher.
func (o Objective) Distills() bool { return o.Name == KD || o.Name == GKD }

// Weighs tells whether the model learns the next token by a loss that weighs every token.
func (o Objective) Weighs() bool { return o.Name == DFT || o.Name == ASFT || o.Name == EAFT }

// Matches tells whether the model learns which texts belong together.
func (o Objective) Matches() bool { return o.Name == Embedding || o.Name == Reranker }

// Generates tells whether the model learns from answers that it has generated.
func (o Objective) Generates() bool { return o.Name == GRPO || o.Name == EBFT }

// Answers tells whether rows are prompts and answers, whose scores alone are computed.
func (o Objective) Answers() bool { return o.Generates() || o.Name == GKD }

// Answer returns the number of tokens of a generated answer.
func (o Objective) Answer() int64 {
	if o.Completion == 0 {
		return UsualCompletion
	}
	return o.Completion
}

// String returns what [ParseObjective] reads; empty for none.
func (o Objective) String() string { return objectiveOptions.Named(o.Name, &o) }

// IsZero tells whether the model learns the next token.
func (o Objective) IsZero() bool { return o.Name == "" }

// MarshalText implements [encoding.TextMarshaler].
func (o Objective) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *Objective) UnmarshalText(text []byte) (err error) {
	*o, err = ParseObjective(string(text))
	return err
}

// Refers tells whether the objective compares with a reference.
func (o Objective) Refers() bool {
	return o.Name == DPO || o.Name == KTO || o.Name == ASFT || o.Reference
}

// Rows returns how many rows a batch has for each sample: a pair is two.
func (o Objective) Rows() int64 {
	switch o.Name {
	case Embedding:
		return 2 + o.Negatives
	case Reranker:
		return 1 + cmp.Or(o.Negatives, UsualNegatives)
	}
	if o.Packed || o.Name == "" || o.Name == KTO || o.Generates() || o.Distills() || o.Weighs() {
		return 1
	}
	return 2
}

// ReferenceModel tells whether a second model, frozen, is in memory with the one that is trained.
// With adapters the reference is the model without them.
func (c Case) ReferenceModel() bool {
	return (c.Objective.Refers() || c.Objective.Name == EBFT) && !c.Objective.Precomputed && c.LoRA == nil
}

// The tasks that objectives belong to.
const (
	preferenceTask = "causal-lm"
	rewardTask     = "classification"
)

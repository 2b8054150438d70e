package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/options"
)

// Objective is the training objective of a language model: preference pairs, generated or rated answers. The zero
// value is next-token prediction.
type Objective struct {
	// Name is one of [Objectives].
	Name string
	// Precomputed reports whether the reference model's log-probabilities are computed before training.
	Precomputed bool
	// Packed reports whether preference pairs are packed into one sequence without padding (DPO of ms-swift).
	Packed bool
	// Completion is the number of tokens of a generated answer, at the end of a sequence; zero means
	// [DefaultCompletion].
	Completion int64
	// Reference reports whether generated answers are compared with a reference model (beta is not zero). OldLogProbs
	// reports whether the answers' log-probabilities are computed before the steps that learn from them.
	Reference, OldLogProbs bool
	// LikeTrainer is the trainer whose loss code is recorded, such as [AsSwift]; empty means TRL.
	LikeTrainer string
}

// The names of the training objectives, as --objective has them.
const (
	DPO    = "dpo"
	GKD    = "gkd"
	GRPO   = "grpo"
	KTO    = "kto"
	ORPO   = "orpo"
	CPO    = "cpo"
	SimPO  = "simpo"
	Reward = "reward"
)

// Objectives returns the names of all objectives.
func Objectives() []string { return []string{CPO, DPO, GKD, GRPO, KTO, ORPO, Reward, SimPO} }

// unplannedObjectives are objectives that vprof rejects: few examples of trainers use them (docs/lab/evidence.md).
var unplannedObjectives = []string{"asft", "dft", "eaft", "ebft", "embedding", "kd", "reranker"}

// dpoLosses are values of DPO's loss_type in TRL that compute one number per pair, as the default loss does.
var dpoLosses = []string{"aot", "apo_down", "apo_zero", "exo_pair", "hinge", "ipo", "nca_pair", "robust", "sppo_hard"}

// The trainers whose loss code differs from TRL's.
const (
	AsAxolotl      = "axolotl"
	AsLLaMAFactory = "llama-factory"
	AsSwift        = "ms-swift"
	AsTorchtune    = "torchtune"
)

// objectiveOptions holds the options of an objective, in the order in which they are written.
var objectiveOptions = options.Table[Objective]{
	options.NewCount("completion", 1, maxCompletion, func(o *Objective) *int64 { return &o.Completion }).
		For(GRPO, GKD),
	options.SwitchOption("reference", func(o *Objective) *bool { return &o.Reference }).For(GRPO),
	options.SwitchOption("old", func(o *Objective) *bool { return &o.OldLogProbs }).For(GRPO),
	options.SwitchOption("precomputed", func(o *Objective) *bool { return &o.Precomputed }).For(DPO, KTO),
	options.SwitchOption("packed", func(o *Objective) *bool { return &o.Packed }).For(DPO),
	{
		Key: "as", Names: []string{DPO, KTO, ORPO, CPO, SimPO, Reward, GRPO},
		Read: (*Objective).setTrainer, Write: func(o *Objective) string { return o.LikeTrainer },
	},
}

// ParseObjective parses an objective like "dpo" or "dpo:precomputed,as=llama-factory".
func ParseObjective(text string) (o Objective, err error) {
	if name, _, _ := strings.Cut(text, ":"); slices.Contains(unplannedObjectives, name) {
		return o, fmt.Errorf("vprof has no objective %q; run your own training script with \"vprof run -- python "+
			"train.py\", which reports exactly what it needs", name)
	}
	if slices.Contains(dpoLosses, text) {
		return o, fmt.Errorf("%s is a loss_type of DPO, with the same memory as the others; use --objective dpo", text)
	}
	err = objectiveOptions.ReadNamed(&o, &o.Name, "objective", text, Objectives())
	return o, err
}

func (o *Objective) setTrainer(name string) (err error) {
	o.LikeTrainer, err = options.ParseOneOf(name, o.otherTrainers()...)
	return err
}

// otherTrainers lists the trainers whose code for this objective differs from TRL's.
func (o *Objective) otherTrainers() []string {
	if o.Name == GRPO {
		return []string{AsSwift}
	}
	return []string{AsAxolotl, AsLLaMAFactory, AsSwift, AsTorchtune}
}

// DefaultCompletion is TRL's default max_completion_length. maxCompletion is the largest accepted value.
const (
	DefaultCompletion = 512
	maxCompletion     = 1 << 22
)

// Distills reports whether the model learns from a teacher's logits.
func (o Objective) Distills() bool { return o.Name == GKD }

// Generates reports whether the model learns from answers that it generates.
func (o Objective) Generates() bool { return o.Name == GRPO }

// HasAnswers reports whether sequences are prompts with answers whose logits alone are computed.
func (o Objective) HasAnswers() bool { return o.Generates() || o.Name == GKD }

// AnswerTokens returns the number of tokens of a generated answer.
func (o Objective) AnswerTokens() int64 {
	if o.Completion == 0 {
		return DefaultCompletion
	}
	return o.Completion
}

// String returns the text that [ParseObjective] reads; empty for none.
func (o Objective) String() string { return objectiveOptions.FormatNamed(o.Name, &o) }

// IsZero reports whether the objective is next-token prediction.
func (o Objective) IsZero() bool { return o.Name == "" }

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (o Objective) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText parses the text that MarshalText returns.
func (o *Objective) UnmarshalText(text []byte) error { return unmarshalText(o, text, ParseObjective) }

// UsesReference reports whether the loss needs a reference model's log-probabilities.
func (o Objective) UsesReference() bool { return o.Name == DPO || o.Name == KTO || o.Reference }

// SequencesPerSample returns the number of sequences of one sample: 2 for preference pairs.
func (o Objective) SequencesPerSample() int64 {
	if o.Packed || o.Name == "" || o.Name == KTO || o.Generates() || o.Distills() {
		return 1
	}
	return 2
}

// ReferenceModel reports whether a second, frozen model is in GPU memory. With adapters the reference is the model
// with its adapters disabled.
func (c Case) ReferenceModel() bool {
	return c.Objective.UsesReference() && !c.Objective.Precomputed && c.LoRA == nil
}

// The tasks that objectives need.
const (
	preferenceTask = "causal-lm"
	rewardTask     = "classification"
)

package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/options"
)

// Objective describes the training of a language model: on pairs of answers, or on judged answers. The zero value is
// the prediction of the next token.
type Objective struct {
	// Name is one of [Objectives].
	Name string
	// Precomputed reports whether the log-probabilities of the reference came before training.
	Precomputed bool
	// Packed has pairs of answers fill one row without padding, of ms-swift's DPO.
	Packed bool
	// Completion is the number of tokens of a generated answer, the last ones of a row; zero
	// is [DefaultCompletion]. Of objectives whose answers are generated.
	Completion int64
	// Reference compares generated answers with a reference (beta is not zero), and Old takes
	// their log-probabilities before the steps that learn from them.
	Reference, OldLogProbs bool
	// LikeTrainer is the trainer whose code computes log-probabilities, one of [ObjectiveTrainers]; empty is TRL.
	LikeTrainer string
}

// The objectives.
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

// unplannedObjectives are objectives that few examples of trainers use (docs/lab/evidence.md). vprof does not describe
// them.
var unplannedObjectives = []string{"asft", "dft", "eaft", "ebft", "embedding", "kd", "reranker"}

// dpoLosses are losses of DPO (TRL's loss_type) that compute one number of a pair, as DPO's own loss does.
var dpoLosses = []string{"aot", "apo_down", "apo_zero", "exo_pair", "hinge", "ipo", "nca_pair", "robust", "sppo_hard"}

// The trainers whose code differs, of most objectives from that of TRL.
const (
	AsLLaMAFactory = "llama-factory"
	AsSwift        = "ms-swift"
	AsTorchtune    = "torchtune"
)

// objectiveOptions holds the options, in the order in which they are written.
var objectiveOptions = options.Table[Objective]{
	options.Count("completion", 1, maxCompletion, func(o *Objective) *int64 { return &o.Completion }).
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

// ParseObjective reads an objective like "dpo" or "dpo:precomputed,as=llama-factory".
func ParseObjective(text string) (o Objective, err error) {
	if name, _, _ := strings.Cut(text, ":"); slices.Contains(unplannedObjectives, name) {
		return o, fmt.Errorf("vprof does not describe the objective %q; \"vprof run -- python train.py\" runs your "+
			"training script on the simulated GPU and reports exactly what it needs", name)
	}
	if slices.Contains(dpoLosses, text) {
		return o, fmt.Errorf("%s is a loss_type of DPO with the same memory as the others; use --objective dpo", text)
	}
	err = objectiveOptions.ReadNamed(&o, &o.Name, "objective", text, Objectives())
	return o, err
}

func (o *Objective) setTrainer(name string) (err error) {
	o.LikeTrainer, err = options.ParseOneOf(name, o.trainers()...)
	return err
}

// trainers lists the trainers whose version of this objective differs from the default.
func (o *Objective) trainers() []string {
	if o.Name == GRPO {
		return []string{AsSwift}
	}
	return []string{AsLLaMAFactory, AsSwift, AsTorchtune}
}

// DefaultCompletion is TRL's max_completion_length, and maxCompletion bounds it.
const (
	DefaultCompletion = 512
	maxCompletion     = 1 << 22
)

// Distills reports whether the model learns from the logits of a teacher.
func (o Objective) Distills() bool { return o.Name == GKD }

// Generates reports whether the model learns from answers that it has generated.
func (o Objective) Generates() bool { return o.Name == GRPO }

// HasAnswers reports whether rows are prompts and answers, and logits are computed for the answers only.
func (o Objective) HasAnswers() bool { return o.Generates() || o.Name == GKD }

// Answer returns the number of tokens of a generated answer.
func (o Objective) Answer() int64 {
	if o.Completion == 0 {
		return DefaultCompletion
	}
	return o.Completion
}

// String returns the form that [ParseObjective] reads; empty for none.
func (o Objective) String() string { return objectiveOptions.Named(o.Name, &o) }

// IsZero reports whether the model learns the next token.
func (o Objective) IsZero() bool { return o.Name == "" }

// MarshalText implements [encoding.TextMarshaler].
func (o Objective) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *Objective) UnmarshalText(text []byte) error { return unmarshal(o, text, ParseObjective) }

// UsesReference reports whether the objective compares with a reference.
func (o Objective) UsesReference() bool { return o.Name == DPO || o.Name == KTO || o.Reference }

// SequencesPerSample returns the number of rows in a batch for each sample; a pair has two.
func (o Objective) SequencesPerSample() int64 {
	if o.Packed || o.Name == "" || o.Name == KTO || o.Generates() || o.Distills() {
		return 1
	}
	return 2
}

// ReferenceModel reports whether a second, frozen model is in memory. With adapters, the reference is the model without
// them.
func (c Case) ReferenceModel() bool {
	return c.Objective.UsesReference() && !c.Objective.Precomputed && c.LoRA == nil
}

// The tasks that objectives belong to.
const (
	preferenceTask = "causal-lm"
	rewardTask     = "classification"
)

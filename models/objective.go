package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/nearest"
)

// Objective is what a language model learns from pairs of answers, or from answers that
// were judged, in place of the next token. The zero value is the next token.
type Objective struct {
	// Name is one of [Objectives].
	Name string
	// Precomputed says that the log-probabilities of the reference came before training.
	Precomputed bool
	// As is the trainer whose code computes log-probabilities, one of [ObjectiveTrainers];
	// empty is TRL.
	As string
}

// The objectives.
const (
	DPO    = "dpo"
	KTO    = "kto"
	ORPO   = "orpo"
	CPO    = "cpo"
	SimPO  = "simpo"
	Reward = "reward"
)

// Objectives are the names of all objectives.
func Objectives() []string { return []string{CPO, DPO, KTO, ORPO, Reward, SimPO} }

// The trainers whose code differs from that of TRL.
const (
	AsLLaMAFactory = "llama-factory"
	AsSwift        = "ms-swift"
	AsTorchtune    = "torchtune"
)

// ObjectiveTrainers are the values of [Objective.As].
func ObjectiveTrainers() []string { return []string{AsLLaMAFactory, AsSwift, AsTorchtune} }

// ParseObjective reads an objective like "dpo" or "dpo:precomputed,as=llama-factory".
func ParseObjective(text string) (Objective, error) {
	name, options, colon := strings.Cut(text, ":")
	if !slices.Contains(Objectives(), name) {
		return Objective{}, fmt.Errorf("there is no objective %q%s; all: %s", name, nearest.Hint(name, Objectives(), 2), strings.Join(Objectives(), ", "))
	}
	o := Objective{Name: name}
	if !colon {
		return o, nil
	}
	for option := range strings.SplitSeq(options, ",") {
		as, named := strings.CutPrefix(option, "as=")
		switch {
		case option == "precomputed" && !o.Precomputed:
			o.Precomputed = true
		case named && o.As == "" && slices.Contains(ObjectiveTrainers(), as):
			o.As = as
		case named:
			return Objective{}, fmt.Errorf("as: %q is none of %s", as, strings.Join(ObjectiveTrainers(), ", "))
		default:
			return Objective{}, fmt.Errorf("%q is no option of an objective; they are precomputed and as=TRAINER", option)
		}
	}
	if o.Precomputed && !o.Refers() {
		return Objective{}, fmt.Errorf("precomputed: %s has no reference", name)
	}
	return o, nil
}

// String is what [ParseObjective] reads; empty for none.
func (o Objective) String() string {
	var options []string
	if o.Precomputed {
		options = append(options, "precomputed")
	}
	if o.As != "" {
		options = append(options, "as="+o.As)
	}
	if len(options) == 0 {
		return o.Name
	}
	return o.Name + ":" + strings.Join(options, ",")
}

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
func (o Objective) Refers() bool { return o.Name == DPO || o.Name == KTO }

// Rows is how many rows a batch has for each sample: a pair is two.
func (o Objective) Rows() int64 {
	if o.Name == "" || o.Name == KTO {
		return 1
	}
	return 2
}

// ReferenceModel tells whether a second model, frozen, is beside the one that is trained.
// With adapters the reference is the model without them.
func (c Case) ReferenceModel() bool {
	return c.Objective.Refers() && !c.Objective.Precomputed && c.LoRA == nil
}

// checkObjective finds what does not go together with an objective.
func (c *Case) checkObjective(m *Model) (field, reason string) {
	o := c.Objective
	const at = "objective"
	switch {
	case o.Name == "":
		return "", ""
	case !m.Levers.Objective:
		return at, "vprof records preferences with the decoders of transformers (hf:config.json); a graph has its loss in it"
	case o.Name == Reward && c.Task != rewardTask:
		return at, "a reward is a score of a whole answer; add --task classification --set classes=1"
	case o.Name != Reward && c.Task != preferenceTask:
		return at, fmt.Sprintf("%s is learnt by a language model; use --task causal-lm", o.Name)
	case c.Liger:
		return "liger", "vprof does not describe liger-kernel's losses of preferences"
	case c.ReferenceModel() && c.Strategy != nil && (c.Strategy.Name == FSDP2 || c.Strategy.Name == TP || c.Strategy.Name == ZeRO3):
		return at, "vprof does not plan a reference model that several GPUs share; train adapters, whose reference is the model itself, or say dpo:precomputed"
	case c.Settings["chunked-loss"] > 1 || c.Settings["fused-loss"] == 1 || c.Settings["linear-cross-entropy"] == 1:
		return at, "the fused and chunked losses are those of the next token; leave them out"
	}
	return "", ""
}

// The tasks that objectives belong to.
const (
	preferenceTask = "causal-lm"
	rewardTask     = "classification"
)

package models

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/nearest"
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

// ParseObjective reads an objective like "dpo" or "dpo:precomputed,as=llama-factory".
func ParseObjective(text string) (Objective, error) {
	name, options, colon := strings.Cut(text, ":")
	if !slices.Contains(Objectives(), name) {
		return Objective{}, fmt.Errorf("there is no objective %q%s; all: %s", name, nearest.Hint(name, Objectives(), 2),
			strings.Join(Objectives(), ", "))
	}
	o := Objective{Name: name}
	if !colon {
		return o, nil
	}
	for option := range strings.SplitSeq(options, ",") {
		if err := o.turn(option); err != nil {
			return Objective{}, err
		}
	}
	return o, nil
}

func (o *Objective) turn(option string) error {
	word, value, _ := strings.Cut(option, "=")
	switch {
	case option == "precomputed" && !o.Precomputed:
		if o.Generates() || o.Weighs() || !o.Refers() {
			return fmt.Errorf("precomputed: %s has no reference that can come before training", o.Name)
		}
		o.Precomputed = true
	case word == "as" && o.As == "":
		if len(o.trainers()) == 0 {
			return fmt.Errorf("as: %s is the code of one trainer alone", o.Name)
		}
		if !slices.Contains(o.trainers(), value) {
			return fmt.Errorf("as: %q is none of %s", value, strings.Join(o.trainers(), ", "))
		}
		o.As = value
	case o.Generates() && option == "reference" && !o.Reference:
		o.Reference = true
	case o.Generates() && option == "old" && !o.Old:
		o.Old = true
	case o.Answers() && word == "completion" && o.Completion == 0:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 || n > mostCompletion {
			return fmt.Errorf("completion: %q is not a number of tokens from 1 to %d", value, mostCompletion)
		}
		o.Completion = n
	case o.Name == DPO && option == "packed" && !o.Packed:
		o.Packed = true
	case o.Matches() && o.match(option):
	case o.Name == KD && word == "chunks" && o.Chunks == 0:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 || n > mostChunks {
			return fmt.Errorf("chunks: %q is not a number from 1 to %d", value, mostChunks)
		}
		o.Chunks = n
	default:
		return fmt.Errorf("%q is no option of %s; there are %s", option, o.Name, o.optionWords())
	}
	return nil
}

// match sets an option of texts that belong together, if it is one.
func (o *Objective) match(option string) bool {
	value, negatives := strings.CutPrefix(option, "negatives=")
	switch n, err := strconv.ParseInt(value, 10, 64); {
	case o.Name == Embedding && option == "pairs" && !o.Pairs:
		o.Pairs = true
	case option == "unpadded" && !o.Unpadded:
		o.Unpadded = true
	case negatives && o.Negatives == 0 && err == nil && n >= 1 && n <= mostNegatives:
		o.Negatives = n
	default:
		return false
	}
	return true
}

// trainers returns those whose code for the objective differs from that which it is by itself.
func (o *Objective) trainers() []string {
	switch {
	case o.Name == GRPO:
		return []string{AsSwift}
	case o.Name == EAFT:
		return []string{AsAxolotl}
	case o.Name == DFT:
		return []string{AsSwift, AsTRL}
	case o.Generates() || o.Distills() || o.Weighs() || o.Matches():
		return nil
	}
	return ObjectiveTrainers()
}

func (o *Objective) optionWords() string {
	switch {
	case o.Generates():
		return "completion=TOKENS, reference, old and (of grpo) as=TRAINER, each once"
	case o.Name == KD:
		return "chunks=N, once"
	case o.Name == GKD:
		return "completion=TOKENS, once"
	case o.Name == Embedding:
		return fmt.Sprintf("pairs, unpadded and negatives=N from 1 to %d, each once", mostNegatives)
	case o.Name == Reranker:
		return fmt.Sprintf("unpadded and negatives=N from 1 to %d, each once", mostNegatives)
	case o.Name == ASFT:
		return "none"
	case o.Name == DPO:
		return "precomputed, packed and as=TRAINER, each once"
	case o.Refers():
		return "precomputed and as=TRAINER, each once"
	}
	return "as=TRAINER, once"
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
func (o Objective) String() string {
	var options []string
	add := func(given bool, option string) {
		if given {
			options = append(options, option)
		}
	}
	add(o.Completion != 0, fmt.Sprintf("completion=%d", o.Completion))
	add(o.Reference, "reference")
	add(o.Old, "old")
	add(o.Chunks != 0, fmt.Sprintf("chunks=%d", o.Chunks))
	add(o.Negatives != 0, fmt.Sprintf("negatives=%d", o.Negatives))
	add(o.Pairs, "pairs")
	add(o.Unpadded, "unpadded")
	add(o.Precomputed, "precomputed")
	add(o.Packed, "packed")
	add(o.As != "", "as="+o.As)
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

// checkObjective finds what does not go together with an objective.
func (Levers) checkObjective(m *Model, c *Case) (field, reason string) {
	o := c.Objective
	const at = "objective"
	switch {
	case o.Name == "":
		return "", ""
	case !m.Levers.Objective:
		return at,
			"vprof records preferences with the decoders of transformers (hf:config.json); a graph has its loss in it"
	case o.Name == Reward && o.As == AsLLaMAFactory:
		if c.Task != preferenceTask {
			return at, "LLaMA-Factory's reward is a value beside the words of a language model; use --task causal-lm"
		}
	case o.Name == Reward && c.Task != rewardTask:
		return at, "a reward is a score of a whole answer; add --task classification --set classes=1"
	case o.Name == Reranker && c.Task == rewardTask:
		if c.Settings["classes"] != 1 {
			return at, "a reranker gives a text one score; add --set classes=1"
		}
	case o.Name != Reward && c.Task != preferenceTask:
		return at, fmt.Sprintf("%s is learnt by a language model; use --task causal-lm", o.Name)
	case o.Packed && o.As != AsSwift:
		return at, "packed: pairs in one row are ms-swift's; add as=ms-swift"
	case (o.Unpadded || o.Packed) && (c.On("padding") || c.On("packed")):
		return at, "texts in one row have neither padding nor a mask here; leave out padding=1 and packed=1"
	case o.Matches() && c.Strategy != nil && c.Strategy.Name == TP:
		return at, "vprof does not record texts that belong together under tensor parallelism; take another strategy"
	case c.Liger:
		return "liger",
			"vprof does not describe liger-kernel's losses of preferences, and weights of tokens need scores, which " +
				"its loss does without"
	case (c.ReferenceModel() || o.Distills()) && c.Strategy != nil && c.Strategy.Name == TP:
		return at,
			"vprof does not plan a reference model under tensor parallelism; train adapters, whose reference is the " +
				"model itself, or take another strategy"
	case o.Name == ASFT && c.LoRA != nil:
		return at, "LLaMA-Factory makes no reference for it beside adapters, and fails; train the whole model"
	case o.Name == EBFT && o.Reference && c.LoRA == nil:
		return at,
			"a reference and a feature network would be two models beside the one that is trained, and vprof plans " +
				"one; leave out reference, or train adapters"
	case o.Answers() && o.Answer() >= c.Settings["seq-len"]:
		return at, fmt.Sprintf("answers of %d tokens leave no prompt in rows of %d; say %s:completion=N with less "+
			"than seq-len", o.Answer(), c.Settings["seq-len"], o.Name)
	case c.Settings["chunked-loss"] > 1 || c.On("fused-loss") || c.On("linear-cross-entropy"):
		return at, "the fused and chunked losses are those of the next token; leave them out"
	}
	return "", ""
}

// The tasks that objectives belong to.
const (
	preferenceTask = "causal-lm"
	rewardTask     = "classification"
)

package models

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace/optim"
)

// Conflict is an invalid combination: a value of one field with a value of another field, or with a model.
type Conflict struct {
	// Field is the field that the user has to change. With describes the other value or the model.
	Field, ExcludedBy string
	applies           func(*subject) bool
	// Reason is the text of the error: the reason and what to do. Names in braces are replaced by values of the case.
	Reason string
}

func refuse(field, with string, when func(*subject) bool, reason string) Conflict {
	return Conflict{Field: field, ExcludedBy: with, applies: when, Reason: reason}
}

// subject is a completed case with its model, which is checked for conflicts.
type subject struct {
	*Case
	m *Model
	// s is the case's strategy, zero on one GPU. opt is the configuration of the optimizer.
	s   Strategy
	opt optim.Config
}

// Conflicts returns all invalid combinations of options, in the order in which they are checked.
func Conflicts() []Conflict { return conflicts }

var conflicts = slices.Concat(
	modelConflicts, optimizerConflicts, rankConflicts, deviceMapConflicts, contextConflicts, expertConflicts,
	deepSpeedConflicts, tensorConflicts, shapeConflicts, objectiveConflicts, trainOnlyConflicts, layerConflicts,
	tileConflicts, loopConflicts, evaluationConflicts, otherConflicts,
)

func newSubject(m *Model, c *Case) *subject {
	k := subject{Case: c, m: m}
	if c.Strategy != nil {
		k.s = *c.Strategy
	}
	if c.Optimizer != "" {
		k.opt, _ = optim.Named(c.Optimizer) // checkFields has parsed the name before
	}
	return &k
}

func (k *subject) firstConflict(all []Conflict) (field, reason string) {
	for i := range all {
		if all[i].applies(k) {
			return all[i].Field, k.fillTemplate(all[i].Reason)
		}
	}
	return "", ""
}

var placeholder = regexp.MustCompile(`\{[A-Za-z_ -]+\}`)

// fillTemplate replaces names in braces by values: of the model, of the strategy's options or of fields of the case.
func (k *subject) fillTemplate(reason string) string {
	choices := map[string][]string{"all stages": k.m.Stages, "all tasks": k.m.Tasks, "all losses": k.m.Losses}
	numbers := map[string]int64{
		"ranks": k.pipelineRanks(), "groups": k.s.CP * max(1, k.s.TP), "experts": k.m.Supports.Experts,
		"answer": k.Objective.AnswerTokens(), "memory sizes": int64(len(k.s.Memory)),
		"gpus": int64(k.GPUs), // zero on one GPU
	}
	return placeholder.ReplaceAllStringFunc(reason, func(word string) string {
		name := strings.Trim(word, "{}")
		if n, ok := numbers[name]; ok {
			return strconv.FormatInt(n, 10)
		} else if all, ok := choices[name]; ok {
			return strings.Join(all, ", ")
		}
		switch name {
		case "GPUs of a stage": // used only in conflicts of pipelines
			return strconv.FormatInt(k.stageGPUs(), 10)
		case "sharers":
			return strconv.FormatInt(k.shardRanks(), 10)
		case "no liger":
			return k.m.Supports.NoLiger
		case "this optimizer":
			name, _, _ := strings.Cut(k.Optimizer, ":")
			return name
		case "this objective":
			return k.Objective.Name
		}
		if f := FieldNamed(name); f != nil {
			return f.Text(*k.Case)
		}
		return strategyOptions.Value(&k.s, name)
	})
}

func (k *subject) pipelineRanks() int64 { return k.s.PipelineRanks(k.GPUs) }
func (k *subject) stageGPUs() int64     { return int64(k.GPUs) / k.pipelineRanks() }

// isStrategy reports whether the case's strategy has one of the names.
func (k *subject) isStrategy(names ...string) bool { return slices.Contains(names, k.s.Name) }

func (k *subject) predictsNextToken() bool {
	return (k.Task == "" || len(k.m.Tasks) == 0 || k.Task == k.m.Tasks[0]) && k.Objective.IsZero()
}

// shardRanks returns the number of ranks over which fully_shard shards the parameters.
func (k *subject) shardRanks() int64 { return k.stageGPUs() / max(1, k.s.Replicate) }

package models

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace/optim"
)

// Conflict is a combination that a case must not have: a value of a field with other values, or with a model.
type Conflict struct {
	// Field is the field to change, and With what it does not go together with.
	Field, With string
	applies     func(*choice) bool
	// Reason reports why, and what to do. Names in braces stand for values of the case.
	Reason string
}

func refuse(field, with string, when func(*choice) bool, reason string) Conflict {
	return Conflict{Field: field, With: with, applies: when, Reason: reason}
}

// choice is a filled case with its model, as conflicts read it.
type choice struct {
	*Case
	m *Model
	// s is the strategy, the zero value without one, and opt the optimizer.
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

func newConflictInput(m *Model, c *Case) *choice {
	k := choice{Case: c, m: m}
	if c.Strategy != nil {
		k.s = *c.Strategy
	}
	if c.Optimizer != "" {
		k.opt, _ = optim.Named(c.Optimizer) // which was read before
	}
	return &k
}

func (k *choice) firstConflict(all []Conflict) (field, reason string) {
	for i := range all {
		if all[i].applies(k) {
			return all[i].Field, k.fillTemplate(all[i].Reason)
		}
	}
	return "", ""
}

var placeholder = regexp.MustCompile(`\{[A-Za-z_ -]+\}`)

// fillTemplate replaces the names in braces by values of the case: of the model, of the strategy's options or of
// fields.
func (k *choice) fillTemplate(reason string) string {
	choices := map[string][]string{"all stages": k.m.Stages, "all tasks": k.m.Tasks, "all losses": k.m.Losses}
	numbers := map[string]int64{
		"ranks": k.pipelineRanks(), "groups": k.s.CP * max(1, k.s.TP), "experts": k.m.Levers.Experts,
		"answer": k.Objective.Answer(), "memory sizes": int64(len(k.s.Memory)),
		"gpus": int64(k.GPUs), // which may be zero
	}
	return placeholder.ReplaceAllStringFunc(reason, func(word string) string {
		name := strings.Trim(word, "{}")
		if n, ok := numbers[name]; ok {
			return strconv.FormatInt(n, 10)
		} else if all, ok := choices[name]; ok {
			return strings.Join(all, ", ")
		}
		switch name {
		case "GPUs of a stage": // of a case that has stages
			return strconv.FormatInt(k.each(), 10)
		case "sharers":
			return strconv.FormatInt(k.parameterRanks(), 10)
		case "no liger":
			return k.m.Levers.NoLiger
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

func (k *choice) pipelineRanks() int64 { return k.s.PipelineRanks(k.GPUs) }
func (k *choice) each() int64          { return int64(k.GPUs) / k.pipelineRanks() }

// named reports whether the strategy has one of these names.
func (k *choice) named(names ...string) bool { return slices.Contains(names, k.s.Name) }

// nextToken reports whether the model learns the next token.
func (k *choice) nextToken() bool {
	return (k.Task == "" || len(k.m.Tasks) == 0 || k.Task == k.m.Tasks[0]) && k.Objective.IsZero()
}

// parameterRanks returns how many ranks share the parameters.
func (k *choice) parameterRanks() int64 { return k.each() / max(1, k.s.Replicate) }

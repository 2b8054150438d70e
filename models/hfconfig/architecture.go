package hfconfig

import (
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
)

// An architecture is the network of a configuration, with its usual batch sizes and its settings.
type architecture struct {
	summary string
	// unit names one element of a batch ("sequence"); batch is the usual size, and batches are the sizes of a sweep.
	unit     string
	batch    int
	batches  []int
	settings []models.Setting
	// only are settings that matter to some tasks alone.
	only  map[string][]string
	notes []string
	// caveats are notes on a case that stand with its results.
	caveats []func(models.Case) []string
	// levers are the options that cases may set.
	levers models.MemoryOptionSupport
	// rules refuse cases, see [architecture.rule].
	rules []rule
	task  func(models.Case) train.Task
	// towers reports whether there are layers that a step on text does not call.
	towers bool
	// adapters maps the adapters that a case names to the ones that peft makes; nil changes none.
	adapters func(models.Case) models.LoRA
	// teacher is the model that it may learn from; nil for none.
	teacher *architecture
}

// check returns an error for a case with incompatible values.
func (a *architecture) check(c models.Case) error {
	for _, refused := range a.rules {
		if field, reason := refused(c); reason != "" {
			return c.FieldError(field, "%s", reason)
		}
	}
	for _, s := range a.settings {
		if tasks, some := a.only[s.Name]; some && !slices.Contains(tasks, c.Task) && c.Settings[s.Name] != s.Default {
			return c.FieldError(s.Name, "has no influence on task %s", c.Task)
		}
	}
	if c.Objective.Distills() && (a.teacher == nil || !a.teacher.levers.Objective) {
		return c.FieldError("objective",
			"a model learns from the scores of another language model; name its configuration, too: --model "+
				"hf:student.json"+TeacherMark+"teacher.json")
	}
	return nil
}

// A rule names a setting or flag of a case that vprof cannot plan, and the reason; both are empty for other cases.
type rule func(models.Case) (field, reason string)

// rule adds a rule, which is checked before the existing ones.
func (a *architecture) rule(r rule) { a.rules = append([]rule{r}, a.rules...) }

// refuse adds the rule that some cases cannot be planned, for a reason that is the same for all.
func (a *architecture) refuse(field, reason string, is func(models.Case) bool) {
	a.rule(refusing(field, reason, is))
}

func refusing(field, reason string, is func(models.Case) bool) rule {
	return func(c models.Case) (string, string) {
		if is(c) {
			return field, reason
		}
		return "", ""
	}
}

// caveat adds notes that some cases have besides their results.
func (a *architecture) caveat(notes func(models.Case) []string) { a.caveats = append(a.caveats, notes) }

// tasks makes the task of a case, with its teacher or reference model.
func (a *architecture) tasks(c models.Case) train.Task {
	t := a.task(c)
	text, ok := t.(*hf.TextTask)
	switch {
	case ok && c.Objective.Distills() && a.teacher != nil:
		if teacher, ok := a.teacher.task(c).(*hf.TextTask); ok {
			text.Reference = teacher
		}
	case ok && c.ReferenceModel():
		text.Reference = a.task(c).(*hf.TextTask)
	}
	return t
}

func (a *architecture) caveatsOf(c models.Case) (notes []string) {
	for _, of := range a.caveats {
		notes = append(notes, of(c)...)
	}
	return notes
}

// leverSet returns the memory-saving options of an architecture: all have the options of the training loop.
func (a *architecture) leverSet() models.MemoryOptionSupport {
	l := a.levers
	l.Loop, l.Quantize, l.QAT = models.LoopTrainer, true, true
	return l
}

// note adds a note to every result.
func (a *architecture) note(note string) {
	a.notes = append(a.notes, note)
	a.caveat(func(models.Case) []string { return []string{note} })
}

package hfconfig

import (
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
)

// An architecture is the model that a configuration describes, with its usual batch sizes, settings and checks.
type architecture struct {
	summary string
	// unit names one element of a batch ("sequence"), batch is the usual batch size, and batches are a sweep's sizes.
	unit     string
	batch    int
	batches  []int
	settings []models.Setting
	// only lists the tasks to which a setting applies, by the setting's name. Other settings apply to all tasks.
	only  map[string][]string
	notes []string
	// caveats return notes on a case, printed with its results.
	caveats []func(models.Case) []string
	// supports holds the memory-saving options that a case may choose.
	supports models.MemoryOptionSupport
	// checks refuse cases that vprof cannot plan, see [architecture.addCheck].
	checks []caseCheck
	task   func(models.Case) train.Task
	// towers reports whether the model has image or audio encoders. A text-only step does not run them.
	towers bool
	// adapters converts the adapters that a case names to the ones that peft creates; nil if they are the same.
	adapters func(models.Case) models.LoRA
	// teacher is the model whose logits this one can learn from (distillation); nil for none.
	teacher *architecture
}

// check returns an error for a case with incompatible values.
func (a *architecture) check(c models.Case) error {
	for _, refused := range a.checks {
		if field, reason := refused(c); reason != "" {
			return c.FieldError(field, "%s", reason)
		}
	}
	for _, s := range a.settings {
		if tasks, some := a.only[s.Name]; some && !slices.Contains(tasks, c.Task) && c.Settings[s.Name] != s.Default {
			return c.FieldError(s.Name, "has no influence on task %s", c.Task)
		}
	}
	if c.Objective.Distills() && (a.teacher == nil || !a.teacher.supports.Objective) {
		return c.FieldError("objective",
			"a model learns from the scores of another language model; name its configuration, too: --model "+
				"hf:student.json"+TeacherMark+"teacher.json")
	}
	return nil
}

// A caseCheck returns the setting or flag because of which vprof cannot plan a case, and the reason; empty if it can.
type caseCheck func(models.Case) (field, reason string)

// addCheck adds a check, which runs before the existing ones.
func (a *architecture) addCheck(r caseCheck) { a.checks = append([]caseCheck{r}, a.checks...) }

// addRefusal adds a check that refuses the cases for which is returns true, always for the same reason.
func (a *architecture) addRefusal(field, reason string, is func(models.Case) bool) {
	a.addCheck(refuseIf(field, reason, is))
}

func refuseIf(field, reason string, is func(models.Case) bool) caseCheck {
	return func(c models.Case) (string, string) {
		if is(c) {
			return field, reason
		}
		return "", ""
	}
}

// addCaveat adds a function that returns notes on a case, printed with its results.
func (a *architecture) addCaveat(notes func(models.Case) []string) {
	a.caveats = append(a.caveats, notes)
}

// newTask returns the training task of a case, with its teacher or reference model.
func (a *architecture) newTask(c models.Case) train.Task {
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

// supportedOptions returns the architecture's memory-saving options, with the options of the training loop.
func (a *architecture) supportedOptions() models.MemoryOptionSupport {
	l := a.supports
	l.Loop, l.Quantize, l.QAT = models.LoopTrainer, true, true
	return l
}

func (a *architecture) addNote(note string) {
	a.notes = append(a.notes, note)
	a.addCaveat(func(models.Case) []string { return []string{note} })
}

// Package models is the registry of models and their cases. Each system has a package of its own below this one.
package models

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Counts are element counts of a built model, and the size of its gradients.
type Counts struct {
	// Total and Trainable count the model's parameters, Criterion the parameters
	// of the loss, Buffers the model's untrained tensors.
	Total, Trainable, Criterion, Buffers int64
	// Gradients is the size of the gradients of the trainable parameters, each in the type of its weight, in bytes.
	Gradients int64
}

// Model is an entry of the registry.
type Model struct {
	Name    string
	Summary string
	Source  string
	// Torch is the release of PyTorch that wrote the model's file; empty if none did or it does not say.
	Torch string
	// Stages are the freeze stages, the default first.
	Stages []string
	// Trains describes what is trained in a stage; see [Model.StageNote].
	Trains map[string]string
	// Default is the case the real system runs.
	Default Case
	// Batches are the sizes a sweep tries when none are given.
	Batches []int
	// Validation is the batch size of the real system's validation; zero is that of training.
	Validation int
	// BatchUnit names what one element of a batch is: "clip", "image".
	BatchUnit string
	// Settings are the numbers that a case may choose, such as the length of a sequence.
	Settings []Setting
	// Tasks are what the model can be trained for, if there is a choice.
	Tasks []string
	// Losses are the loss functions that cases may choose from; empty if there is no choice.
	Losses []string
	// UserModel reports whether the model is a user's file, whose contradictions are not bugs of vprof.
	UserModel bool
	// Partial reports whether the file lacks something that training needs, such as the backward pass of
	// a custom autograd.Function, which is then estimated.
	Partial bool
	// Sized reports whether batches have exactly the sizes that the case gives, as the batches of a captured model do:
	// its runs differ only in the order of frees.
	Sized bool
	// Free reports whether cases may freeze any parameters and recompute any modules, selected by patterns of their
	// names.
	Free bool
	// Adapts reports whether cases may have LoRA.
	Adapts bool
	// Transformers reports whether classes of transformers are run, whose release matters.
	Transformers bool
	// HasTowers reports whether it has encoders of images or sound, which a step of text alone does not call.
	HasTowers bool
	// Levers names which memory-saving options cases may turn.
	Levers LeverSet
	// HalfWeights reports whether cases may have weights in half precision.
	HalfWeights bool
	// SupportsRanks reports whether cases may have a strategy for several GPUs.
	SupportsRanks bool
	// Class is the library's class that the model stands for, in the sizes of the settings; nil if it is of none.
	Class func(Settings) Class
	// Unrecorded reports why there is no recording of the step of a case under torch.compile, as a clause; empty if
	// there is one, nil if there is none of any case.
	Unrecorded func(Case) string
	// Reordered builds a case whose step was recorded under torch.compile at other batch sizes in the other order that
	// its kernels may come in, nil if that is not in doubt.
	Reordered func(Case) (Trainer, error)
	// Kernels returns the programs with the kernels of a micro-batch under torch.compile, and the share of the second;
	// nil for a recording without them. It is for cases whose step was recorded.
	Kernels func(Case) (near, far *program.Program, share float64)
	// Recorded reports whether the steps were recorded from a finished run, see [Model.Complete]: no case changes them.
	Recorded bool
	// File is the file that a user's model was opened from; empty for others, and if its description made it.
	File string
	// Description is the definition of a user's model; zero for models of the registry.
	Description Description
	// Check finds values of settings that do not go together, such as a width that the number of heads does not divide;
	// nil if all do. The error is a [*CaseError].
	Check func(Case) error
	// Notes are what a user should know about the system.
	Notes []string
	// Caveat returns warnings about a case that its values do not show: that the system itself would not train so, or
	// that an option has no effect. It is nil if there are none for any case.
	Caveat func(Case) []string
	// Curriculum has the parts of training that the system's project distinguishes; nil if it has none.
	Curriculum *Curriculum
	// Build makes the training system for a complete case.
	Build func(Case) (Trainer, error)
}

// Trainer is a complete training system (model, loss, optimizer) for one case. If its steps were recorded elsewhere, it
// plays their program: see [trace.Tape.Play].
type Trainer interface {
	// Counts returns the element counts of the model; it needs no recording.
	Counts() Counts
	// Record runs set-up and then the given number of steps on the tape. A step that PyTorch would refuse is an error.
	Record(t *trace.Tape, steps int) error
}

// A Validator is a [Trainer] whose project also runs validation.
type Validator interface {
	// Validate runs one batch of n samples after Record's steps: its forward pass and its loss, in evaluation mode and
	// without gradients. A batch that PyTorch would refuse is an error.
	Validate(t *trace.Tape, n int) error
}

// A Wrappable is a [Trainer] that lists the modules that fully_shard may wrap.
type Wrappable interface {
	// Parts returns the modules of the model; a module comes before the modules that it holds.
	Parts() []Part
}

// Part is a module of a model, as fully_shard sees it.
type Part struct {
	Path string
	// Parameters is the number of elements of all parameters in the module.
	Parameters int64
	// Block reports whether it is wrapped unless the strategy names others.
	Block bool
}

// A RankNamer is a [Trainer] of a pipeline.
type RankNamer interface {
	// Ranks describes what each rank does, so that ranks with the same description differ at most in how many
	// micro-batches they hold at a time. It runs the model once on the tape, which the caller throws away.
	Ranks(scratch *trace.Tape) ([]string, error)
}

// Recording is the recorded training steps of a case.
type Recording struct {
	Case    Case
	Counts  Counts
	Program *program.Program
	// Facts are further properties of the recorded model, such as its attention backends.
	Facts trace.Facts
	// Steps is the number of recorded training steps.
	Steps int
	// Validation is the step that the phases of the validation batch are of,
	// the one after the last of training; zero if none was recorded.
	Validation int
	// Stretch is how many times as long as the recorded rank alone a step takes, since
	// the rank waits for the other stages of its pipeline; zero if it is part of none.
	Stretch float64
	// Others are the programs for [Options.OtherGPUs]; everything else is the same for all GPUs.
	Others *trace.OtherPrograms
}

// ForGPU returns the recording for GPU number other of [Options.OtherGPUs]; nil if that GPU needs a recording of
// its own.
func (r *Recording) ForGPU(other int) *Recording {
	p := r.Others.ProgramOf(other)
	if p == nil {
		return nil
	}
	on := *r
	on.Program, on.Others = p, nil
	return &on
}

// Discard ends the use of the recording's program. Later recordings reuse its memory, so the caller must hold the only
// reference.
func (r *Recording) Discard() {
	if r.Program != nil {
		trace.Recycle(r.Program)
		r.Program, r.Others = nil, nil
	}
}

// Options say how to record.
type Options struct {
	// Context ends a recording early, with its error; nil does not.
	Context context.Context
	// Steps is the number of training steps; zero means [Case.Steps].
	Steps     int
	NoKernels bool // leaves out the launches of kernels, which do not change what is allocated
	// NeedsMoreSteps, if not nil, gets the program after the last step, and reports whether another step is recorded.
	NeedsMoreSteps func(*program.Program) bool
	// Validation, if not zero, is the size of a validation batch to record after the steps, of systems that validate.
	Validation int
	// Others are further GPUs. The recording serves those, too, on which the step differs in scratch memory alone.
	Others []trace.GPU
	// Ceiling ends a recording with [trace.ErrCeiling] once more bytes than this live at a time; zero does not.
	Ceiling int64
	// Reordered records what [Model.Reordered] builds.
	Reordered bool
	// Annotate records the line of the model that caused each event. It is
	// slower; only people who read event lists need it.
	Annotate bool
}

// A Curriculum is the sequence of stages in which a model's own project trains, with different settings.
type Curriculum struct {
	// EffectiveBatch is the number of samples of an optimizer step that the project aims at.
	EffectiveBatch int
	Parts          []CurriculumPart
}

// A CurriculumPart is a stage of a project's training, or several alike.
type CurriculumPart struct {
	Name string
	// Model is the registry's name of the same step.
	Model string
	// Settings are the values of the settings in which the parts differ.
	Settings Settings
}

// FirstDifference returns the first key in files, in alphabetical order, whose values in two cases differ according to
// same; empty if none do. Absent values are nil.
func FirstDifference(a, b Case, same func(key string, a, b json.RawMessage) bool) string {
	one, other := a.values(), b.values()
	keys := maps.Clone(one)
	maps.Copy(keys, other)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !same(key, one[key], other[key]) {
			return key
		}
	}
	return ""
}

// values returns the fields of a case by their keys in files, without the fields that are absent there.
func (c Case) values() map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.Key()), &all); err != nil {
		panic(err) // Key has written it
	}
	return all
}

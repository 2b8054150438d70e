// Package models is the registry of models and their cases. Each project's models have a package below this one.
package models

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Counts holds element counts of a model and the bytes of its gradients.
type Counts struct {
	// Total and Trainable count the elements of the model's parameters, Criterion the elements of the loss function's
	// parameters, and Buffers the elements of buffers.
	Total, Trainable, Criterion, Buffers int64
	// Gradients is the bytes of the gradients of all trainable parameters, each in the data type of its parameter.
	Gradients int64
}

// Model is a model of the registry: its name, what it supports, and how its steps are recorded.
type Model struct {
	Name    string
	Summary string
	Source  string
	// Torch is the release of PyTorch that wrote the model's file; empty without a file or if it is unknown.
	Torch string
	// Stages are the freeze stages, the default first.
	Stages []string
	// TrainedByStage describes the trained parameters by stage; see [Model.StageDescription].
	TrainedByStage map[string]string
	// Default is the case that the model's own project trains.
	Default Case
	// Batches are the batch sizes of a sweep that sets none.
	Batches []int
	// Validation is the batch size of the project's validation; zero means that of training.
	Validation int
	// BatchUnit names one sample of a batch: "clip", "image".
	BatchUnit string
	// Settings are the numbers that a case can set, such as the length of a sequence.
	Settings []Setting
	// Tasks are the training tasks that a case can choose from; empty if there is only one.
	Tasks []string
	// Losses are the loss functions that a case can choose from; empty if there is no choice.
	Losses []string
	// UserModel reports whether the model comes from a user's file. Errors then name the file.
	UserModel bool
	// IsPartial reports whether the file lacks a part of the training step, such as the backward pass of a custom
	// autograd.Function, which is then estimated.
	IsPartial bool
	// HasFixedSizes reports whether batches always have the case's sizes, as in a captured model. The memory
	// of two runs then differs only by the order of frees.
	HasFixedSizes bool
	// SupportsPatterns reports whether cases can select the parameters to freeze and the modules to recompute by
	// patterns of their names.
	SupportsPatterns bool
	// SupportsLoRA reports whether cases can train LoRA adapters.
	SupportsLoRA bool
	// IsTransformers reports whether the model runs code of transformers, whose release then matters.
	IsTransformers bool
	// HasTowers reports whether the model has image or audio encoders. A text-only step does not run them.
	HasTowers bool
	// Supports reports which memory-saving options cases can use.
	Supports MemoryOptionSupport
	// HalfWeights reports whether cases can have weights in half precision.
	HalfWeights bool
	// SupportsRanks reports whether cases can have a strategy for several GPUs.
	SupportsRanks bool
	// Class returns the model's Python class for the given settings; nil if the model does not correspond to one.
	Class func(Settings) LibraryClass
	// Unrecorded returns the reason why a case has no step recorded under torch.compile, as a clause; empty if it has
	// one. The function is nil if no case has one.
	Unrecorded func(Case) string
	// Reordered builds a case with its compiled kernels in their other possible order. Nil if it is certain.
	Reordered func(Case) (Trainer, error)
	// Kernels returns the programs with the kernels of a micro-batch under torch.compile, and the share of the second;
	// nil for a recording without them. It is for cases whose step was recorded.
	Kernels func(Case) (near, far *program.Program, share float64)
	// Recorded reports whether the steps come from the recording of a finished run, which options cannot change; see
	// [Model.Complete].
	Recorded bool
	// File is the file from which a user's model was opened. It is empty for models from a description.
	File string
	// Description is the definition of a user's model; zero for models of the registry.
	Description Description
	// Check reports settings that contradict each other, such as a width that the number of heads does not divide. It
	// is nil if there are none to check. The error is a [*CaseError].
	Check func(Case) error
	// Notes are sentences about the model that a user should know.
	Notes []string
	// Caveat returns warnings about a case: that the model's own project would not train it, or that an option has no
	// effect. It is nil if there are none.
	Caveat func(Case) []string
	// Curriculum holds the parts of training that the model's project distinguishes; nil if there is only one.
	Curriculum *Curriculum
	// Build builds the trainer of a complete case.
	Build func(Case) (Trainer, error)
}

// Trainer is the model, loss and optimizer of one case. If its steps were recorded from a real run, it replays their
// program: see [trace.Tape.Play].
type Trainer interface {
	// Counts returns the element counts of the model without recording it.
	Counts() Counts
	// Record records set-up and the given number of steps on the tape. The error is PyTorch's refusal of a step.
	Record(t *trace.Tape, steps int) error
}

// A Validator is a [Trainer] that also runs validation.
type Validator interface {
	// Validate records a forward pass and loss of n samples after the training steps, in evaluation mode and without
	// gradients. It returns an error for a batch that PyTorch would reject.
	Validate(t *trace.Tape, n int) error
}

// A Wrappable is a [Trainer] that lists the modules that fully_shard can wrap.
type Wrappable interface {
	// WrappableModules returns the model's modules, each before its children.
	WrappableModules() []WrappableModule
}

// WrappableModule is a module that fully_shard can wrap.
type WrappableModule struct {
	Path string
	// Parameters is the number of parameter elements in the module and its children.
	Parameters int64
	// Block reports whether fully_shard wraps the module by default.
	Block bool
}

// A RankDescriber is a [Trainer] of a pipeline that can describe its ranks.
type RankDescriber interface {
	// DescribeRanks describes the work of each rank. Ranks with the same description differ at most in how many
	// micro-batches they hold at a time. It runs the model once on the given tape, which the caller then discards.
	DescribeRanks(scratch *trace.Tape) ([]string, error)
}

// Recording is the recorded training steps of a case.
type Recording struct {
	Case    Case
	Counts  Counts
	Program *program.Program
	// Facts are properties of the recorded model that tables show, such as its attention kernels.
	Facts trace.Facts
	// Steps is the number of recorded training steps.
	Steps int
	// Validation is the step number of the validation batch, after the last training step; zero if none was recorded.
	Validation int
	// Stretch is the time of a pipeline's step relative to the recorded rank's own time, since the rank waits for the
	// other stages; zero without a pipeline.
	Stretch float64
	// Others are the programs for the GPUs of [Options.Others]; all other fields are the same for them.
	Others *trace.OtherPrograms
}

// ForGPU returns the recording for GPU number other of [Options.Others]; nil if that GPU needs a separate recording.
func (r *Recording) ForGPU(other int) *Recording {
	p := r.Others.ProgramOf(other)
	if p == nil {
		return nil
	}
	on := *r
	on.Program, on.Others = p, nil
	return &on
}

// Discard releases the program's memory for later recordings. The caller must hold the only reference.
func (r *Recording) Discard() {
	if r.Program != nil {
		trace.Recycle(r.Program)
		r.Program, r.Others = nil, nil
	}
}

// Options control a recording.
type Options struct {
	// Context, if not nil, stops the recording with its error when it is canceled.
	Context context.Context
	// Steps is the number of training steps; zero means [Case.Steps].
	Steps     int
	NoKernels bool // leave out kernel launches, which do not affect allocations
	// NeedsMoreSteps, if not nil, is called with the program after the last step. It reports whether to record
	// another step.
	NeedsMoreSteps func(*program.Program) bool
	// Validation, if not zero, is the batch size of a validation that is recorded after the steps.
	Validation int
	// Others are further GPUs. The recording also covers the ones on which only the sizes of workspaces differ.
	Others []trace.GPU
	// Ceiling stops the recording with [trace.ErrCeiling] once more bytes than this are allocated; zero means no limit.
	Ceiling int64
	// Reordered records the step that [Model.Reordered] builds.
	Reordered bool
	// Annotate stores the model's source line with each event. Recording is then slower.
	Annotate bool
}

// A Curriculum is the sequence of stages in which a model's project trains it, with different settings.
type Curriculum struct {
	// EffectiveBatch is the number of samples of the project's optimizer steps.
	EffectiveBatch int
	Parts          []CurriculumPart
}

// A CurriculumPart is one stage of a project's training, or several with equal settings.
type CurriculumPart struct {
	Name string
	// Model is the name of the registry's model with the same training step.
	Model string
	// Settings are the settings that differ between the parts.
	Settings Settings
}

// FirstDifferingKey returns the first JSON key, in alphabetical order, whose values in two cases are not the same
// according to same; empty if there is none. A value is nil if the key is absent.
func FirstDifferingKey(a, b Case, same func(key string, a, b json.RawMessage) bool) string {
	one, other := a.jsonFields(), b.jsonFields()
	keys := maps.Clone(one)
	maps.Copy(keys, other)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !same(key, one[key], other[key]) {
			return key
		}
	}
	return ""
}

func (c Case) jsonFields() map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.Key()), &all); err != nil {
		panic(err) // Key returns valid JSON
	}
	return all
}

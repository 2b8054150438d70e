package models

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Registry is the list of known models, with the sources of users' models.
// Package models/all makes the one that the program uses; tests make their own.
type Registry struct {
	models  []Model
	index   map[string]int
	sources []Source
	steps   Steps
	// latest is the last model that a source made: commands open a model and then make
	// it again of its description, which for a large graph takes as long as the rest.
	latest atomic.Pointer[Model]
}

// Source is a kind of users' models, named by a scheme and a reference: "hf:config.json".
type Source struct {
	// Scheme is what stands before the colon.
	Scheme string
	// Suffix, if not empty, is the end of names that are references without a scheme: ".pt2".
	Suffix string
	// Open makes the model that a reference names.
	Open func(ref string) (Model, error)
	// Restore makes a model again from its name and the text of its description.
	Restore func(name, description string) (Model, error)
}

// NewRegistry puts the lists of the systems' packages together, in order.
// Two models of one name are a bug of ours and panic.
func NewRegistry(systems ...[]Model) *Registry {
	r := &Registry{models: slices.Concat(systems...), index: map[string]int{}}
	for i, m := range r.models {
		if _, twice := r.index[m.Name]; twice {
			panic("models: two models are called " + m.Name)
		}
		r.index[m.Name] = i
	}
	return r
}

// Steps gives a model its step under torch.compile where one was recorded of a complete case: in a file's content, or
// if that is nil in the file that is kept for it. Without one it returns the model as it is.
type Steps func(m Model, c Case, content []byte) (Model, error)

// WithSteps adds the steps that were recorded under torch.compile.
func (r *Registry) WithSteps(s Steps) *Registry {
	r.steps = s
	return r
}

// Complete completes a case as [Model.Complete] does, with the step of the case under torch.compile if one was
// recorded.
func (r *Registry) Complete(m Model, c Case) (Model, Case, error) {
	full, err := m.Complete(c)
	if err != nil || !full.Compile || m.Unrecorded != nil || r.steps == nil {
		return m, full, err
	}
	if m, err = r.kept(r.steps(m, full, nil)); err != nil {
		return m, full, err
	}
	full, err = m.Complete(c)
	return m, full, err
}

// With adds a source of further models.
func (r *Registry) With(s Source) *Registry {
	r.sources = append(r.sources, s)
	return r
}

func (r *Registry) source(name string) (s Source, ref string, ok bool) {
	scheme, ref, _ := strings.Cut(name, ":")
	at := slices.IndexFunc(r.sources, func(s Source) bool { return s.Scheme == scheme })
	if at >= 0 && strings.Contains(name, ":") {
		return r.sources[at], ref, true
	}
	at = slices.IndexFunc(r.sources, func(s Source) bool { return s.Suffix != "" && strings.HasSuffix(name, s.Suffix) })
	if at < 0 {
		return Source{}, "", false
	}
	return r.sources[at], name, true
}

// All returns the listed models in order. The caller must not change the slice.
func (r *Registry) All() []Model { return r.models }

// Names returns the names of all models in order.
func (r *Registry) Names() []string {
	return lists.Map(r.models, func(m Model) string { return m.Name })
}

// Lookup finds a model by its exact name, or opens what a source has under it.
// The error is an [*UnknownModelError], or the source's.
func (r *Registry) Lookup(name string) (Model, error) {
	if s, ref, ok := r.source(name); ok {
		m, err := s.Open(ref)
		m.File = ref[strings.LastIndexByte(ref, '@')+1:]
		return r.kept(m, err)
	}
	if i, ok := r.index[name]; ok {
		return r.models[i], nil
	}
	return Model{}, &UnknownModelError{Name: name, Nearest: nearest.Names(name, r.Names(), 3)}
}

// Of finds the model of a case. If the case has a description, the model is made from the
// description alone, so that results can be examined without the file.
func (r *Registry) Of(c Case, d Description) (m Model, err error) {
	if m := r.latest.Load(); m != nil && m.Name == c.Model && m.Description == d {
		return *m, nil
	}
	own, steps := d.parts()
	if s, _, ok := r.source(c.Model); ok && own != "" {
		m, err = s.Restore(c.Model, own)
	} else {
		m, err = r.Lookup(c.Model)
	}
	if err == nil && steps != nil && r.steps != nil {
		if c, err = m.Complete(c); err == nil {
			m, err = r.steps(m, c, steps)
		}
	}
	return r.kept(m, err)
}

// kept returns a model that a source made, remembered as the latest.
func (r *Registry) kept(m Model, err error) (Model, error) {
	if err == nil {
		r.latest.Store(&m)
	}
	return m, err
}

// Record builds the case's model and records its training steps as they run
// on the GPU. The case is completed first, see [Model.Complete].
func (r *Registry) Record(c Case, gpu trace.GPU, o Options) (*Recording, error) {
	m, err := r.Lookup(c.Model)
	if err != nil {
		return nil, err
	}
	return m.Record(c, gpu, o)
}

// An UnknownModelError says that no model has a name, and which come near it.
type UnknownModelError struct {
	Name    string
	Nearest []string
}

func (e *UnknownModelError) Error() string {
	if e.Name == "" {
		return `no model named (list them with "vprof models")`
	}
	near := ""
	if len(e.Nearest) > 0 {
		near = "; near it: " + strings.Join(e.Nearest, ", ")
	}
	switch filepath.Ext(e.Name) {
	case ".py", ".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".onnx":
		near = "; vprof capture makes a .pt2 of a model that Python builds"
	case ".json":
		near = "; a configuration of transformers is named by hf:" + e.Name
	default:
		if strings.Contains(e.Name, "/") {
			near = "; a model of transformers is named by hf:" + e.Name
		}
	}
	return fmt.Sprintf(`unknown model %q%s (list all with "vprof models")`, e.Name, near)
}

// Usage marks the error as bad input.
func (*UnknownModelError) Usage() bool { return true }

// A CaseError says that a case has a value that its model does not allow.
type CaseError struct {
	Model string
	// Field is what is wrong, in the words of the command line: "stage".
	Field  string
	Reason string
}

func (e *CaseError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Model, e.Field, e.Reason)
}

// Usage marks the error as bad input.
func (*CaseError) Usage() bool { return true }

// Wrong returns a [*CaseError] about a field of the case, or a setting.
func (c Case) Wrong(field, format string, args ...any) error {
	return &CaseError{Model: c.Model, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Optimizers returns the values Case.Optimizer can have besides "", which keeps the system's own.
func Optimizers() []string { return optim.Names() }

// Complete fills what c leaves open (stage, batch, accumulation, settings) with the model's defaults and checks the
// rest. What "" and false mean for precision, weights, checkpointing and optimizer is a choice already, so those stay
// as they are. The error is a [*CaseError].
func (m Model) Complete(c Case) (Case, error) {
	c = m.filled(c)
	if field, reason := c.checkFields(); reason != "" {
		return c, c.Wrong(field, "%s", reason)
	}
	c.Stack = m.stackOf(c)
	var err error
	if c.Settings, err = m.settings(c.Settings); err != nil {
		return c, err
	}
	if field, reason := m.conflict(c); reason != "" {
		return c, c.Wrong(field, "%s", reason)
	}
	return c, m.check(c)
}

// check returns an error if the model cannot train a complete case with its present batch, rank and micro-batches.
func (m Model) check(c Case) error {
	if field := m.changed(c); field != "" {
		return c.Wrong(field, "the steps of a recorded run are what they are; record the run again with this changed "+
			"(other GPUs and allocator settings need no new recording)")
	}
	if err := CheckBatch(c.Batch); err != nil {
		return c.Wrong("batch", "%v", err)
	}
	if m.Check != nil {
		return m.Check(c)
	}
	return nil
}

// filled returns a case with the model's defaults where it leaves something open.
func (m Model) filled(c Case) Case {
	d := m.Default
	c.Model, c.ConfigHash = m.Name, m.Description.Hash()
	if c.LoRA != nil && c.LoRA.NoTowers && !m.Towers {
		l := *c.LoRA
		l.NoTowers, c.LoRA = false, &l
	}
	c.Task, c.Stage, c.Loss = cmp.Or(c.Task, d.Task), cmp.Or(c.Stage, d.Stage), cmp.Or(c.Loss, d.Loss)
	c.Batch, c.Accumulate = cmp.Or(c.Batch, d.Batch), cmp.Or(c.Accumulate, max(1, d.Accumulate))
	if c.Blocks = cmp.Or(c.Blocks, d.Blocks); !c.Checkpointing {
		c.Blocks = ""
	}
	return c
}

// MaxBatch is the largest batch size that is accepted; a larger one is taken for a mistake.
const MaxBatch = 1 << 20

// mostAccumulated is how many micro-batches of a step are recorded at most.
const mostAccumulated = 1024

// CheckBatch returns an error if n samples are no batch that anybody trains with: from a
// flag, or from a file that says what was or shall be trained.
func CheckBatch(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("%d is not a batch size; the smallest is 1", n)
	case n > MaxBatch:
		return fmt.Errorf("%d is more than any batch (%d)", n, MaxBatch)
	}
	return nil
}

// CheckAccumulate returns an error if a step of n micro-batches is not recorded.
func CheckAccumulate(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("%d is not a number of micro-batches; the smallest is 1", n)
	case n > mostAccumulated:
		return fmt.Errorf("%d micro-batches are too many to record one by one; all after the second allocate the "+
			"same, so say %d", n, mostAccumulated)
	}
	return nil
}

// Canonical returns a complete case without the settings that have the model's own
// values, as files have it: however a case was asked for, it is the same then.
func (m Model) Canonical(c Case) Case {
	own := Settings{}
	for _, s := range m.Settings {
		if v, given := c.Settings[s.Name]; given && v != s.Default {
			own[s.Name] = v
		}
	}
	if c.Settings = own; len(own) == 0 {
		c.Settings = nil
	}
	return c
}

// mostHeld is the largest accepted data set or network beside the model, in bytes: more than any GPU holds.
const mostHeld = 1 << 44

// recovered makes an error of the panic that stops a recording, and of one in a graph that came from elsewhere, which
// nothing has checked as a whole; other panics go on.
func (m Model) recovered(what any, ctx context.Context, rec *Recording, err error) (*Recording, error) {
	switch what {
	case nil:
		return rec, err
	case trace.ErrStopped:
		return nil, context.Cause(ctx)
	}
	if !m.Foreign {
		panic(what)
	}
	return nil, fmt.Errorf("%s: the graph cannot be recorded: %v; it is damaged, or this is a bug of ours (please "+
		"report it)", m.Name, what)
}

// Steps returns the number of steps until further ones are alike: the first, and one with the optimizer's state
// present. DDP's static graphs have a third, before which buckets are rebuilt.
func (c *Case) Steps() int {
	switch {
	case c.FirstStep:
		return 1
	case c.Strategy != nil && c.Strategy.StaticGraph:
		return 3
	}
	return 2
}

// Record completes a case and records it, see [Model.Complete] and [Model.RecordComplete].
func (m Model) Record(c Case, gpu trace.GPU, o Options) (*Recording, error) {
	c, err := m.Complete(c)
	if err != nil {
		return nil, err
	}
	return m.RecordComplete(c, gpu, o)
}

// RecordComplete builds the model of a complete case and records its training steps on the GPU. A case that
// [Model.Complete] returned stays complete with another batch, rank or number of micro-batches; whether the model can
// train it is checked again. A data set on the GPU is allocated before the model, as one tensor. With
// [Options.Reordered] the recording is nil if there is no other order.
func (m Model) RecordComplete(c Case, gpu trace.GPU, o Options) (rec *Recording, err error) {
	if s := c.Strategy; s != nil && s.PassesOn() && s.Rank == nil {
		o.Further = nil // ranks are compared in the same steps
		return m.recordWorst(c, gpu, o)
	}
	if err := m.check(c); err != nil {
		return nil, err
	}
	defer func() { rec, err = m.recovered(recover(), o.Context, rec, err) }()
	build := m.Build
	if o.Reordered {
		build = m.Reordered
	}
	trainer, err := build(c)
	if err != nil || trainer == nil {
		return nil, err
	}
	if o.Steps = cmp.Or(o.Steps, c.Steps()); c.FirstStep {
		o.Steps = 1
	}
	release, err := c.Release()
	if err != nil {
		return nil, err
	}
	options := trace.Options{Annotate: o.Annotate, Others: o.Others, Ceiling: o.Ceiling, Further: o.Further}
	if o.Context != nil {
		options.Done = o.Context.Done()
	}
	tape := trace.New(gpu, rulesOf(c, release), options)
	tape.KeepInRegions(c.Recompute.KeptOperators())
	if c.Dataset > 0 {
		tape.Hold(tape.New("to", program.Batch, trace.U8, c.Dataset))
		tape.Mark("dataset")
	}
	if c.Beside > 0 {
		tape.Hold(tape.New("to", program.Weights, trace.U8, c.Beside))
	}
	if err := trainer.Record(tape, o.Steps); err != nil {
		return nil, err
	}
	rec = &Recording{Case: c, Counts: trainer.Counts(), Steps: max(o.Steps, tape.Step()+1)}
	if v, ok := trainer.(Validator); ok && o.Validation > 0 {
		rec.Validation = rec.Steps
		tape.SetStep(rec.Steps)
		if err := v.Validate(tape, o.Validation); err != nil {
			return nil, err
		}
	}
	rec.Facts = tape.Facts()
	rec.Program, rec.Others = tape.FinishAll()
	if s := c.Strategy; s != nil && s.Name == PP {
		rec.Stretch = s.Bubble(c.GPUs)
	}
	return rec, nil
}

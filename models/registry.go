package models

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Registry is the list of known models, with the sources of users' models. Package models/all makes the program's
// registry; tests make their own.
type Registry struct {
	models  []Model
	index   map[string]int
	sources []Source
	steps   StepsFunc
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
	// AcceptsName reports whether a name without the scheme is a reference, too; nil for none. Names returns names that
	// it has, with the scheme; nil if it has none of its own.
	AcceptsName func(name string) bool
	Names       func() []string
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

// StepsFunc returns a model with its step under torch.compile, if one was recorded for the complete case: in the
// content of a file or, if that is nil, in the file that is stored for the model. Otherwise it returns the model
// unchanged.
type StepsFunc func(m Model, c Case, content []byte) (Model, error)

// WithSteps adds the steps that were recorded under torch.compile.
func (r *Registry) WithSteps(s StepsFunc) *Registry {
	r.steps = s
	return r
}

// Complete completes a case as [Model.Complete] does, with its step under torch.compile if one was recorded.
func (r *Registry) Complete(m Model, c Case) (Model, Case, error) {
	full, err := m.Complete(c)
	if err != nil || !full.Compile || m.Unrecorded != nil || r.steps == nil {
		return m, full, err
	}
	if m, err = r.remember(r.steps(m, full, nil)); err != nil {
		return m, full, err
	}
	full, err = m.Complete(c)
	return m, full, err
}

// WithSource adds a source of further models.
func (r *Registry) WithSource(s Source) *Registry {
	r.sources = append(r.sources, s)
	return r
}

func (r *Registry) source(name string) (s Source, ref string, ok bool) {
	scheme, ref, _ := strings.Cut(name, ":")
	at := slices.IndexFunc(r.sources, func(s Source) bool { return s.Scheme == scheme })
	if at >= 0 && strings.Contains(name, ":") {
		return r.sources[at], ref, true
	}
	at = slices.IndexFunc(r.sources, func(s Source) bool {
		return s.Suffix != "" && strings.HasSuffix(name, s.Suffix) || s.AcceptsName != nil && s.AcceptsName(name)
	})
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

// Lookup finds a model by its name, or opens what a source has under it. A name that only one model has but for case
// and punctuation is that model's: "resnet-50", or a name of a source without its scheme.
// The error is an [*UnknownModelError], or the source's.
func (r *Registry) Lookup(name string) (Model, error) {
	if s, ref, ok := r.source(name); ok {
		m, err := s.Open(ref)
		m.File = ref[strings.LastIndexByte(ref, '@')+1:]
		return r.remember(m, err)
	}
	if i, ok := r.index[name]; ok {
		return r.models[i], nil
	}
	names := r.Names()
	for _, s := range r.sources {
		if s.Names != nil {
			names = append(names, s.Names()...)
		}
	}
	bare := func(n string) string { return nearest.Normalize(n[strings.IndexByte(n, ':')+1:]) }
	alike := lists.Filter(names, func(n string) bool { return bare(n) == nearest.Normalize(name) })
	if len(alike) == 1 {
		return r.Lookup(alike[0])
	}
	return Model{}, &UnknownModelError{Name: name, Nearest: nearest.Names(name, names, 3)}
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
	return r.remember(m, err)
}

// remember returns a model from a source, and remembers it as the latest one.
func (r *Registry) remember(m Model, err error) (Model, error) {
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

// An UnknownModelError reports that no model has a name, and which names are similar.
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
	}
	return fmt.Sprintf("unknown model %q%s (list: vprof models; for others: vprof run, vprof capture)", e.Name, near)
}

// Usage marks the error as bad input.
func (*UnknownModelError) Usage() bool { return true }

// A CaseError reports that a case has a value that its model does not allow.
type CaseError struct {
	Model string
	// Field is what is wrong, in the words of the command line: "stage".
	Field  string
	Reason string
}

func (e *CaseError) Error() string { return fmt.Sprintf("%s: %s: %s", e.Model, e.Field, e.Reason) }

// Usage marks the error as bad input.
func (*CaseError) Usage() bool { return true }

// Wrong returns a [*CaseError] about a field of the case, or a setting.
func (c Case) Wrong(field, format string, args ...any) error {
	return &CaseError{Model: c.Model, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Optimizers returns the valid values of Case.Optimizer besides "", which selects the system's own optimizer.
func Optimizers() []string { return optim.Names() }

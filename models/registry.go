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

// Registry holds the known models and the sources of users' models. Package models/all creates the program's
// registry; tests create their own.
type Registry struct {
	models  []Model
	index   map[string]int
	sources []Source
	steps   StepsFunc
	// latest caches the last model of a source. A command opens a model and then restores it from its description,
	// which is slow for large graphs.
	latest atomic.Pointer[Model]
}

// Source is a kind of users' models with names of the form scheme:reference, such as "hf:config.json".
type Source struct {
	// Scheme is the part of a name before the colon.
	Scheme string
	// Suffix, if not empty, is a file extension whose names need no scheme: ".pt2".
	Suffix string
	// AcceptsName reports whether a name without a scheme belongs to the source; nil if none does. Names returns the
	// source's own model names with their scheme; nil if it has none.
	AcceptsName func(name string) bool
	Names       func() []string
	// Open opens the model of a reference.
	Open func(ref string) (Model, error)
	// Restore builds a model from its name and the text of its description.
	Restore func(name, description string) (Model, error)
}

// NewRegistry returns a registry of the models in all lists, in order. It panics if two have the same name.
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

// StepsFunc adds the complete case's step under torch.compile to a model, from the content of a file or, if that is
// nil, from the file stored for the model. Without a recorded step it returns the model unchanged.
type StepsFunc func(m Model, c Case, content []byte) (Model, error)

// WithSteps sets the function that adds steps recorded under torch.compile.
func (r *Registry) WithSteps(s StepsFunc) *Registry {
	r.steps = s
	return r
}

// Complete completes a case as [Model.Complete] does, and adds its recorded step under torch.compile to the model.
func (r *Registry) Complete(m Model, c Case) (Model, Case, error) {
	full, err := m.Complete(c)
	if err != nil || !full.Compile || m.Unrecorded != nil || r.steps == nil {
		return m, full, err
	}
	if m, err = r.cacheLatest(r.steps(m, full, nil)); err != nil {
		return m, full, err
	}
	full, err = m.Complete(c)
	return m, full, err
}

// WithSource adds a source of users' models.
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

// All returns the listed models in order. The caller must not modify the slice.
func (r *Registry) All() []Model { return r.models }

// Names returns the names of the listed models in order.
func (r *Registry) Names() []string {
	return lists.Map(r.models, func(m Model) string { return m.Name })
}

// Lookup returns the model with a name, or opens it from a source. A name that matches only one model apart from case
// and punctuation also selects that model: "resnet-50", or a source's name without its scheme. The error is an
// [*UnknownModelError] or the source's.
func (r *Registry) Lookup(name string) (Model, error) {
	if s, ref, ok := r.source(name); ok {
		m, err := s.Open(ref)
		m.File = ref[strings.LastIndexByte(ref, '@')+1:]
		return r.cacheLatest(m, err)
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

// ModelForCase returns the model of a case. If the case has a description, the model is built from it, so that results
// can be examined without the original file.
func (r *Registry) ModelForCase(c Case, d Description) (m Model, err error) {
	if m := r.latest.Load(); m != nil && m.Name == c.Model && m.Description == d {
		return *m, nil
	}
	own, steps := d.modelAndSteps()
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
	return r.cacheLatest(m, err)
}

// cacheLatest returns a source's model and stores it as the latest one.
func (r *Registry) cacheLatest(m Model, err error) (Model, error) {
	if err == nil {
		r.latest.Store(&m)
	}
	return m, err
}

// Record completes a case, builds its model and records the training steps; see [Model.Complete].
func (r *Registry) Record(c Case, gpu trace.GPU, o Options) (*Recording, error) {
	m, err := r.Lookup(c.Model)
	if err != nil {
		return nil, err
	}
	return m.Record(c, gpu, o)
}

// An UnknownModelError reports a model name that does not exist, and the most similar names.
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
	if library, _, ok := strings.Cut(e.Name, ":"); ok && (library == "timm" || library == "torchvision") {
		near = fmt.Sprintf("; \"vprof capture %s -o m.pt2\" makes a file for --model", e.Name)
	}
	switch filepath.Ext(e.Name) {
	case ".py", ".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".onnx":
		near = "; vprof capture makes a .pt2 of a model that Python builds"
	case ".json":
		near = "; a configuration of transformers is named by hf:" + e.Name
	}
	return fmt.Sprintf("unknown model %q%s (list: vprof models; for others: vprof run, vprof capture)", e.Name, near)
}

// Usage reports that the error is the user's (exit code 2).
func (*UnknownModelError) Usage() bool { return true }

// A CaseError reports a value that the case's model does not support.
type CaseError struct {
	Model string
	// Field is the flag or setting with the invalid value: "stage".
	Field  string
	Reason string
}

func (e *CaseError) Error() string { return fmt.Sprintf("%s: %s: %s", e.Model, e.Field, e.Reason) }

// Usage reports that the error is the user's (exit code 2).
func (*CaseError) Usage() bool { return true }

// FieldError returns a [*CaseError] about a field or setting of the case.
func (c Case) FieldError(field, format string, args ...any) error {
	return &CaseError{Model: c.Model, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Optimizers returns the valid values of [Case.Optimizer] besides "".
func Optimizers() []string { return optim.Names() }

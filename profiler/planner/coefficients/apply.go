package coefficients

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/profiler/program"
)

// A NoEntryError reports that a coefficients file has no entry for a GPU, or several.
type NoEntryError struct {
	GPU, Name string
	// Found are the names of the matching entries; none or several.
	Found []string
}

func (e *NoEntryError) Error() string {
	switch {
	case e.Name != "" && len(e.Found) == 0:
		return fmt.Sprintf("there are no coefficients called %q for %s", e.Name, e.GPU)
	case len(e.Found) == 0:
		return fmt.Sprintf("there are no coefficients for %s", e.GPU)
	}
	return fmt.Sprintf("there are several coefficients for %s; add # and the name of one: %s", e.GPU,
		strings.Join(e.Found, ", "))
}

// Usage marks the error as bad input.
func (*NoEntryError) Usage() bool { return true }

// FindEntry returns the entry of a GPU: the one called name or, if name is empty, the only one. Among several, entries
// fitted to the model are preferred. The error is a [*NoEntryError].
func (f *File) FindEntry(gpu, model, name string) (*Entry, error) {
	var found, seen []*Entry
	for i := range f.Entries {
		e := &f.Entries[i]
		if e.GPU != gpu || name != "" && e.Name != name {
			continue
		}
		found = append(found, e)
		if slices.Contains(e.Models, model) {
			seen = append(seen, e)
		}
	}
	if len(seen) == 1 {
		return seen[0], nil
	}
	if len(found) == 1 {
		return found[0], nil
	}
	names := lists.Map(found, func(e *Entry) string { return e.Name })
	return nil, &NoEntryError{GPU: gpu, Name: name, Found: names}
}

// SplitFileName splits a user's FILE#NAME.
func SplitFileName(s string) (path, name string) {
	path, name, _ = strings.Cut(s, "#")
	return path, name
}

// gpuTerms are the terms that apply to every model on the GPU.
var gpuTerms = []planner.Term{planner.ContextBytes, planner.Granularity, planner.CommunicationShare}

// Apply corrects the coefficients of a model by the entry. The model's terms, the library workspace and the slacks,
// stay unchanged if the entry was not fitted to the model; the context's error is then used without its correlations.
func (e *Entry) Apply(model string, c *planner.Coefficients) {
	mine := slices.Contains(e.Models, model)
	for t := range planner.Term(planner.NumTerms) {
		n, ok := e.Memory[t.String()]
		if !ok || !mine && !slices.Contains(gpuTerms, t) {
			continue
		}
		k := planner.Coefficient{Name: t.String() + ":" + e.GPU, Value: n.Value, StdErr: n.StdErr, Source: e.source(n)}
		switch {
		case t != planner.ContextBytes:
			c.Set(t, k)
		case e.Bare:
			c.SetBareContext(k)
		case !c.BareContext: // else the process loads none of the libraries that are part of the entry's context
			c.Set(t, k)
		}
	}
	if !mine {
		return
	}
	for _, k := range e.Correlations {
		a, _ := termOf(k.Between[0])
		b, _ := termOf(k.Between[1])
		if n := e.Memory[planner.ContextBytes.String()]; a == planner.ContextBytes || b == planner.ContextBytes {
			// The error of the libraries' memory is correlated with no other error.
			k.Value *= min(1, n.StdErr/max(c.Context.StdErr, math.SmallestNonzeroFloat64))
		}
		c.Correlation[a][b], c.Correlation[b][a] = k.Value, k.Value
	}
}

// SimulatedSource is the suffix in the source of values that were fitted to simulated runs.
const SimulatedSource = " (simulated)"

// source returns the source of a value, as estimates show it.
func (e *Entry) source(n Number) string {
	s := n.Source + "; " + e.Name
	if e.Simulated {
		s += SimulatedSource
	}
	return s
}

// PutEntry adds an entry. It replaces an entry of the same name.
func (f *File) PutEntry(e Entry) {
	if i := slices.IndexFunc(f.Entries, func(old Entry) bool { return old.Name == e.Name }); i >= 0 {
		f.Entries[i] = e
		return
	}
	f.Entries = append(f.Entries, e)
	slices.SortFunc(f.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
}

// ApplySpeed corrects efficiencies by the entry. They belong to the GPU and apply to every model. They already include
// time in the host's dispatch.
func (e *Entry) ApplySpeed(s *steptime.Efficiency) {
	numbers, kind := e.Relative, "speed:"
	if len(numbers) == 0 {
		numbers, kind, s.RelativeToPeak = e.Efficiency, "efficiency:", len(e.Efficiency) > 0
	}
	if s.RelativeToPeak { // the times of launches include the host's
		s.Dispatch, s.Module = planner.Coefficient{}, planner.Coefficient{}
	}
	for name, n := range numbers {
		c := planner.Coefficient{Name: kind + name, Value: n.Value, StdErr: n.StdErr, Source: e.source(n)}
		if t := timeField(s, name); t != nil {
			*t = c
		} else if w, ok := workOf(name); ok {
			s.Share[w] = c
		}
	}
}

// timeNames are the names of efficiencies that are seconds per kernel, instead of speeds of a class of work.
var timeNames = [...]string{LaunchKey, "dispatch", "module"}

// timeField returns the field for a time with one of timeNames; nil for other names.
func timeField(s *steptime.Efficiency, name string) *planner.Coefficient {
	switch name {
	case timeNames[0]:
		return &s.Launch
	case timeNames[1]:
		return &s.Dispatch
	case timeNames[2]:
		return &s.Module
	}
	return nil
}

// SetSpeed stores efficiencies of PyTorch's kernels, or of synthetic ones, in the entry. Launch times that no run
// corrected are left out, so that the host's measured time applies.
func (e *Entry) SetSpeed(s steptime.Efficiency, synthetic bool) {
	numbers, assumed := map[string]Number{}, steptime.DefaultEfficiency()
	for _, name := range timeNames {
		if c := timeField(&s, name); c.Value > 0 && *c != *timeField(&assumed, name) {
			numbers[name] = Number{c.Value, c.StdErr, c.Source}
		}
	}
	for w, c := range s.Share {
		numbers[program.Work(w).String()] = Number{c.Value, c.StdErr, c.Source}
	}
	if synthetic {
		e.Synthetic = numbers
	} else {
		e.Relative = numbers
	}
}

// A Selection holds the entries of a coefficients file that correct estimates for GPUs and models. It is plain data, so
// a job can take it to another machine. A nil Selection corrects nothing.
type Selection struct {
	Entries []Entry `json:"entries"`
	// Name is the name of the only entry to use; empty selects an entry by GPU and model.
	Name string `json:"name,omitempty"`
	// Host is [File.Host].
	Host *Number `json:"host,omitempty"`
}

// Apply corrects the coefficients of a model on a GPU. The error is a [*NoEntryError]; if [NoEntryError.Unknown] is
// true, the defaults are unchanged.
func (s *Selection) Apply(gpu, model string, c *planner.Coefficients) error {
	if s == nil || len(s.Entries) == 0 && s.Host != nil { // a file of the host alone
		return nil
	}
	e, err := s.find(gpu, model)
	if err != nil {
		return err
	}
	e.Apply(model, c)
	return nil
}

// Speed returns the share of a GPU's peak rates that each class of kernel reaches. Classes without an entry have the
// values of [steptime.DefaultEfficiency]. The error is a [*NoEntryError].
func (s *Selection) Speed(gpu, model string) (steptime.Efficiency, error) {
	speed := steptime.DefaultEfficiency()
	if s == nil {
		return speed, nil
	}
	if h := s.Host; h != nil {
		speed = speed.WithHostTime(planner.Coefficient{Value: h.Value, StdErr: h.StdErr, Source: h.Source})
	}
	e, err := s.find(gpu, model)
	var none *NoEntryError
	switch {
	case errors.As(err, &none) && len(none.Found) == 0:
		return speed, nil
	case err != nil:
		return speed, fmt.Errorf("efficiency: %w", err)
	}
	e.ApplySpeed(&speed)
	return speed, nil
}

func (s *Selection) find(gpu, model string) (*Entry, error) {
	f := File{Entries: s.Entries}
	return f.FindEntry(gpu, model, s.Name)
}

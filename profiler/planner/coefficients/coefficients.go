// Package coefficients reads and writes the results of calibration: a YAML file with an entry for each GPU and software
// stack, where each number has a standard error and a source. Plans, searches and smoke tests read the file; only
// `vprof calibrate` writes it.
package coefficients

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
)

// Schema names this version of the format. Other versions and unknown fields are errors: a misspelled coefficient must
// not be ignored.
const Schema = "vprof.coefficients/v1"

// maxFileBytes is the largest accepted file size in bytes. An entry has a few thousand bytes.
const maxFileBytes = 8 << 20

// File is the content of a coefficients file.
type File struct {
	Schema string `yaml:"schema" json:"schema"`
	// Tool is the version of vprof that wrote the file.
	Tool    string  `yaml:"tool" json:"tool"`
	Entries []Entry `yaml:"entries" json:"entries"`
	// Host is this machine's time to launch a kernel, relative to the table of kernel parameters; nil if not measured.
	Host *Number `yaml:"host,omitempty" json:"host,omitempty"`
}

// Entry is the fitted coefficients of one GPU under one software stack.
type Entry struct {
	// Name is the name by which users select the entry: "rtx-5060-ti/torch-2.11.0".
	Name  string `yaml:"name" json:"name"`
	GPU   string `yaml:"gpu" json:"gpu"`
	Stack Stack  `yaml:"stack" json:"stack"`
	// Simulated reports whether any run came from a simulated device or driver.
	Simulated bool `yaml:"simulated" json:"simulated"`
	// Bare reports whether the runs used vprof's kernels, so that the context does not include PyTorch's libraries.
	Bare bool `yaml:"bare,omitempty" json:"bare,omitempty"`
	// Fitted is the time of the fit, UTC.
	Fitted time.Time `yaml:"fitted" json:"fitted"`
	// Models are the models of the runs. Slacks apply only to these; everything else applies to the GPU.
	Models []string `yaml:"models" json:"models"`
	// Memory are the terms that were fitted, by the names of [planner.Term].
	Memory       map[string]Number `yaml:"memory" json:"memory"`
	Correlations []Correlation     `yaml:"correlations,omitempty" json:"correlations,omitempty"`
	// Relative is the speed of the kernels of each class of work, relative to the table of kernel parameters, by the
	// names of [program.Work]. "launch" is the additional seconds per kernel.
	Relative map[string]Number `yaml:"speed,omitempty" json:"speed,omitempty"`
	// Efficiency is the share of the GPU's peak that kernels of each class reach. Older releases of vprof fitted it in
	// place of Relative.
	Efficiency map[string]Number `yaml:"efficiency,omitempty" json:"efficiency,omitempty"`
	// Synthetic is like Relative for vprof's synthetic kernels, which replace PyTorch's in a replay on a GPU. Estimates
	// of PyTorch's time ignore it.
	Synthetic map[string]Number `yaml:"synthetic_efficiency,omitempty" json:"synthetic_efficiency,omitempty"`
	Errors    FitErrors         `yaml:"errors" json:"errors"`
	// Undetermined lists the terms that the runs did not determine, with the reasons.
	Undetermined []string `yaml:"undetermined,omitempty" json:"undetermined,omitempty"`
	Inputs       []Input  `yaml:"inputs" json:"inputs"`
}

// Stack is the software of the runs; unknown values are empty.
type Stack struct {
	Torch  string `yaml:"torch,omitempty" json:"torch,omitempty"`
	CUDA   string `yaml:"cuda,omitempty" json:"cuda,omitempty"`
	CUDNN  string `yaml:"cudnn,omitempty" json:"cudnn,omitempty"`
	Driver string `yaml:"driver,omitempty" json:"driver,omitempty"`
}

// String formats the stack for names and messages.
func (s Stack) String() string {
	var words []string
	for _, w := range []struct{ name, value string }{
		{"torch", s.Torch},
		{"cuda", s.CUDA},
		{"cudnn", s.CUDNN},
		{"driver", s.Driver},
	} {
		if w.value != "" {
			words = append(words, w.name+"-"+w.value)
		}
	}
	if len(words) == 0 {
		return "unknown stack"
	}
	return strings.Join(words, " ")
}

// Number is a coefficient. Its 95 % interval is 1.96 standard errors to either side.
type Number struct {
	Value  float64 `yaml:"value" json:"value"`
	StdErr float64 `yaml:"stderr" json:"stderr"`
	Source string  `yaml:"source" json:"source"`
}

// Correlation is the correlation between the errors of two terms.
type Correlation struct {
	Between [2]string `yaml:"between" json:"between"`
	Value   float64   `yaml:"value" json:"value"`
}

// FitErrors are relative errors of estimates compared with the runs: with the defaults, with the entry, and for each
// run with an entry fitted to the other runs.
type FitErrors struct {
	Before Error `yaml:"before" json:"before"`
	After  Error `yaml:"after" json:"after"`
	// HeldOut is nil if there are too few runs to leave one out.
	HeldOut *Error `yaml:"held_out,omitempty" json:"held_out,omitempty"`
}

// Error summarizes absolute relative errors.
type Error struct {
	Median float64 `yaml:"median" json:"median"`
	Max    float64 `yaml:"max" json:"max"`
}

// Input is a file with runs to which an entry was fitted.
type Input struct {
	File string `yaml:"file" json:"file"`
	// SHA256 of the content, hexadecimal.
	SHA256 string `yaml:"sha256" json:"sha256"`
	// Kind is "report", "reference" or "snapshot". Source is the program that recorded the file.
	Kind      string `yaml:"kind" json:"kind"`
	Source    string `yaml:"source" json:"source"`
	Simulated bool   `yaml:"simulated" json:"simulated"`
	Batches   []int  `yaml:"batches" json:"batches"`
}

// Open reads the coefficients file at path. The error is a [*input.FormatError] unless the file cannot be read.
func Open(path string) (*File, error) {
	f, err := input.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path)
}

// Read reads a coefficients file; name is used in messages. The error is a [*input.FormatError] unless reading fails.
func Read(r io.Reader, name string) (*File, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxFileBytes {
		return nil, input.FileErrorf(name, "the file has more than %d bytes, too many for a coefficients file; name "+
			"a file that vprof calibrate wrote", maxFileBytes)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var f File
	if err := d.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &input.FormatError{File: name, Reason: "empty; \"vprof calibrate\" makes coefficients files"}
		}
		if !bytes.Contains(data, []byte(Schema)) { // the error quotes lines, which may be secret
			return nil, &input.FormatError{File: name, Reason: "not a coefficients file, which has schema: " + Schema}
		}
		return nil, &input.FormatError{File: name, Reason: "not a coefficients file: " +
			strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")}
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, &input.FormatError{File: name, Reason: "more than one YAML document in it"}
	}
	if err := errors.Join(checkKeys(data), f.check()); err != nil {
		return nil, &input.FormatError{File: name, Reason: strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	return &f, nil
}

// The keys that every entry, and every input file of an entry, must have.
var (
	requiredKeys      = []string{"name", "gpu", "stack", "simulated", "fitted", "models", "memory", "errors", "inputs"}
	requiredInputKeys = []string{"file", "sha256", "kind", "source", "simulated", "batches"}
)

// checkKeys returns an error for an incomplete file: truncated YAML is still valid YAML.
func checkKeys(data []byte) error {
	var f struct {
		Entries *[]map[string]any `yaml:"entries"`
	}
	if err := yaml.Unmarshal(data, &f); err != nil {
		return err
	}
	if f.Entries == nil {
		return errors.New("the key entries is missing, so the file is cut off; copy it again, or run vprof calibrate " +
			"again")
	}
	for i, e := range *f.Entries {
		if err := checkHasKeys(e, requiredKeys, fmt.Sprintf("entry %d", i+1)); err != nil {
			return err
		}
		inputs, _ := e["inputs"].([]any)
		for j, in := range inputs {
			m, _ := in.(map[string]any)
			if err := checkHasKeys(m, requiredInputKeys, fmt.Sprintf("entry %d, input %d", i+1, j+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkHasKeys(m map[string]any, keys []string, where string) error {
	for _, key := range keys {
		if v, ok := m[key]; !ok || v == nil {
			return fmt.Errorf("%s has no %s, so the file is cut off; copy it again, or run vprof calibrate again",
				where, key)
		}
	}
	return nil
}

// check returns an error for invalid contents.
func (f *File) check() error {
	if f.Schema != Schema {
		return fmt.Errorf("the schema is %q: need %s; make the file with vprof calibrate", f.Schema, Schema)
	}
	if h := f.Host; h != nil && (!(h.Value > 0) || h.check(1000) != nil) {
		return fmt.Errorf("host: the time relative to the reference CPU is %v ± %v: need a number above 0 and at "+
			"most 1000; run \"vprof calibrate --host\" again", h.Value, h.StdErr)
	}
	names := map[string]bool{}
	for i := range f.Entries {
		e := &f.Entries[i]
		if e.Name == "" || e.GPU == "" {
			return fmt.Errorf("entry %d has no name or no gpu; add both", i+1)
		}
		if names[e.Name] {
			return fmt.Errorf("two entries have the name %s; rename or remove one", e.Name)
		}
		names[e.Name] = true
		if err := e.check(); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return nil
}

func checkEfficiency(key string, efficiency map[string]Number, most float64) error {
	for name, n := range efficiency {
		if !slices.Contains(timeNames[:], name) {
			if _, ok := workOf(name); !ok {
				return fmt.Errorf("%s: there is no class of work %q; remove it", key, name)
			}
			if n.Value == 0 {
				return fmt.Errorf("%s: %s: the efficiency is 0, which means an infinite time; need more than 0",
					key, name)
			}
		}
		if err := n.check(most); err != nil {
			return fmt.Errorf("%s: %s: %w", key, name, err)
		}
	}
	return nil
}

func (e *Entry) check() error {
	for name, n := range e.Memory {
		t, ok := termOf(name)
		if !ok {
			return fmt.Errorf("memory: there is no coefficient %q; use one of %s",
				name, strings.Join(termNames(), ", "))
		}
		if err := n.check(maxOfTerm(t)); err != nil {
			return fmt.Errorf("memory: %s: %w", name, err)
		}
	}
	for _, of := range []struct {
		key     string
		numbers map[string]Number
		most    float64
	}{{"speed", e.Relative, 100}, {"efficiency", e.Efficiency, 1}, {"synthetic_efficiency", e.Synthetic, 100}} {
		if err := checkEfficiency(of.key, of.numbers, of.most); err != nil {
			return err
		}
	}
	if err := e.checkHistory(); err != nil {
		return err
	}
	for i, c := range e.Correlations {
		if slices.ContainsFunc(e.Correlations[:i], func(other Correlation) bool { return other.sameTerms(c) }) {
			return fmt.Errorf("correlations: the pair %s and %s appears twice; remove one", c.Between[0], c.Between[1])
		}
		_, a := termOf(c.Between[0])
		_, b := termOf(c.Between[1])
		if !a || !b || c.Between[0] == c.Between[1] || !(math.Abs(c.Value) <= 1) {
			return fmt.Errorf("correlations: %v between %s and %s: need two different coefficients, and a value from "+
				"-1 to 1", c.Value, c.Between[0], c.Between[1])
		}
	}
	return nil
}

// sameTerms reports whether two correlations are about the same terms.
func (c Correlation) sameTerms(d Correlation) bool {
	return c.Between == d.Between || c.Between == [2]string{d.Between[1], d.Between[0]}
}

// maxErrorShare is more than the relative error of any estimate.
const maxErrorShare = 1e6

// checkHistory returns an error if the errors of an entry, or the batches of its input files, are impossible.
func (e *Entry) checkHistory() error {
	errs := map[string]*Error{"before": &e.Errors.Before, "after": &e.Errors.After, "held_out": e.Errors.HeldOut}
	for name, n := range errs {
		if n != nil && !(n.Median >= 0 && n.Median <= n.Max && n.Max <= maxErrorShare) {
			return fmt.Errorf("errors: %s: the median is %v and the maximum %v: need 0 <= median <= maximum",
				name, n.Median, n.Max)
		}
	}
	for _, in := range e.Inputs {
		for i, batch := range in.Batches {
			if batch < 1 || slices.Contains(in.Batches[:i], batch) {
				return fmt.Errorf("inputs: %s: batch size %d: need at least 1, each once", in.File, batch)
			}
		}
	}
	return nil
}

// maxOfTerm returns an upper bound for the value of a term: the memory of a hundred GPUs, a page of the driver, or a
// thousand times the recorded bytes.
func maxOfTerm(t planner.Term) float64 {
	switch t {
	case planner.LibraryWorkspace, planner.ContextBytes:
		return 1 << 45
	case planner.Granularity:
		return 1 << 30
	default:
		return 1000
	}
}

func (n Number) check(most float64) error {
	if !(n.Value >= 0 && n.Value <= most) {
		return fmt.Errorf("value: %v: need 0 to %v", n.Value, most)
	}
	if !(n.StdErr >= 0 && n.StdErr <= most) {
		return fmt.Errorf("stderr: %v: need 0 to %v", n.StdErr, most)
	}
	return nil
}

// LaunchKey is the name of the seconds per kernel in [Entry.Efficiency].
const LaunchKey = "launch"

func termNames() []string {
	return lists.Make(int(planner.NumTerms), func(t int) string { return planner.Term(t).String() })
}

func termOf(name string) (planner.Term, bool) {
	i := slices.Index(termNames(), name)
	return planner.Term(max(i, 0)), i >= 0
}

func workOf(name string) (program.Work, bool) {
	for w := program.Work(0); w.String() != "unknown"; w++ {
		if w.String() == name {
			return w, true
		}
	}
	return 0, false
}

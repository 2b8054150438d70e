// Package guides holds the memory estimates of the shipped systems' guides as data, one file for each guide. Each
// estimate has its conditions. Package claims compares them with vprof's estimates.
//
// The MB and GB of a guide are MiB and GiB, since its code divides by 1024**2 and 1024**3. If a guide does not state
// what a value counts, it counts the memory in use on the GPU.
package guides

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/profiler/planner"
)

//go:embed data/*.yaml
var data embed.FS

// Guide is a document in which a project states the memory that training needs.
type Guide struct {
	Title   string `yaml:"title"`
	Project string `yaml:"project"`
	// Models are the registry's names of the models in the guide.
	Models []string `yaml:"models"`
	Claims []Claim  `yaml:"claims"`
}

// Claim is one estimate of a guide.
type Claim struct {
	// Models are the guide's models that the estimate is for.
	Models []string `yaml:"models"`
	// Where is the guide's section.
	Where string `yaml:"where"`
	// Of is the estimated quantity.
	Of Quantity `yaml:"of"`
	// Phase is the phase of a step that Of refers to, if it refers to one: "forward".
	Phase string `yaml:"phase"`
	Value Value  `yaml:"figure"`
	// Duration is the value of [Time] in seconds, for a number of samples, or for one step without a number.
	Duration Span  `yaml:"took"`
	Samples  int64 `yaml:"samples"`
	// Quote is the guide's text if it has no number.
	Quote string `yaml:"words"`
	// IsDoubted reports whether the guide expects that the batch does not fit.
	IsDoubted bool `yaml:"doubted"`
	// Note is a remark for the reader.
	Note       string `yaml:"note"`
	Conditions `yaml:",inline"`
	// Baseline holds what differs in the configuration that the estimate is relative to; nil for an absolute estimate.
	Baseline *Conditions `yaml:"than"`
}

// Quantity is an estimated quantity: one of the constants, or a component of memory by its name, such as "weights".
type Quantity string

// The quantities besides components.
const (
	// Device is the GPU's memory in use while training. It is also the quantity of guides that do not state one.
	Device Quantity = "device"
	// AllocatedBytes is the peak of torch.cuda.max_memory_allocated.
	AllocatedBytes Quantity = "allocated"
	// AllocatedAfterPhase is the allocated bytes at the end of a phase, PhasePeak their peak in a phase of the first
	// step, AddedByPhase the bytes that a phase leaves allocated.
	AllocatedAfterPhase Quantity = "allocated after"
	PhasePeak           Quantity = "peak of"
	AddedByPhase        Quantity = "added by"
	// ModelStateBytes is weights, gradients and optimizer state.
	ModelStateBytes Quantity = "model state"
	// GPU is the memory of the GPU to use.
	GPU Quantity = "board"
	// BatchFits means that the batch fits the GPU; it has no number.
	BatchFits Quantity = "fits"
	// Trainable is the share of the parameters that are trained.
	Trainable Quantity = "trainable"
	// TensorBytes is the size of a single tensor.
	TensorBytes Quantity = "tensor"
	// StepTime is the duration of a step, or of all steps over some samples.
	StepTime Quantity = "time"
	// HostBytes is the host memory of training without a GPU; vprof has no value for it.
	HostBytes Quantity = "host memory"
)

var quantities = []Quantity{
	Device, AllocatedBytes, AllocatedAfterPhase, PhasePeak, AddedByPhase, ModelStateBytes, GPU, BatchFits, Trainable,
	TensorBytes, StepTime, HostBytes,
}

// Component returns the component of memory that the quantity names.
func (q Quantity) Component() (planner.Component, bool) {
	for c := range planner.Component(planner.NumComponents) {
		if string(q) == c.String() {
			return c, true
		}
	}
	return 0, false
}

// IsTotal reports whether the quantity is a training step's whole memory, which tables compare with vprof's estimate.
func (q Quantity) IsTotal() bool { return q == Device || q == AllocatedBytes }

// String returns the quantity in words.
func (c Claim) String() string {
	if c.Phase != "" {
		return string(c.Of) + " " + c.Phase
	}
	return string(c.Of)
}

// ValueText formats the estimate as the guide writes it.
func (c Claim) ValueText() string {
	switch {
	case c.Quote != "":
		return c.Quote
	case c.IsDoubted:
		return "may not fit"
	case c.Of == BatchFits:
		return "fits"
	}
	return c.Value.Text
}

// IsAbout reports whether the claim is about a model.
func (c Claim) IsAbout(model string) bool { return slices.Contains(c.Models, model) }

// check returns an error for values that contradict each other.
func (c Claim) check() error {
	_, component := c.Of.Component()
	phased := c.Of == AllocatedAfterPhase || c.Of == PhasePeak || c.Of == AddedByPhase
	switch {
	case len(c.Models) == 0:
		return errors.New("the claim names no model")
	case c.Where == "":
		return errors.New("where: the place in the guide is missing")
	case !component && !slices.Contains(quantities, c.Of):
		return fmt.Errorf("of: unknown quantity %q", c.Of)
	case phased != (c.Phase != ""):
		return fmt.Errorf("of %q with phase %q: quantities of a phase need one, others have none", c.Of, c.Phase)
	case c.Of == BatchFits && (c.Value != Value{} || c.GPU == "" || c.Batch.To == 0):
		return errors.New("a claim that a batch fits needs a GPU and a batch, and has no number")
	case c.IsDoubted && c.Of != BatchFits:
		return errors.New("doubted: only claims that a batch fits may have it")
	case (c.Of == StepTime) != (c.Duration.High > 0) || c.Samples < 0 || c.Samples > 0 && c.Of != StepTime:
		return errors.New("took and samples: a claim of a time needs took, and other claims have neither")
	case (c.Of == StepTime || c.Of == HostBytes) && (c.Value != Value{} || c.Quote == "" || c.Batch.To == 0):
		return errors.New("a time or a host's memory needs a batch and the guide's words")
	case !slices.Contains([]Quantity{BatchFits, StepTime, HostBytes}, c.Of) && c.Value == Value{}:
		return errors.New("the claim has no number")
	case c.Value.Share != (c.Of == Trainable || c.Baseline != nil && c.Value.Share):
		return errors.New("a share needs trained parameters, or a configuration to compare with")
	}
	if c.Baseline != nil {
		if err := c.Baseline.check(); err != nil {
			return fmt.Errorf("than: %w", err)
		}
	}
	return c.Conditions.check()
}

// Read reads a guide. The error names the guide and the claim.
func Read(text []byte) (Guide, error) {
	var g Guide
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&g); err != nil && !errors.Is(err, io.EOF) {
		return Guide{}, fmt.Errorf("guide: %w", err)
	}
	if g.Title == "" || g.Project == "" {
		return Guide{}, errors.New("guide: title or project is missing")
	}
	for i := range g.Claims {
		c := &g.Claims[i]
		if c.Models == nil {
			c.Models = g.Models
		}
		if err := c.check(); err != nil {
			return Guide{}, fmt.Errorf("guide: %s: claim %d, %s: %w", g.Title, i+1, strings.TrimSpace(c.Where), err)
		}
	}
	return g, nil
}

// A file is a guide that is parsed on first use.
type file struct {
	text []byte
	read func() Guide
}

// files are the guides in data. An error in one is a bug, which any test of this package finds.
var files = sync.OnceValue(func() []file {
	entries, err := data.ReadDir("data")
	if err != nil {
		panic(err)
	}
	var all []file
	for _, e := range entries {
		text, err := data.ReadFile("data/" + e.Name())
		if err != nil {
			panic(err)
		}
		all = append(all, file{text, sync.OnceValue(func() Guide {
			g, err := Read(text)
			if err != nil {
				panic(fmt.Errorf("%s: %w", e.Name(), err))
			}
			return g
		})})
	}
	return all
})

// GuidesFor returns the guides whose text contains a model's name. All claims about the model are in them; some may
// have none. Only these guides are read.
func GuidesFor(model string) []Guide {
	var named []Guide
	for _, f := range files() {
		if bytes.Contains(f.text, []byte(model)) {
			named = append(named, f.read())
		}
	}
	return named
}

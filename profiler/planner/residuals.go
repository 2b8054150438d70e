package planner

import (
	_ "embed" // residuals.json, published.json
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Residual describes the errors of replays compared with PyTorch, relative to the replay: the middle 95 % of the
// records of a group are between Low and High. A positive value means that PyTorch needed more.
type Residual struct {
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Records int     `json:"records"`
	// KeptRecords is the number of records that are within the range of the other records.
	KeptRecords int `json:"held"`
	// Group names what the records have in common: "all models on PyTorch 2.15". Apart names the records that were held
	// out together to cross-validate the range: "their model"; empty without cross-validation.
	Group         string `json:"-"`
	SeparateGroup string `json:"-"`
}

// Source names the records on which the range is based, and how many of them were within it when held out.
func (r Residual) Source() string {
	from := fmt.Sprintf("%d reference records of %s; ", r.Records, r.Group)
	if r.SeparateGroup == "" {
		return from + "not counted for others"
	}
	return from + fmt.Sprintf("held in %d of %d with %s left out", r.KeptRecords, r.Records, r.SeparateGroup)
}

// ResidualSubject describes a case, to select the residuals that apply to it.
type ResidualSubject struct {
	Model string
	// Release is the release of PyTorch: "2.15".
	Release string
	// Partial reports whether the model's description lacks something that its steps use.
	Partial bool
	// Modeled reports whether a convolution's workspace is modeled, since there is no recorded answer of cuDNN.
	Modeled bool
	// Compiled reports whether the step was recorded with torch.compile, possibly at other batch sizes.
	Compiled bool
}

// residualFile is the file format of residuals, written by tests in packages accuracy and cli from reference records.
type residualFile struct {
	Schema string          `json:"schema"`
	Source string          `json:"source"`
	Groups []residualGroup `json:"groups"`
}

type residualGroup struct {
	Release   string   `json:"release"`
	Group     string   `json:"group"`
	Apart     string   `json:"apart"`
	Allocated Residual `json:"allocated"`
	Reserved  Residual `json:"reserved"`
}

const residualSchema = "vprof.residuals/v3"

// residualsJSON has the residuals of vprof's own models by PyTorch release; published has other groups.
var (
	//go:embed residuals.json
	residualsJSON []byte
	//go:embed published.json
	publishedJSON []byte
)

// The groups of published.json.
const (
	// modeledGroup are users' models exported by torch.export (docs/lab/models.md), without cuDNN's answers about their
	// convolutions, some of which are three-dimensional. captured have no convolution, or cuDNN's answers about each.
	modeledGroup  = "73 captured models without cuDNN's answers"
	capturedGroup = "41 captured models"
	// compiledSteps are torch.compile records at batch sizes 16 and 40, compared with plans from captures at 8 and 64
	// (docs/lab/compile.md). Some found the autotuning results of others in Inductor's cache.
	compiledSteps = "compiled steps"
	// knownLoopsGroup are steps that others measured on real GPUs, with a known training loop and known releases;
	// reported are such steps of which something is unknown (docs/lab/evidence.md).
	knownLoopsGroup = "others' loops on real GPUs"
	reportedGroup   = "runs that others report"
)

// populationName returns the group in published.json for a model from a file; empty for other models.
func (s ResidualSubject) populationName() string {
	switch scheme, _, _ := strings.Cut(s.Model, ":"); {
	case s.Compiled:
		return compiledSteps
	case scheme == "hf":
		return knownLoopsGroup
	case scheme == "pt2" && s.Modeled:
		return modeledGroup
	case scheme == "pt2":
		return capturedGroup
	}
	return ""
}

// Residuals returns the shipped residuals for a subject: of models from the same kind of file, else of all models on
// its release. A release without records has the residuals of the last earlier release with records.
func Residuals(s ResidualSubject) (allocated, reserved Residual, err error) {
	f, err := shippedResiduals()
	if err != nil {
		return allocated, reserved, err
	}
	return f.residuals(s)
}

// ReportedResiduals returns the residuals of runs that others report and that are not completely known.
func ReportedResiduals() (allocated, reserved Residual, err error) {
	return populationOf(reportedGroup)
}

// Both files are read only once: a search needs the residuals of thousands of cases.
var (
	shippedResiduals   = sync.OnceValues(func() (*residualFile, error) { return readResiduals(residualsJSON) })
	publishedResiduals = sync.OnceValues(func() (*residualFile, error) { return readResiduals(publishedJSON) })
)

// populationOf returns the residuals of a group of published.json.
func populationOf(group string) (allocated, reserved Residual, err error) {
	f, err := publishedResiduals()
	if err != nil {
		return allocated, reserved, err
	}
	i := slices.IndexFunc(f.Groups, func(g residualGroup) bool { return g.Group == group })
	if i < 0 {
		return allocated, reserved, fmt.Errorf("planner: published.json has no residuals of group %s", group)
	}
	return f.Groups[i].Allocated, f.Groups[i].Reserved, nil
}

func readResiduals(data []byte) (*residualFile, error) {
	var f residualFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("planner: residuals: %w", err)
	}
	if f.Schema != residualSchema {
		return nil, fmt.Errorf("planner: residuals: the schema is %q: need %s", f.Schema, residualSchema)
	}
	for i := range f.Groups {
		g := &f.Groups[i]
		name := g.Group
		if g.Release != "" {
			name += " on PyTorch " + g.Release
		}
		for _, r := range []*Residual{&g.Allocated, &g.Reserved} {
			r.Group, r.SeparateGroup = name, g.Apart
		}
	}
	return &f, nil
}

func (f *residualFile) residuals(s ResidualSubject) (allocated, reserved Residual, err error) {
	allocated, reserved, known, err := f.groupOf(s)
	if err == nil && (s.Partial || !known) {
		a, r, missing := populationOf(modeledGroup)
		allocated, reserved, err = allocated.plusIndependent(a), reserved.plusIndependent(r), missing
	}
	return allocated, reserved, err
}

// groupOf returns the residuals of the group of a subject. known reports whether its release has records. Groups are in
// the order of releases.
func (f *residualFile) groupOf(s ResidualSubject) (allocated, reserved Residual, known bool, err error) {
	if name := s.populationName(); name != "" {
		allocated, reserved, err = populationOf(name)
		return allocated, reserved, true, err
	}
	if len(f.Groups) == 0 {
		return allocated, reserved, false, fmt.Errorf("planner: there are no residuals for model %s", s.Model)
	}
	group := f.Groups[0]
	for _, g := range f.Groups {
		if slices.Compare(numbersOf(g.Release), numbersOf(s.Release)) <= 0 {
			group = g
		}
	}
	return group.Allocated, group.Reserved, group.Release == s.Release, nil
}

func numbersOf(release string) []int {
	var numbers []int
	for _, word := range strings.Split(release, ".") {
		n, _ := strconv.Atoi(word) // releases are of package stack, which reads them
		numbers = append(numbers, n)
	}
	return numbers
}

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

// Residual describes how far PyTorch was from our replays, relative to the replay: the middle 95 % of the records of a
// group lie between Low and High. A positive value means that PyTorch needed more.
type Residual struct {
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Records int     `json:"records"`
	// KeptRecords is the number of records within the range of the others.
	KeptRecords int `json:"held"`
	// Group names the common property of the records: "all models on PyTorch 2.15". Apart names the records that were
	// left out together to cross-validate the range: "their model"; empty without cross-validation.
	Group         string `json:"-"`
	SeparateGroup string `json:"-"`
}

// Source names the records that the range comes from, and how many of them lay within when they were left out.
func (r Residual) Source() string {
	from := fmt.Sprintf("%d reference records of %s; ", r.Records, r.Group)
	if r.SeparateGroup == "" {
		return from + "not counted for others"
	}
	return from + fmt.Sprintf("held in %d of %d with %s left out", r.KeptRecords, r.Records, r.SeparateGroup)
}

// ResidualSubject is the kind of case that an estimate is for, by which residuals are selected.
type ResidualSubject struct {
	Model string
	// Release is the release of PyTorch: "2.15".
	Release string
	// Partial reports whether the model's description lacks something that its steps need.
	Partial bool
	// Modeled reports whether the workspace of some convolution is modeled, without an answer of cuDNN.
	Modeled bool
	// Compiled reports whether the step is one of torch.compile that was recorded, perhaps at other batch sizes.
	Compiled bool
}

// residualFile is the file format of residuals. Tests of packages accuracy and cli write them from the records.
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

// residualsJSON has the residuals of vprof's own systems by release of PyTorch, published has them of other groups.
var (
	//go:embed residuals.json
	residualsJSON []byte
	//go:embed published.json
	publishedJSON []byte
)

// The groups of published.json.
const (
	// modeledGroup are other people's models exported by torch.export (docs/lab/models.md), without cuDNN's answers
	// about their convolutions, some of which are three-dimensional. captured have no convolution, or cuDNN's answers
	// about each.
	modeledGroup  = "73 captured models without cuDNN's answers"
	capturedGroup = "41 captured models"
	// compiledSteps are the records of torch.compile at batch sizes 16 and 40 compared to plans of captures at 8 and 64
	// (docs/lab/compile.md). Some of them found tuning results of others in Inductor's cache.
	compiledSteps = "compiled steps"
	// knownLoopsGroup are steps that others measured on real GPUs, with known loop and releases; reported are such
	// steps of which something is unknown (docs/lab/evidence.md).
	knownLoopsGroup = "others' loops on real GPUs"
	reportedGroup   = "runs that others report"
)

// populationName returns the group of published.json for a model from a file; empty for other models.
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

// Residuals returns the shipped residuals of a subject: of models from the same kind of file, else of all models on its
// release. A release without records has the residuals of the last earlier release with records.
func Residuals(s ResidualSubject) (allocated, reserved Residual, err error) {
	f, err := shippedResiduals()
	if err != nil {
		return allocated, reserved, err
	}
	return f.residuals(s)
}

// ReportedResiduals returns the residuals of runs that others report and that are not fully known, in addition to the
// intervals of the same steps.
func ReportedResiduals() (allocated, reserved Residual, err error) {
	return populationOf(reportedGroup)
}

// Both files are read once: a search needs the residuals of thousands of cases.
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
		allocated, reserved, err = allocated.combine(a), reserved.combine(r), missing
	}
	return allocated, reserved, err
}

// groupOf returns the residuals of the group that a subject belongs to. They are known if its release has records.
// Groups are in the order of releases.
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

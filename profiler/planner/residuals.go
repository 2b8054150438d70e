package planner

import (
	_ "embed" // residuals.json
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Residual says how far PyTorch was from our replays, relative to the replay: the middle 95 % of the records of a group
// lie between Low and High. A positive figure means that PyTorch needed more.
type Residual struct {
	Low, High float64
	// Records is how many there were, Group what they had in common: "gpt2 on
	// PyTorch 2.15", or "all models on PyTorch 2.15 (none of my-model)".
	Records int
	Group   string
}

// Subject is what an estimate is of, as far as residuals are told apart.
type Subject struct {
	Model string
	// Release is the release of PyTorch: "2.15".
	Release string
	// Partial says that the model's description lacks something that its steps need.
	Partial bool
	// Modeled says that cuDNN was not asked about some convolution, whose workspace is modeled.
	Modeled bool
	// Compiled says that the step is one of torch.compile that was recorded, perhaps at other batch sizes.
	Compiled bool
}

// population is what is known of models that come from one kind of file: 95 % of what PyTorch needed
// was no further off, reserved bytes no further than that from where perturbed replays end.
type population struct {
	group               string
	records             int
	allocated, reserved [2]float64
}

// modeled are other people's models that torch.export wrote (docs/lab/models.md), of whose convolutions, some of them
// in three dimensions, cuDNN was not asked.
var modeled = population{
	"73 captured models without cuDNN's answers", 335, [2]float64{-.0084, .0063}, [2]float64{-.0335, .0147},
}

// compiledSteps are the records of torch.compile at batch sizes 16 and 40 compared to plans of captures at 8 and 64
// (docs/lab/compile.md), of which some found in Inductor's cache what others had tuned.
var compiledSteps = population{
	"compiled steps", 34, [2]float64{-.0173, .0112}, [2]float64{-.0170, .0538},
}

// populations maps the beginning of a model's name to its population. Captured models have no convolution, or cuDNN's
// answers about each. Values of configurations were measured by others on a T4, an RTX 4080 and an L40S
// (docs/lab/evidence.md).
var populations = map[string]population{
	"pt2": {"41 captured models", 153, [2]float64{-.0038, .0061}, [2]float64{-.0001, .0001}},
	"hf":  {"others' loops on real GPUs", 78, [2]float64{-.0011, .0097}, [2]float64{-.018, .027}},
}

// population returns the population of a model that comes from a file.
func (s Subject) population() (p population, ok bool) {
	if s.Compiled {
		return compiledSteps, true
	}
	scheme, _, _ := strings.Cut(s.Model, ":")
	if p, ok = populations[scheme]; scheme == "pt2" && s.Modeled {
		p = modeled
	}
	return p, ok
}

func (p population) residuals() (allocated, reserved Residual) {
	of := func(r [2]float64) Residual { return Residual{r[0], r[1], p.records, p.group} }
	return of(p.allocated), of(p.reserved)
}

// everything is the group of all records.
const everything = "all models"

// fewRecords is below how many records of its own a model takes the residuals of all models on its release: with fewer
// than 20, the middle 95 % leaves nothing out and the next record would fall outside more often than not.
const fewRecords = 20

// residualFile is how residuals are stored. A test of package accuracy writes it from the reference records.
type residualFile struct {
	Schema string          `json:"schema"`
	Source string          `json:"source"`
	Groups []residualGroup `json:"groups"`
}

type residualGroup struct {
	Release   string     `json:"release"`
	Group     string     `json:"group"`
	Records   int        `json:"records"`
	Allocated [2]float64 `json:"allocated"`
	Reserved  [2]float64 `json:"reserved"`
}

const residualSchema = "vprof.residuals/v2"

//go:embed residuals.json
var shipped []byte

// Residuals returns the shipped residuals of a subject: the residuals of its model if there are enough records of it on
// its release, else of all models on that release. A release without records has the residuals of the last earlier
// release with records.
func Residuals(s Subject) (allocated, reserved Residual, err error) {
	f, err := shippedResiduals()
	if err != nil {
		return allocated, reserved, err
	}
	return f.residuals(s)
}

// shippedResiduals reads the file once: a search needs the residuals of thousands of cases.
var shippedResiduals = sync.OnceValues(func() (*residualFile, error) { return readResiduals(shipped) })

func readResiduals(data []byte) (*residualFile, error) {
	var f residualFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("planner: residuals: %w", err)
	}
	if f.Schema != residualSchema {
		return nil, fmt.Errorf("planner: residuals: schema %q is not %s", f.Schema, residualSchema)
	}
	return &f, nil
}

func (f *residualFile) residuals(s Subject) (allocated, reserved Residual, err error) {
	allocated, reserved, known, err := f.of(s)
	if err == nil && (s.Partial || !known) {
		a, r := modeled.residuals()
		allocated, reserved = allocated.and(a), reserved.and(r)
	}
	return allocated, reserved, err
}

// of returns the residuals of the group that a subject belongs to. They are known if its release has records.
func (f *residualFile) of(s Subject) (allocated, reserved Residual, known bool, err error) {
	if p, ok := s.population(); ok {
		allocated, reserved = p.residuals()
		return allocated, reserved, true, nil
	}
	group, own := f.group(s)
	if group == nil {
		return allocated, reserved, false, fmt.Errorf("planner: residuals: no group for %s", s.Model)
	}
	name := group.Group + " on PyTorch " + group.Release
	switch {
	case group.Group != everything:
	case own == 0:
		name += " (none of " + s.Model + ")"
	default:
		name += fmt.Sprintf(" (%d of %s)", own, s.Model)
	}
	return Residual{group.Allocated[0], group.Allocated[1], group.Records, name},
		Residual{group.Reserved[0], group.Reserved[1], group.Records, name}, group.Release == s.Release, nil
}

// group returns the group of a subject, nil if there is none, and the number of its records of the subject's model.
// Groups are in the order of releases.
func (f *residualFile) group(s Subject) (found *residualGroup, own int) {
	for i := range f.Groups {
		g := &f.Groups[i]
		if g.Group == everything && (found == nil || compareReleases(g.Release, s.Release) <= 0) {
			found, own = g, 0
		}
	}
	if found == nil {
		return nil, 0
	}
	for i := range f.Groups {
		g := &f.Groups[i]
		if g.Group != s.Model || g.Release != found.Release {
			continue
		}
		own = g.Records
		if own >= fewRecords {
			return g, own
		}
	}
	return found, own
}

// compareReleases orders names of releases, "2.9" before "2.11".
func compareReleases(a, b string) int { return slices.Compare(numbersOf(a), numbersOf(b)) }

func numbersOf(release string) []int {
	var numbers []int
	for _, word := range strings.Split(release, ".") {
		n, _ := strconv.Atoi(word) // releases are of package stack, which reads them
		numbers = append(numbers, n)
	}
	return numbers
}

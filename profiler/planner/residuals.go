package planner

import (
	_ "embed" // residuals.json
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Residual says how far PyTorch was from our replays, relative to the replay:
// the middle 95 % of the records of a group lie between Low and High. A
// positive figure means that PyTorch needed more.
type Residual struct {
	Low, High float64
	// Records is how many there were, Group what they had in common: a model,
	// or "all models".
	Records int
	Group   string
}

// everything is the group of all records.
const everything = "all models"

// fewRecords is below how many records of its own a model takes the residuals
// of all models: with fewer than 20, the middle 95 % leaves nothing out and
// the next record would fall outside more often than not.
const fewRecords = 20

// residualFile is how residuals are stored. A test of package bench writes it
// from the reference records.
type residualFile struct {
	Schema string          `json:"schema"`
	Source string          `json:"source"`
	Groups []residualGroup `json:"groups"`
}

type residualGroup struct {
	Group     string     `json:"group"`
	Records   int        `json:"records"`
	Allocated [2]float64 `json:"allocated"`
	Reserved  [2]float64 `json:"reserved"`
}

const residualSchema = "vprof.residuals/v1"

//go:embed residuals.json
var shipped []byte

// Residuals returns the shipped residuals of a model: its own if there are
// enough records of it, those of all models otherwise.
func Residuals(model string) (allocated, reserved Residual, err error) {
	return readResiduals(shipped, model)
}

func readResiduals(data []byte, model string) (allocated, reserved Residual, err error) {
	var f residualFile
	if err := json.Unmarshal(data, &f); err != nil {
		return allocated, reserved, fmt.Errorf("planner: residuals: %w", err)
	}
	if f.Schema != residualSchema {
		return allocated, reserved, fmt.Errorf("planner: residuals: schema %q is not %s", f.Schema, residualSchema)
	}
	at := slices.IndexFunc(f.Groups, func(g residualGroup) bool { return g.Group == model && g.Records >= fewRecords })
	if at < 0 {
		at = slices.IndexFunc(f.Groups, func(g residualGroup) bool { return g.Group == everything })
	}
	if at < 0 {
		return allocated, reserved, fmt.Errorf("planner: residuals: no group for %s", model)
	}
	g := f.Groups[at]
	return Residual{g.Allocated[0], g.Allocated[1], g.Records, g.Group},
		Residual{g.Reserved[0], g.Reserved[1], g.Records, g.Group}, nil
}

// Observation is an estimate of one record beside what PyTorch needed.
type Observation struct {
	Model                                 string
	EstimatedAllocated, EstimatedReserved int64
	ReferenceAllocated, ReferenceReserved int64
}

// EncodeResiduals computes the residuals of observations, by model and over
// all, in the form that [Residuals] reads. Equal input gives equal output.
func EncodeResiduals(source string, seen []Observation) ([]byte, error) {
	allocated, reserved := map[string][]float64{}, map[string][]float64{}
	for _, o := range seen {
		for _, group := range []string{o.Model, everything} {
			allocated[group] = append(allocated[group], residual(o.ReferenceAllocated, o.EstimatedAllocated))
			reserved[group] = append(reserved[group], residual(o.ReferenceReserved, o.EstimatedReserved))
		}
	}
	f := residualFile{Schema: residualSchema, Source: source}
	for group, a := range allocated {
		f.Groups = append(f.Groups, residualGroup{group, len(a), middle95(a), middle95(reserved[group])})
	}
	slices.SortFunc(f.Groups, func(a, b residualGroup) int { return strings.Compare(a.Group, b.Group) })
	data, err := json.MarshalIndent(f, "", " ")
	return append(data, '\n'), err
}

func residual(reference, estimate int64) float64 {
	return float64(reference-estimate) / float64(max(1, estimate))
}

// middle95 is the range that holds the middle 95 % of the values, from the
// 2.5 % to the 97.5 % quantile by the nearest rank, rounded outwards to 1e-6.
func middle95(values []float64) [2]float64 {
	slices.Sort(values)
	n := float64(len(values))
	low := int(math.Floor(0.025 * n))
	high := int(math.Ceil(0.975*n)) - 1
	return [2]float64{math.Floor(values[low]*1e6) / 1e6, math.Ceil(values[high]*1e6) / 1e6}
}

// Package conformal computes by how much predicted intervals must be widened to contain the measurements, and how often
// such intervals contain measurements of other groups. It is split-conformal prediction (Lei and others, JASA 2018).
// Coverage is counted by leaving out whole groups, since records of one model or source resemble each other.
package conformal

import (
	"encoding/json"
	"math"
	"slices"
)

// A Miss is the distance of a measurement from a predicted interval, as a share of the estimate: Low is negative below
// the interval, High positive above it, both are zero inside.
type Miss struct{ Low, High float64 }

// MissOf returns the miss of a measured value with a rounding error, for an estimate with the interval low to high.
func MissOf(value, rounding, low, estimate, high int64) Miss {
	of := float64(max(1, estimate))
	return Miss{min(0, float64(value+rounding-low)/of), max(0, float64(value-rounding-high)/of)}
}

// A Margin widens intervals: by Low downwards (zero or negative) and by High upwards, as shares of the estimate.
// Records is the number of records that it was computed from. Held is the number of these that lie within the margin of
// all other groups.
type Margin struct {
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Records int     `json:"records"`
	Held    int     `json:"held"`
}

// Schema is the name and version of the file format for groups.
const Schema = "vprof.residuals/v3"

// A Group has the margins of records with a common property. Release is their PyTorch release, empty if there are
// several. Apart names the property by which records were left out together to count Held, such as the model; it is
// empty if Held was not counted.
type Group struct {
	Release   string `json:"release"`
	Group     string `json:"group"`
	Apart     string `json:"apart"`
	Allocated Margin `json:"allocated"`
	Reserved  Margin `json:"reserved"`
}

// Encode returns a file of groups, as package planner reads it. Source describes the records.
func Encode(source string, groups []Group) ([]byte, error) {
	data, err := json.MarshalIndent(struct {
		Schema string  `json:"schema"`
		Source string  `json:"source"`
		Groups []Group `json:"groups"`
	}{Schema, source, groups}, "", " ")
	return append(data, '\n'), err
}

// Middle95 and Middle90 are the shares of records outside the margin on each side, if there are enough records.
const (
	Middle95 = 0.025
	Middle90 = 0.05
)

// Of returns the margin of groups of misses that leaves a share of the records outside on each side.
func Of(outside float64, groups [][]Miss) Margin {
	all := slices.Concat(groups...)
	m := rangeOf(outside, all)
	m.Records = len(all)
	for i, group := range groups {
		others := rangeOf(outside, slices.Concat(slices.Delete(slices.Clone(groups), i, i+1)...))
		for _, miss := range group {
			if others.Low <= miss.Low && miss.High <= others.High {
				m.Held++
			}
		}
	}
	return m
}

// rangeOf returns the conformal quantiles of misses, rounded outwards to 1e-6.
func rangeOf(outside float64, all []Miss) (m Margin) {
	rank := int(math.Ceil((1 - outside) * float64(len(all)+1)))
	if rank = min(rank, len(all)); rank == 0 {
		return m
	}
	var low, high []float64
	for _, miss := range all {
		low, high = append(low, miss.Low), append(high, miss.High)
	}
	slices.Sort(low)
	slices.Sort(high)
	m.Low, m.High = math.Floor(low[len(all)-rank]*1e6)/1e6, math.Ceil(high[rank-1]*1e6)/1e6
	return m
}

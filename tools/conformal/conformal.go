// Package conformal computes by how much predictions must be widened to hold what was measured, and how often such
// ranges hold measurements that they were not computed from. It is split-conformal prediction (Lei and others, JASA
// 2018) whose counts leave out whole groups: records of a model or a source resemble each other.
package conformal

import (
	"encoding/json"
	"math"
	"slices"
)

// A Miss is by how much a measurement lies outside a prediction, relative to it: Low is negative below it, High
// positive above it.
type Miss struct{ Low, High float64 }

// MissOf returns the miss of a value, known to a rounding, where low to high was predicted around an estimate.
func MissOf(value, rounding, low, estimate, high int64) Miss {
	of := float64(max(1, estimate))
	return Miss{min(0, float64(value+rounding-low)/of), max(0, float64(value-rounding-high)/of)}
}

// A Margin widens predictions downwards (Low is not positive) and upwards. Records counts what it was computed from,
// and Held how many of them the margin of all other groups holds.
type Margin struct {
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Records int     `json:"records"`
	Held    int     `json:"held"`
}

// Schema names the form of the files that hold groups.
const Schema = "vprof.residuals/v3"

// A Group has the margins of records that have something in common. Release is their PyTorch's, empty if they differ.
// Apart names what was left out together with each record when held intervals were counted, such as its model; empty if
// they were not counted.
type Group struct {
	Release   string `json:"release"`
	Group     string `json:"group"`
	Apart     string `json:"apart"`
	Allocated Margin `json:"allocated"`
	Reserved  Margin `json:"reserved"`
}

// Encode returns groups from a source as the file that package planner reads.
func Encode(source string, groups []Group) ([]byte, error) {
	data, err := json.MarshalIndent(struct {
		Schema string  `json:"schema"`
		Source string  `json:"source"`
		Groups []Group `json:"groups"`
	}{Schema, source, groups}, "", " ")
	return append(data, '\n'), err
}

// Middle95 and Middle90 are the shares of the records that margins leave out on each side, if there are enough.
const (
	Middle95 = 0.025
	Middle90 = 0.05
)

// Of returns the margin of groups of misses that leaves out a share on each side.
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

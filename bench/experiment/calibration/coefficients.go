package calibration

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/planner/coefficients"
)

// numbers are all coefficients of an entry by name.
func numbers(e *coefficients.Entry) map[string]coefficients.Number {
	all := maps.Clone(e.Memory)
	if all == nil {
		all = map[string]coefficients.Number{}
	}
	maps.Copy(all, speeds(e))
	return all
}

// speeds are the efficiencies of an entry by name: "efficiency:matmul", or "synthetic
// efficiency:matmul" of kernels that stand for PyTorch's.
func speeds(e *coefficients.Entry) map[string]coefficients.Number {
	all := map[string]coefficients.Number{}
	for prefix, of := range map[string]map[string]coefficients.Number{
		"efficiency:":           e.Efficiency,
		"synthetic efficiency:": e.Synthetic,
	} {
		for name, n := range of {
			all[prefix+name] = n
		}
	}
	return all
}

func coefficientOf(name string, n coefficients.Number) *report.Coefficient {
	return &report.Coefficient{Name: name, Value: n.Value, StdErr: n.StdErr, Source: n.Source}
}

// ShowCoefficients lists the coefficients of a file.
func ShowCoefficients(f *coefficients.File) *report.Coefficients {
	out := &report.Coefficients{Schema: report.CoefficientsSchema, Rows: []report.CoefficientRow{}}
	for i := range f.Entries {
		e := &f.Entries[i]
		all := numbers(e)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			out.Rows = append(out.Rows, report.CoefficientRow{
				Entry: e.Name, Name: name,
				Now: coefficientOf(name, all[name]),
			})
		}
		kind := "measured"
		if e.Simulated {
			kind = "SIMULATED"
		}
		out.Notes = append(out.Notes, fmt.Sprintf("%s: %s, %s; largest error %.2f %% (was %.2f %%).",
			e.Name, e.Stack, kind, 100*e.Errors.After.Max, 100*e.Errors.Before.Max))
	}
	return out
}

// DiffCoefficients compares the coefficients of two files, entry by entry.
func DiffCoefficients(old, now *coefficients.File) *report.Coefficients {
	out := &report.Coefficients{Schema: report.CoefficientsSchema, Rows: []report.CoefficientRow{}, Compared: true}
	before, after := map[string]map[string]coefficients.Number{}, map[string]map[string]coefficients.Number{}
	names := map[string]bool{}
	for to, f := range map[*map[string]map[string]coefficients.Number]*coefficients.File{&before: old, &after: now} {
		for i := range f.Entries {
			(*to)[f.Entries[i].Name] = numbers(&f.Entries[i])
			names[f.Entries[i].Name] = true
		}
	}
	for _, entry := range slices.Sorted(maps.Keys(names)) {
		terms := maps.Clone(before[entry])
		if terms == nil {
			terms = map[string]coefficients.Number{}
		}
		maps.Copy(terms, after[entry])
		for _, name := range slices.Sorted(maps.Keys(terms)) {
			row := report.CoefficientRow{Entry: entry, Name: name}
			o, had := before[entry][name]
			n, has := after[entry][name]
			if had {
				row.Old = coefficientOf(name, o)
			}
			if has {
				row.Now = coefficientOf(name, n)
			}
			row.Significant = had && has && math.Abs(n.Value-o.Value) > 1.96*math.Hypot(n.StdErr, o.StdErr)
			out.Rows = append(out.Rows, row)
		}
	}
	return out
}

package calibration

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/planner/coefficients"
)

func coefficientNumbers(e *coefficients.Entry) map[string]coefficients.Number {
	all := speedNumbers(e)
	maps.Copy(all, e.Memory)
	return all
}

func numbersByEntry(f *coefficients.File) map[string]map[string]coefficients.Number {
	all := map[string]map[string]coefficients.Number{}
	for i := range f.Entries {
		all[f.Entries[i].Name] = coefficientNumbers(&f.Entries[i])
	}
	if f.Host != nil {
		all[hostEntry] = map[string]coefficients.Number{hostEntry: *f.Host}
	}
	return all
}

// hostEntry is the name of the host's coefficient, and of the entry under which it is listed.
const hostEntry = "host"

// speedNumbers returns the efficiencies of an entry by name: "efficiency:matmul", or "synthetic efficiency:matmul" for
// vprof's synthetic kernels.
func speedNumbers(e *coefficients.Entry) map[string]coefficients.Number {
	all := map[string]coefficients.Number{}
	for prefix, of := range map[string]map[string]coefficients.Number{
		"speed:":                e.Relative,
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
		all := coefficientNumbers(e)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			out.Rows = append(out.Rows, report.CoefficientRow{
				Entry: e.Name, Name: name,
				New: coefficientOf(name, all[name]),
			})
		}
		kind := "measured"
		if e.Simulated {
			kind = "SIMULATED"
		}
		if len(e.Memory) == 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("%s: %s, %s; times alone.", e.Name, e.Stack, kind))
			continue
		}
		out.Notes = append(out.Notes, fmt.Sprintf("%s: %s, %s; largest error %.2f %% (was %.2f %%).",
			e.Name, e.Stack, kind, 100*e.Errors.After.Max, 100*e.Errors.Before.Max))
	}
	if f.Host != nil {
		out.Rows = append(out.Rows,
			report.CoefficientRow{Entry: hostEntry, Name: hostEntry, New: coefficientOf(hostEntry, *f.Host)})
	}
	return out
}

// DiffCoefficients compares the coefficients of two files, entry by entry.
func DiffCoefficients(old, now *coefficients.File) *report.Coefficients {
	out := &report.Coefficients{Schema: report.CoefficientsSchema, Rows: []report.CoefficientRow{}, Compared: true}
	before, after := numbersByEntry(old), numbersByEntry(now)
	for _, entry := range lists.Keys(before, after) {
		for _, name := range lists.Keys(before[entry], after[entry]) {
			row := report.CoefficientRow{Entry: entry, Name: name}
			o, had := before[entry][name]
			n, has := after[entry][name]
			if had {
				row.Old = coefficientOf(name, o)
			}
			if has {
				row.New = coefficientOf(name, n)
			}
			row.Significant = had && has && math.Abs(n.Value-o.Value) > 1.96*math.Hypot(n.StdErr, o.StdErr)
			out.Rows = append(out.Rows, row)
		}
	}
	return out
}

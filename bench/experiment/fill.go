package experiment

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// report begins a report of the lab's case.
func (l *Lab) report(kind report.Kind, gpus ...device.GPU) *report.Report {
	r := &report.Report{
		Schema: report.Schema, Kind: kind,
		Case:    report.CaseOf(l.model, l.c),
		Devices: []report.Device{}, Coefficients: []report.Coefficient{}, Points: []report.Point{},
	}
	for _, gpu := range gpus {
		r.Devices = append(r.Devices, report.Device{
			Name: simName(gpu), GPU: gpu.Name, Title: gpu.Product, Simulated: true, Memory: gpu.Memory, Context: gpu.Context,
		})
	}
	return r
}

// caveats are those of the case, as warnings.
func (l *Lab) caveats() []report.Warning {
	var all []report.Warning
	for _, c := range l.model.Caveats(l.c) {
		all = append(all, report.Warning{What: c})
	}
	return all
}

// unsupported says which boards PyTorch does not run on, one warning for each
// reason.
func unsupported(gpus []device.GPU) []report.Warning {
	var reasons []string
	names := map[string][]string{}
	for _, gpu := range gpus {
		if why := gpu.Unsupported(); why != "" {
			if names[why] == nil {
				reasons = append(reasons, why)
			}
			names[why] = append(names[why], gpu.Name)
		}
	}
	var all []report.Warning
	for _, why := range reasons {
		all = append(all, report.Warning{
			What: strings.Join(names[why], ", ") + ": " + why,
			Hint: "what is said of such a board holds only for a PyTorch that was built for it",
		})
	}
	return all
}

// describe notes what a planner works with: the coefficients, and the element
// counts that its recordings have shown. Coefficients that a report has
// already, because boards share them, are not repeated.
func (l *Lab) describe(r *report.Report, p *planner.Planner) {
	for _, c := range p.Coefficients.List() {
		c := report.Coefficient(c)
		if !slices.Contains(r.Coefficients, c) {
			r.Coefficients = append(r.Coefficients, c)
		}
	}
	r.Parameters = parametersOf(l.counts)
}

func parametersOf(c models.Counts) report.Parameters {
	return report.Parameters{Total: c.Total, Trainable: c.Trainable, Criterion: c.Criterion, Buffers: c.Buffers}
}

func estimateOf(e planner.Estimate) *report.Estimate {
	out := &report.Estimate{
		Allocated: intervalOf(e.Allocated), Reserved: intervalOf(e.Reserved), Device: intervalOf(e.Device),
		PeakPhase: e.PeakPhase, Verdict: report.Verdict(e.Verdict.String()), Interpolated: e.Interpolated,
	}
	for i, bytes := range e.Components {
		out.Components = append(out.Components, report.Component{Name: planner.Component(i).String(), Bytes: bytes})
	}
	return out
}

func intervalOf(i planner.Interval) report.Interval {
	return report.Interval{Bytes: i.Value, Low: i.Low, High: i.High}
}

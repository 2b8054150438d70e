package experiment

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// report begins a report of the case.
func (s *Setup) report(kind report.Kind, gpus ...device.GPU) *report.Report {
	r := &report.Report{
		Schema: report.Schema, Kind: kind,
		Case:    report.CaseOf(s.model, s.c),
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
func (s *Setup) caveats() []report.Warning {
	var all []report.Warning
	for _, c := range s.model.Caveats(s.c) {
		all = append(all, report.Warning{What: c})
	}
	return all
}

// Unsupported says which boards PyTorch does not run on, one warning for each
// reason.
func Unsupported(gpus []device.GPU) []report.Warning {
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

// describe notes what estimates on a board go by: the coefficients, and the element
// counts of the model. Coefficients that a report has already, because boards share
// them, are not repeated.
func (s *Setup) describe(r *report.Report, gpu device.GPU, rec *models.Recording) error {
	k, err := s.coefficients(gpu)
	if err != nil {
		return err
	}
	for _, c := range k.List() {
		c := report.Coefficient(c)
		if !slices.Contains(r.Coefficients, c) {
			r.Coefficients = append(r.Coefficients, c)
		}
	}
	r.Parameters = parametersOf(rec.Counts)
	return nil
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

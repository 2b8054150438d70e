package step

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// Report returns a new report of the case on simulated GPUs.
func (s *Setup) Report(kind report.Kind, gpus ...device.GPU) *report.Report {
	return &report.Report{
		Schema: report.Schema, Kind: kind,
		Case:    report.CaseOf(s.model, s.c),
		Devices: lists.Map(gpus, DeviceOf), Coefficients: []report.Coefficient{}, Points: []report.Point{},
	}
}

// Warnings returns the model's caveats about this case at some batch sizes, as warnings.
func (s *Setup) Warnings(batches ...int) []report.Warning {
	return Caveats(s.model, s.cases(batches)...)
}

// Caveats returns the distinct caveats of a model about some cases, as warnings.
func Caveats(m models.Model, cases ...models.Case) []report.Warning {
	var all []report.Warning
	for _, c := range cases {
		for _, what := range m.Caveats(c) {
			all = lists.Union(all, report.Warning{What: what})
		}
	}
	return all
}

// Unsupported returns warnings about GPUs that the cases' releases of PyTorch do not support, one for each reason.
func Unsupported(gpus []device.GPU, cases ...models.Case) []report.Warning {
	var releases []string
	for _, c := range cases {
		releases = lists.Union(releases, c.ReleaseName())
	}
	var reasons []string
	names := map[string][]string{}
	bf16 := slices.ContainsFunc(cases, func(c models.Case) bool { return c.AMP == "bf16" || c.Weights == "bf16" })
	var all []report.Warning
	for _, gpu := range gpus {
		if bf16 && gpu.EmulatesBF16() {
			all = append(all, report.Warning{
				What: fmt.Sprintf("%s: PyTorch emulates bfloat16 on compute capability %v", gpu.Name, gpu.Capability),
				Hint: "it is slow there, and some kernels refuse it; fp16 is what the GPU computes in",
			})
		}
	}
	for _, release := range releases {
		s, err := stack.Lookup(release)
		if err != nil {
			continue // set by the user
		}
		for _, gpu := range gpus {
			if why := gpu.Unsupported(release, s.Versions().CUDA); why != "" {
				reasons, names[why] = lists.Union(reasons, why), append(names[why], gpu.Name)
			}
		}
	}
	for _, why := range reasons {
		all = append(all, report.Warning{
			What: strings.Join(names[why], ", ") + ": " + why,
			Hint: "what is said of such a GPU holds only for a PyTorch that was built for it",
		})
	}
	return all
}

// Describe adds the basis of a result's estimates on a GPU to a report: coefficients, and the model's element counts.
func (s *Setup) Describe(r *report.Report, gpu device.GPU, of *Result) error {
	k, err := s.Coefficients(gpu, of.hasModeledWorkspaces(), of.trial.Batch)
	if err != nil {
		return err
	}
	for _, c := range k.List() {
		c := report.Coefficient(c)
		if slices.Contains(r.Coefficients, c) {
			continue
		}
		r.Coefficients = append(r.Coefficients, c)
		if strings.HasSuffix(c.Source, coefficients.SimulatedSource) {
			r.Warnings = append(r.Warnings, report.Warning{
				What: c.Name + " was learned from a simulated device or driver, which says nothing of a real GPU",
				Hint: "calibrate on the GPU, or go without (--coefficients none)",
			})
		}
	}
	r.Parameters = ParametersOf(of.Counts)
	r.Warnings = lists.Union(r.Warnings, externalWarnings(of)...)
	return nil
}

// externalWarnings returns warnings about memory that a step needs outside the caching allocator.
func externalWarnings(r *Result) []report.Warning {
	var all []report.Warning
	if n := r.Facts.Managed; n > 0 {
		all = append(all, report.Warning{
			What: fmt.Sprintf("%s of optimizer state are in managed memory: not in allocated or reserved bytes, and "+
				"on the device as far as there is room", bytesize.Format(n)),
		})
	}
	if n := r.Facts.HostSaved; n > 0 {
		all = append(all, report.Warning{
			What: fmt.Sprintf("batch %d keeps %s in the host's memory for backward", r.trial.Batch, bytesize.Format(n)),
			Hint: "it is pinned if the project says so, and every process of a machine needs as much",
		})
	}
	return all
}

// WorkspacesOf counts a step's convolutions by the source of their workspace size; nil if cuDNN answered none.
func WorkspacesOf(facts trace.Facts) *report.Workspaces {
	if !facts.Answered || len(facts.Convolutions) == 0 {
		return nil
	}
	w := &report.Workspaces{}
	for _, c := range facts.Convolutions {
		if c.Asked {
			w.FromCuDNN++
		} else {
			w.Modeled++
		}
	}
	return w
}

// ParametersOf returns the element counts of a model as reports show them.
func ParametersOf(c models.Counts) report.Parameters {
	return report.Parameters{Total: c.Total, Trainable: c.Trainable, Criterion: c.Criterion, Buffers: c.Buffers}
}

// rareComponents are shown only if they are not zero: components of CUDA graphs, paged optimizers and several GPUs.
var rareComponents = []planner.Component{planner.Component(program.GraphPools), planner.Paged, planner.Communication}

// EstimateOf returns an estimate as reports show it.
func EstimateOf(e planner.Estimate) *report.Estimate {
	out := &report.Estimate{
		Allocated: IntervalOf(e.Allocated), Reserved: IntervalOf(e.Reserved), Device: IntervalOf(e.Device),
		Host: hostMemoryReport(e.Host), PeakPhase: e.PeakPhase,
		Verdict: report.Verdict(e.Verdict), Interpolated: e.Interpolated, Source: e.Source,
	}
	for i, bytes := range e.Components {
		c := planner.Component(i)
		if bytes == 0 && slices.Contains(rareComponents, c) {
			continue
		}
		out.Components = append(out.Components, report.Component{Name: planner.Component(i).String(), Bytes: bytes})
	}
	return out
}

// IntervalOf returns a number of bytes with its interval, as reports show it.
func IntervalOf(i planner.Interval) report.Interval {
	return report.Interval{Bytes: i.Value, Low: i.Low, High: i.High}
}

// DeviceOf returns a simulated GPU as reports show it.
func DeviceOf(gpu device.GPU) report.Device {
	return report.Device{
		Name: SimName(gpu), GPU: gpu.Name, Title: gpu.Product, Simulated: true, Memory: gpu.Memory,
		Context: gpu.Context,
	}
}

// DeviceOn returns a device as reports show it. A real device has its driver and the measured size of its context.
func DeviceOn(d device.Device) report.Device {
	gpu := d.GPU()
	out := report.Device{
		Name: d.Name(), GPU: gpu.Name, Title: gpu.Product, Simulated: d.Simulated(),
		Memory: gpu.Memory, Context: gpu.Context,
	}
	if o, ok := d.(device.Observer); ok {
		out.Context = o.Baseline().Context
	}
	if real, ok := d.(device.DriverReporter); ok {
		out.Driver, out.CUDA = real.Driver().Release, real.Driver().CUDA
		out.Capability, out.SMs, out.ThreadsPerSM, out.MHz = gpu.Capability.String(), gpu.SMs, gpu.ThreadsPerSM,
			gpu.BoostMHz
	}
	if known, ok := d.(device.IdentityReporter); ok {
		out.UUID, out.MIG = known.Identity().UUID, known.Identity().MIG
	}
	return out
}

// SimName returns the name of a simulated GPU: "sim:rtx4090".
func SimName(gpu device.GPU) string { return "sim:" + gpu.Name }

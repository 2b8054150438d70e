package step

import (
	"slices"
	"time"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

func measuredRun(m *replay.Measurement, p *program.Program, d device.Device, samples int) *report.Run {
	b := m.Baseline
	free := d.GPU().Memory - b.Total()
	if now, err := d.AvailableBytes(); err == nil && m.OOM != nil {
		free = max(min(free, now), m.OOM.Cause.Reserved) // others may have taken the rest meanwhile
	}
	out := runReport(m.Run, free)
	out.Simulated = d.Simulated()
	out.Device = max(m.Device, b.Total()) - b.Others
	out.Context, out.Kernels, out.OtherProcessBytes = b.Context, b.Kernels, b.Others
	out.Granularity = m.Granularity
	if m.OOM == nil && m.Device > 0 {
		out.Unexplained = out.Device - b.Context - b.Kernels - m.Max.Reserved - m.Granularity
	}
	_, observed := d.(device.Observer)
	out.OthersAssumed = observed && !b.OthersKnown
	out.Process = max(m.Process, 0)
	out.Shared = len(m.Neighbors) > 0
	out.Verified = m.Verified
	if len(m.Times) == 0 || !hasKernels(p) {
		return out
	}
	for i := range out.Phases {
		times := lists.Map(m.Times, func(t []time.Duration) time.Duration { return t[i] })
		out.Phases[i].Seconds = median(times).Seconds()
	}
	steps := m.StepTimes()
	if step := median(steps); step > 0 {
		out.Step = &report.Timing{
			Seconds: step.Seconds(), Least: slices.Min(steps).Seconds(), Most: slices.Max(steps).Seconds(),
			SamplesPerSecond: float64(samples) / step.Seconds(),
			SMMHz:            m.Clocks.SM, MemoryMHz: m.Clocks.Memory, Slowdowns: m.Clocks.Slowdowns,
		}
	}
	return out
}

// hasKernels reports whether a program includes the kernels of its forward passes. A step recorded from a script or
// from torch.compile has only allocations, and the optimizer's time alone is not the time of a step.
func hasKernels(p *program.Program) bool {
	launches := false
	for _, in := range p.Instructions {
		switch {
		case in.Kind == program.Launch:
			launches = true
		case in.Kind == program.MarkPhase && p.Phases[in.Arg].Name == "forward":
			return launches
		case in.Kind == program.MarkPhase:
			launches = false
		}
	}
	return true
}

// median returns the median duration; of an even number, the lower of the middle two.
func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[(len(times)-1)/2]
}

// runReport converts a run for a report. free is the number of bytes that segments may use on the GPU.
func runReport(run *replay.Run, free int64) *report.Run {
	out := &report.Run{
		Fits:      run.OOM == nil,
		Requested: run.Max.Requested, Allocated: run.Max.Allocated, Reserved: run.Max.Reserved,
		Retries: run.Stats.NumAllocRetries, PeakPhase: run.Peak.Phase.String(),
	}
	run.Peak.Allocated.EachVisible(func(c program.Class, bytes int64) {
		out.Classes = append(out.Classes, report.Component{Name: c.String(), Bytes: bytes})
	})
	for _, p := range run.Phases {
		out.Phases = append(out.Phases, report.Phase{
			Step: p.Step + 1, Name: p.Name, Allocated: p.End.Allocated, PeakAllocated: p.Max.Allocated,
			Reserved: p.End.Reserved, PeakReserved: p.Max.Reserved,
		})
	}
	if o := run.OOM; o != nil {
		out.OOM = &report.OOM{
			Requested: o.Requested, Free: free - o.Cause.Reserved,
			Class: o.Class.String(), Op: o.Site.Op, Node: o.Site.Node, Module: o.Site.Module, Line: o.Site.Where,
			Phase: o.Phase.String(),
		}
	}
	return out
}

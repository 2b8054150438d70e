package script

import (
	"slices"

	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
)

// smokeMoments are the points of training at which memory may run out, named as in smoke tests, in order.
var smokeMoments = []struct {
	name, note string
	of         func(p report.Phase) bool
}{
	{"set-up", "until the last optimizer is made", func(p report.Phase) bool { return p.Step == 0 }},
	{"forward", "the first", func(p report.Phase) bool { return p.Step == 1 && p.Name == "forward" }},
	{"first optimizer step", "which makes its state", func(p report.Phase) bool {
		return p.Step == 1 && p.Name == "optimizer"
	}},
	{trainingStep, "the highest of all steps", isTraining},
	{"validation", "a module that is trained is in evaluation mode", func(p report.Phase) bool {
		return p.Name == "evaluation"
	}},
	{"checkpoint save", "", func(p report.Phase) bool { return p.Name == "saving" }},
}

const trainingStep = "training step"

// isTraining reports whether a phase is training, not set-up, evaluation or saving.
func isTraining(p report.Phase) bool {
	return p.Step > 0 && slices.Contains([]string{"forward", "backward", "optimizer"}, p.Name)
}

// Smoke returns the run of a command, with report r, as a smoke test: whether memory at each point of training is
// within the budget. Points that the run did not reach are left out. batch is the value of {batch} in the command; 1 if
// it has none.
func Smoke(r *report.Report, budget planner.Budget, batch int) *report.Smoke {
	ran := r.Devices[0]
	budget.Memory = ran.Memory
	s := &report.Smoke{
		Schema: report.SmokeSchema, Case: r.Case, Batch: batch, Device: ran, Command: r.Script.Command,
		Budget: report.Budget{Margin: budget.Margin}, Limit: budget.Limit(), Safe: true, Warnings: r.Warnings,
	}
	if len(r.Points) == 0 {
		return s
	}
	run := r.Points[0].Run
	for _, m := range smokeMoments {
		c := report.Check{Name: m.name, Note: m.note, Simulated: run.Simulated, Fits: true}
		for _, p := range run.Phases {
			if !m.of(p) {
				continue
			}
			c.Allocated, c.Reserved = max(c.Allocated, p.PeakAllocated), max(c.Reserved, p.PeakReserved)
			at := program.Phase{Step: p.Step - 1, Name: p.Name}.String()
			if run.OOM != nil && !run.Fits && run.OOM.Phase == at {
				c.OOM, c.Fits = run.OOM, false
			}
		}
		if c.Allocated == 0 {
			continue
		}
		c.Device = c.Reserved + run.Context
		c.Need = deviceNeed(budget, run.Context, c.Reserved)
		judge.ApplyMeasuredRun(budget, &c)
		s.Safe = s.Safe && c.Safe
		if m.name == trainingStep {
			s.Components = components(run, c)
		}
		s.Checks = append(s.Checks, c)
	}
	if g := r.Script.Growth; g != nil {
		c := report.Check{
			Name: "later steps", Note: g.String(), Simulated: run.Simulated, Allocated: run.Allocated + g.RestBytes,
			Reserved: run.Reserved + g.RestBytes, Device: ran.Memory, Need: ran.Memory,
			Reason: report.Reason(planner.OverMemoryShare),
		}
		if !g.Fills() {
			c.Fits, c.Device, c.Need = true, c.Reserved+run.Context, deviceNeed(budget, run.Context, c.Reserved)
			judge.ApplyMeasuredRun(budget, &c)
		}
		s.Safe = s.Safe && c.Safe
		s.Checks = append(s.Checks, c)
	}
	if !s.Safe {
		s.Reason = s.WorstCheck().Reason
	}
	if seen := r.Script.Coverage; seen != nil && seen.Why != "" {
		s.Warnings = append(s.Warnings, report.Warning{What: r.Script.CoverageText()})
	}
	return s
}

// deviceNeed returns the device bytes that must be within a budget: reserved bytes and the context's upper end.
func deviceNeed(b planner.Budget, context, reserved int64) int64 {
	return b.Need(planner.EstimateOfRun(device.GPU{Context: context}, reserved))
}

// components returns the breakdown of a training step at its peak. Tensor classes are known only at the peak of the
// whole run; for another step, the allocated bytes are one component.
func components(run *report.Run, step report.Check) []report.Component {
	all := slices.Clone(run.Classes)
	if step.Allocated != run.Allocated {
		all = []report.Component{{Name: "allocated", Bytes: step.Allocated}}
	}
	return append(all,
		report.Component{Name: "cached", Bytes: step.Reserved - step.Allocated},
		report.Component{Name: "cuda context", Bytes: step.Device - step.Reserved})
}

package script

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
)

// resultNames maps the kinds of ends to their names in reports.
var resultNames = map[Kind]string{
	Fits: "fits", OutOfMemory: "out of memory", Failed: "failed", TimedOut: "timeout",
	NoCUDA: "no cuda", NoGPU: "no gpu", Untrained: "no training",
}

// Report returns the outcome as a report. Its peaks are PyTorch's own counts.
func (o *Outcome) Report(ctx context.Context) (*report.Report, error) {
	c := models.Case{Model: o.scriptName(), GPUs: o.GPUs, Stack: o.libraries()}
	if release, err := stack.Lookup(o.Torch().Version); err == nil {
		c.Torch = release.Release()
	}
	r := &report.Report{
		Schema: report.Schema, Kind: report.Sweep,
		Case:         report.Case{Case: c, BatchUnit: "sample"},
		Devices:      []report.Device{step.DeviceOf(o.GPU)},
		Coefficients: []report.Coefficient{}, Points: []report.Point{},
		Script: o.scriptReport(), Warnings: o.warnings(),
	}
	if o.Device != "" {
		r.Devices[0].Name, r.Devices[0].Simulated = o.Device, false
	}
	if o.Program == nil {
		return r, nil
	}
	run, err := o.runReport(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Script.Growth = o.growth(run); o.Kind() == Fits {
		budget := planner.Budget{Memory: o.GPU.Memory, Margin: planner.DefaultMargin}
		need := deviceNeed(budget, run.Context, run.Reserved+r.Script.Growth.Later())
		r.Script.Unsafe = report.Reason(budget.Judge(need))
	}
	held := step.LiveAtPeak(o.Program)
	r.Script.Lines = held.Lines(5)
	if all := r.Script.Lines; len(all) > 0 && 2*all[0].Bytes > held.Bytes() {
		r.Script.CallersBelow = held.CallersBelow(all[0].Name, 8)
	}
	if r.Script.Growth == nil && o.Kind() == Fits {
		if r.Script.Remedies, err = o.remedies(ctx, run, held); err != nil {
			return nil, err
		}
	}
	tuned, err := step.PeaksWithoutTuning(ctx, o.Program, step.WithUnlimitedMemory(o.GPU), o.allocator())
	r.Points = append(r.Points, report.Point{
		Batch: 1, Device: r.Devices[0].Name, Run: run, Buffers: held.CompiledBuffers(step.MaxBuffers), Tuned: tuned,
	})
	return r, err
}

// warnings returns warnings about aspects of the run that its values do not show.
func (o *Outcome) warnings() []report.Warning {
	var all []report.Warning
	warn := func(hint, format string, args ...any) {
		all = append(all, report.Warning{What: fmt.Sprintf(format, args...), Hint: hint})
	}
	known := stack.Releases()
	release, err := stack.Lookup(o.Torch().Version)
	if err == nil && !slices.Contains(known, release.Release()) {
		warn("library functions that it alone calls do nothing; replays for other GPUs go by the nearest release",
			"PyTorch %s is not among the releases that vprof knows, %s to %s", o.Torch().Version, known[0],
			known[len(known)-1])
	}
	for _, setting := range o.paths("allocator") {
		warn("allocated bytes are the same, reserved bytes may differ",
			"%s: the script ran with PyTorch's own caching allocator instead", setting)
	}
	for _, e := range o.eventsOfRank("retried") {
		warn("retry after the block", "%s", e.Text)
	}
	if o.Sizes.Unknown > 0 {
		warn("the peaks lack them", "the sizes of %d workspaces of libraries are unknown", o.Sizes.Unknown)
	}
	if o.EndEvent().Benchmark && o.Device == "" {
		const tries = "torch.backends.cudnn.benchmark is on: PyTorch tries several algorithms of each convolution; "
		switch {
		case o.Sizes.Modeled > 0:
			warn("a GPU may reserve more", tries+"where cuDNN was not asked, the workspace of one is counted")
		case o.Sizes.FromCuDNN > 0:
			warn("later steps may take other workspaces on a GPU", tries+
				"all their workspaces are counted, and the one that cuDNN proposes first is taken for the fastest")
		}
	}
	if o.EndEvent().OOMs > 0 && o.Kind() != OutOfMemory {
		warn("", "the script ran out of memory %d times and caught the errors", o.EndEvent().OOMs)
	}
	return all
}

// scriptName returns the name of the script in the command, without its folder.
func (o *Outcome) scriptName() string {
	at := slices.IndexFunc(o.Args, func(arg string) bool { return strings.HasSuffix(arg, ".py") })
	return filepath.Base(o.Args[max(0, at)])
}

// libraries returns the releases of the libraries that the script imported, except releases that are not numeric.
func (o *Outcome) libraries() stack.Libraries {
	all := stack.Libraries{}
	for name, release := range o.EndEvent().Releases {
		if one, err := stack.ParseLibraries(name + "=" + release); err == nil {
			all[name] = one[name]
		}
	}
	return all
}

func (o *Outcome) scriptReport() *report.Script {
	torch, end, failure := o.Torch(), o.EndEvent(), o.exception()
	s := &report.Script{
		Command: o.Args, Torch: torch.Version, CUDA: torch.CUDA, Result: resultNames[o.Kind()], ExitCode: o.ExitCode,
		Steps: append([]int{}, o.Steps()...), Optimizers: append([]string{}, end.Optimizers...), Ended: end.Reason,
		Seconds: o.Seconds, Host: o.HostPeak, Lines: []report.Component{},
		DivertedFiles: append([]string{}, o.DivertedFiles()...), SparedFiles: o.paths("kept"),
		LeftFolders: o.LeftFolders, UncomputedLines: o.UncomputedLines(),
		TunedBefore: end.TunedBefore, Coverage: o.coverage(), Replaced: o.Replaced(),
		UnrunCode: end.Unseen, OtherGPUs: end.Elsewhere,
	}
	if failure.Kind != "ImportError" && failure.Kind != "ModuleNotFoundError" { // of which the libraries are no cause
		s.NoOpCalls = o.NoOpCalls
	}
	if failure.Kind != "" {
		s.Error, s.Traceback = failure.Kind+": "+failure.Text, failure.Traceback
	}
	if o.Sizes != (report.Workspaces{}) {
		s.Workspaces = &o.Sizes
	}
	if end.PrivatePools > 0 {
		s.Private = &report.PrivatePools{Count: end.PrivatePools, Bytes: end.PrivateBytes}
	}
	if o.GPUs > 1 {
		s.GPUs, s.Rank = o.GPUs, o.Rank
	}
	if len(end.Elsewhere) > 0 {
		s.GPU = end.GPU
	}
	return s
}

// coverage returns the parts of training that the run covers; nil if it ended by itself or the user chose the steps.
func (o *Outcome) coverage() *report.Coverage {
	if o.Longest == 0 || !slices.Contains([]string{"steps", "shortened"}, o.EndEvent().Reason) {
		return nil
	}
	seen := &report.Coverage{Why: "no DataLoader of PyTorch gave the batches"}
	for _, e := range o.eventsOfRank("lengths") {
		seen.Batches, seen.Samples, seen.Read, seen.Seconds, seen.Why = e.Batches, e.Samples, e.Read, e.Seconds, e.Why
	}
	for _, e := range o.eventsOfRank("longer") {
		seen.Longer = append(seen.Longer, report.LargerBatch{Shape: e.Shape, Before: e.Before})
	}
	return seen
}

// mostSteps is the number of steps beyond which growth does not matter: few trainings have more.
const mostSteps = 1_000_000

// LeastMemory returns the smallest GPU memory on which a run fits, to a hundredth. o ran out of memory on a smaller
// GPU; device is the device bytes of its recording on a larger one, which is replayed.
func (o *Outcome) LeastMemory(ctx context.Context, device int64) (int64, error) {
	gpu := o.GPU
	for few := gpu.Memory; device-few > device/100; {
		gpu.Memory = few + (device-few)/2
		run, err := step.Simulate(ctx, o.Program, gpu, o.allocator(), 0)
		if err != nil {
			return 0, err
		}
		if run.OOM == nil {
			device = gpu.Memory
		} else {
			few = gpu.Memory
		}
	}
	return device, nil
}

// growth returns the growth of memory per step, and the step at which the GPU is full; nil without much growth.
func (o *Outcome) growth(run *report.Run) *report.StepGrowth {
	last := max(o.EndEvent().Batches, run.Phases[len(run.Phases)-1].Step)
	// Use memory left by an earlier step than the last: after the last step, loop variables still hold memory.
	kept := step.KeptAfterStep(o.Program, last-2)
	for made := last - 3; made > 0 && kept.Bytes() == 0; made-- {
		kept = step.KeptAfterStep(o.Program, made)
	}
	each := o.EndEvent().Growth
	if o.EndEvent().Uneven {
		each = 0
		for made := 1; made <= last-2; made++ { // the first step makes the optimizer's state
			kept = step.KeptAfterStep(o.Program, made)
			each += kept.Bytes() / int64(last-2)
		}
	}
	if each <= 0 {
		return nil
	}
	room := o.GPU.Memory - run.Context - run.Allocated // the allocator frees what it has cached
	g := &report.StepGrowth{
		Bytes: each, FullBatchSteps: last + int(max(0, room)/each), Lines: kept.Lines(3), Through: o.EndEvent().Through,
	}
	if total := o.EndEvent().Total; total > 0 && total <= g.FullBatchSteps {
		g.Steps, g.RestBytes = total, each*int64(max(0, total-last))
		if later := o.EndEvent().Later; later > 0 {
			g.RestBytes = max(0, later-run.Allocated)
		}
		g.RestBytes = min(g.RestBytes, max(0, o.GPU.Memory-run.Device)) // it fits, since cached memory is freed
	}
	if g.FullBatchSteps > mostSteps && 100*max(g.RestBytes, each*int64(g.Steps)) < run.Allocated {
		return nil
	}
	return g
}

// runReport returns the report of the run on the GPU. The breakdown of the peak comes from a replay of the recording.
func (o *Outcome) runReport(ctx context.Context, r *report.Report) (*report.Run, error) {
	end := o.EndEvent()
	out := &report.Run{
		Simulated: o.Device == "", Fits: o.Kind() != OutOfMemory,
		Requested: end.Requested, Allocated: end.Allocated, Reserved: end.Reserved,
		Device: end.Reserved + o.GPU.Context, Context: o.GPU.Context,
		Retries: end.Retries, Phases: o.mergedPhases(),
	}
	out.Step = o.medianTiming()
	if o.Device != "" {
		out.OtherProcessBytes, out.Device = o.Others, end.Reserved
		for _, e := range o.marks() {
			out.Device = max(out.Device, e.Used-o.Others)
		}
		out.Context = out.Device - end.Reserved
	}
	peak := highestPhase(out.Phases)
	out.PeakPhase = program.Phase{Step: peak.Step - 1, Name: peak.Name}.String()
	if f := o.OOM; f != nil && o.EndEvent().OOMs > 0 {
		out.OOM = &report.OOM{
			Requested: f.Want, Free: f.Free, Class: program.Temporaries.String(), Op: "allocation",
			Line: f.Where, Phase: program.Phase{Step: f.Step, Name: f.Phase}.String(),
		}
	}
	replayed, err := step.Simulate(ctx, o.Program, step.WithUnlimitedMemory(o.GPU), o.allocator(), 0)
	if err != nil {
		return nil, fmt.Errorf("replaying the recording: %w", err)
	}
	breakdown := replayed.Peak.Allocated
	breakdown.EachVisible(func(c program.Class, bytes int64) {
		out.Classes = append(out.Classes, report.Component{Name: c.String(), Bytes: bytes})
	})
	// Failed trials of cudnn.benchmark are not in the replay.
	rest := out.Allocated - breakdown.Total()
	if max(rest, -rest) > out.Allocated/100 && !end.Benchmark {
		r.Warnings = append(r.Warnings, report.Warning{
			What: fmt.Sprintf("replayed, the recording needs %d bytes where PyTorch counted %d: the difference counts "+
				"as temporaries", breakdown.Total(), out.Allocated),
		})
	}
	out.Classes[program.Temporaries].Bytes += rest
	return out, nil
}

// highestPhase returns the phase with the highest peak; the first if several have it.
func highestPhase(all []report.Phase) report.Phase {
	return slices.MaxFunc(all, func(a, b report.Phase) int { return cmp.Compare(a.PeakAllocated, b.PeakAllocated) })
}

// leastTimed is the smallest number of timed steps whose median is reported.
const leastTimed = 10

// medianTiming returns the median of the timed steps; nil if there are too few.
func (o *Outcome) medianTiming() *report.Timing {
	all := o.eventsOfRank("timed")
	if len(all) == 0 || len(all[0].Times) < leastTimed {
		return nil
	}
	times, loading := slices.Sorted(slices.Values(all[0].Times)), slices.Sorted(slices.Values(all[0].Loading))
	middle := (len(times) - 1) / 2
	return &report.Timing{
		Seconds: times[middle], Least: times[0], Most: times[len(times)-1],
		Loading: loading[min(middle, len(loading)-1)],
	}
}

// allocator returns the settings of PyTorch's allocator in the run.
func (o *Outcome) allocator() allocator.Config {
	conf, err := allocator.ParseConfig(o.allocConf())
	if err != nil { // PyTorch has taken it, so what is not known has no effect here
		return allocator.DefaultConfig()
	}
	return conf
}

// mergedPhases returns the phases in order. Phases of a step with the same name are merged.
func (o *Outcome) mergedPhases() []report.Phase {
	var all []report.Phase
	for _, e := range o.marks() {
		i := slices.IndexFunc(all, func(p report.Phase) bool { return p.Step == e.Step+1 && p.Name == e.Phase })
		if i < 0 {
			i = len(all)
			all = append(all, report.Phase{Step: e.Step + 1, Name: e.Phase})
		}
		p := &all[i]
		p.Allocated, p.Reserved = e.Allocated, e.Reserved
		p.PeakAllocated, p.PeakReserved = max(p.PeakAllocated, e.PeakAllocated), max(p.PeakReserved, e.PeakReserved)
	}
	return all
}

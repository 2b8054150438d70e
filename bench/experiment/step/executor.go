package step

import (
	"context"
	"errors"
	"fmt"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// Executor runs trials, possibly in another process. It is safe for concurrent use, except for trials on a device.
type Executor interface {
	// Try runs a trial. The error is a [*models.CaseError], or a [*RefusedError] if PyTorch would raise an error.
	Try(ctx context.Context, t Trial) (*Result, error)
}

// Local runs trials in this process.
type Local struct {
	// Models holds the models of trials that were made in another process.
	Models *models.Registry
	// Device runs the trials that name it; nil if no trial does.
	Device device.Device
}

// Try runs a trial in this process, for [Executor].
func (l Local) Try(ctx context.Context, t Trial) (*Result, error) {
	if err := l.prepare(ctx, &t); err != nil {
		return nil, err
	}
	return l.result(ctx, t)
}

// result replays the recording of a trial on the trial's GPU.
func (l Local) result(ctx context.Context, t Trial) (*Result, error) {
	rec := t.recording
	r := &Result{
		Counts: rec.Counts, Facts: rec.Facts, Steps: rec.Steps, ValidationStep: rec.Validation,
		LargestWeight: largestWeight(rec.Program), trial: t,
	}
	var err error
	if r.Loads, err = t.kernelLoads(ctx); err != nil {
		return nil, err
	}
	p := rec.Program
	if t.isRecordedStep() {
		r.Buffers = LiveAtPeak(p).CompiledBuffers(MaxBuffers)
		if r.Tuned, err = PeaksWithoutTuning(ctx, p, WithUnlimitedMemory(t.GPU), t.setup.conf); err != nil {
			return nil, err
		}
	}
	if t.Replay.TrainingOnly && rec.Validation > 0 {
		p = untilStep(p, rec.Validation)
	}
	if t.isRecordedStep() && t.setup.model.Reordered != nil && !t.Replay.NominalMemory {
		if r.Reordered, err = t.replayReordered(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case t.Replay.Device != "":
		err = l.measure(ctx, p, r)
	default:
		err = simulate(ctx, p, r)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// isRecordedStep reports whether the trial's step is a torch.compile step recorded with PyTorch.
func (t *Trial) isRecordedStep() bool {
	c := t.setup.c
	c.Batch = t.Batch
	return c.Compile && t.setup.model.NotRecordedReason(c) == ""
}

// replayReordered returns the peaks of [Result.Reordered].
func (t *Trial) replayReordered(ctx context.Context) (*report.Peaks, error) {
	c := t.setup.c
	c.Batch = t.Batch
	rec, err := t.setup.RecordCase(ctx, c, t.GPU, models.Options{Steps: t.recording.Steps, Reordered: true})
	if rec == nil || err != nil {
		return nil, err
	}
	defer rec.Discard()
	return replayPeaks(ctx, rec.Program, WithUnlimitedMemory(t.GPU), t.setup.conf)
}

// kernelLoads returns the work of a step for each GPU whose time is estimated. A step recorded with torch.compile has
// its kernels in a separate record; without one, the eager step's work is used.
func (t *Trial) kernelLoads(ctx context.Context) (loads []steptime.Load, err error) {
	if len(t.Timed) == 0 {
		return nil, nil
	}
	rec, c := t.recording, t.setup.c
	c.Batch = t.Batch
	var near, far *program.Program
	var share float64
	recorded := t.isRecordedStep()
	if recorded {
		near, far, share = t.setup.model.Kernels(c)
	}
	if recorded && near == nil {
		c.Compile = false
		if rec, err = t.setup.RecordCase(ctx, c, t.GPU, models.Options{Steps: rec.Steps}); err != nil {
			return nil, err
		}
		defer rec.Discard()
	}
	for _, gpu := range t.Timed {
		load := steptime.KernelLoad(rec.Program, gpu, steadyStep)
		if n := float64(c.Accumulate); near != nil {
			load = load.Plus(steptime.CompiledLoad(near, gpu), n*(1-share))
			load = load.Plus(steptime.CompiledLoad(far, gpu), n*share)
		}
		load.Stretch, load.Compiled = rec.Stretch, t.setup.c.Compile && near == nil
		if load.IsKnown() {
			load.Host = hostSeconds(c, rec.Facts)
		}
		loads = append(loads, load)
	}
	return loads, nil
}

// prepare completes a trial that another process made, with its case and its recording.
func (l Local) prepare(ctx context.Context, t *Trial) (err error) {
	if t.setup == nil {
		if l.Models == nil {
			return errors.New("the trial cannot run in this process, which has no list of models; this is a bug of " +
				"vprof (please report it)")
		}
		if t.setup, err = NewFromReport(l.Models, t.Case, Evidence{}); err != nil {
			return err
		}
	}
	if t.recording == nil || t.recording.Program == nil {
		t.recording, err = t.Record(ctx)
	}
	return err
}

// steadyStep is the first step whose work equals that of all later steps. Step 0 also allocates the optimizer's state.
const steadyStep = 1

// untilStep returns the part of a program before the first instruction of a step.
func untilStep(p *program.Program, step int) *program.Program {
	short := *p
	for i, in := range p.Instructions {
		if in.Kind == program.MarkPhase && p.Phases[in.Arg].Step < step {
			short.Instructions = p.Instructions[:i+1]
		}
	}
	return &short
}

// WithUnlimitedMemory returns a GPU with more memory than any step needs.
func WithUnlimitedMemory(gpu device.GPU) device.GPU {
	gpu.Memory = unlimitedMemory
	return gpu
}

// unlimitedMemory is the memory of such a GPU, in bytes.
const unlimitedMemory = 1 << 46

// simulate replays a program on a simulated GPU by the options of the result's trial.
func simulate(ctx context.Context, p *program.Program, r *Result) error {
	t, conf, gpu := &r.trial, r.trial.setup.conf, r.trial.GPU
	conf.Expandable = conf.Expandable || t.Replay.Expandable
	if !t.Replay.StopAtLimit {
		gpu, conf = WithUnlimitedMemory(gpu), t.unlimitedAllocator()
	}
	var err error
	if run := t.simulation; !t.Replay.OmitUnperturbedRun {
		whole := !t.Replay.TrainingOnly && t.recording.Validation > 0
		if run == nil || whole || t.Replay.StopAtLimit || t.Replay.Expandable {
			run, err = Simulate(ctx, p, gpu, conf, t.Replay.OtherProcessBytes)
		}
		if err != nil {
			return err
		}
		r.Run, r.Device = run.Run, run.Device
	}
	if t.Replay.Spill {
		room := t.GPU.Memory - t.GPU.Context - t.Replay.OtherProcessBytes
		if r.Spill, err = replay.MeasureSpill(ctx, p, conf, room, gpu.Rising, steadyStep); err != nil {
			return err
		}
	}
	if t.Replay.StopAtLimit || t.Replay.NominalMemory {
		return nil
	}
	excess := cudnn.MaxExcess(int(gpu.Capability))
	r.Spread, err = replay.MeasureSpread(ctx, p, conf, !t.setup.model.HasFixedSizes, gpu.Rising, excess)
	return err
}

// measure replays a program on the device by the options of the result's trial.
func (l Local) measure(ctx context.Context, p *program.Program, r *Result) error {
	how, conf := r.trial.Replay, r.trial.setup.conf
	if l.Device == nil || l.Device.Name() != how.Device {
		return fmt.Errorf("device %s is not available in this process; use sim:NAME, or cuda:N on a machine with a GPU",
			how.Device)
	}
	m, err := replay.Measure(ctx, l.Device, p,
		replay.Conditions{Config: &conf, WarmUp: how.WarmUp, Repeat: how.Repeat, Verify: how.Verify})
	if err != nil {
		return err
	}
	run := measuredRun(m, p, l.Device, r.trial.setup.c.SamplesPerStep(r.trial.Batch))
	r.Run, r.Device = m.Run, run.Device
	r.Measured = &Measurement{Run: run, Timed: len(m.Times), TimesVaried: m.MemoryVaried, Neighbors: m.Neighbors}
	return nil
}

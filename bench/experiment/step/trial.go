package step

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
	"github.com/vprof/vprof/profiler/trace"
)

// A Trial is the smallest job: record the training steps of a case for a GPU and replay them once. It is plain data,
// and its JSON is complete: the case includes the description of a user's model.
type Trial struct {
	Case  report.Case `json:"case"`
	Batch int         `json:"batch"`
	// GPU is the GPU to record for. It is also simulated unless the replay is on a device.
	GPU device.GPU `json:"board"`
	// Validation is the size of a validation batch after the training steps, for projects that validate; zero for none.
	Validation int `json:"validation,omitempty"`
	// Steps is the number of training steps to record. Zero is [models.Case.Steps], and -1 the number after which the
	// allocator's cache stops growing without a memory limit.
	Steps int `json:"steps,omitempty"`
	// MemoryCap ends the trial with [trace.ErrCeiling] once more than this many bytes are alive; zero is no limit. The
	// GPU's memory size does not end a recording.
	MemoryCap int64         `json:"ceiling,omitempty"`
	Replay    ReplayOptions `json:"replay,omitzero"`
	// Timed are the GPUs for which [Result.Loads] is computed.
	Timed []device.GPU `json:"timed,omitempty"`

	// setup and recording are the completed case and its recording if the trial was made in this process. Otherwise the
	// executor makes them from the other fields.
	setup     *Setup
	recording *models.Recording
	// simulation is the replay that ended the recording because the allocator's cache stopped growing; nil if none did.
	simulation *Simulation
	// shared is the recording's program if several GPUs share it ([CachedExecutor]); else nil.
	shared *sharedProgram
}

// ReplayOptions selects how the recorded steps are replayed. The zero value simulates a GPU with more memory than any
// step needs, since an estimate must continue beyond the GPU's memory size.
type ReplayOptions struct {
	// StopAtLimit limits the memory to the GPU's size less Others, the bytes of other processes.
	StopAtLimit       bool  `json:"within,omitempty"`
	OtherProcessBytes int64 `json:"others,omitempty"`
	// TrainingOnly leaves out the validation batch.
	TrainingOnly bool `json:"training,omitempty"`
	// Expandable turns on expandable segments, whatever the case sets.
	Expandable bool `json:"expandable,omitempty"`
	// NominalMemory leaves out the perturbed replays, so [Result.Spread] is empty.
	NominalMemory bool `json:"nominal,omitempty"`
	// OmitUnperturbedRun leaves out the unperturbed replay, so [Result.Run] is nil.
	OmitUnperturbedRun bool `json:"omit,omitempty"`
	// Spill requests [Result.Spill].
	Spill bool `json:"spill,omitempty"`
	// Device is the name of the executor's device to replay on, with the device's memory and a kernel for every
	// operator; empty to simulate. WarmUp, Repeat and Verify are as in [replay.Conditions].
	Device string `json:"device,omitempty"`
	WarmUp int    `json:"warm_up,omitempty"`
	Repeat int    `json:"repeat,omitempty"`
	Verify bool   `json:"verify,omitempty"`
}

// Key identifies a trial by the SHA-256 of its JSON, in hexadecimal. Equal keys give equal results, unless measured.
func (t Trial) Key() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // a trial is plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// MaxMicroBatches is the largest number of micro-batches to record in a step if a trial is about memory and not about
// time. Micro-batches after the second have the same allocations, but the caching allocator may have its free blocks in
// another order by then: of 147 cases of 15 models, three reserved up to 7 % more or less with the third, and with the
// spread the ends of intervals were up to 19 % apart.
const MaxMicroBatches = 16

// Record records the steps of a trial that was made in this process, for its GPU and others. If a replay ended the
// recording, the trial stores it in simulation.
func (t *Trial) Record(ctx context.Context, others ...device.GPU) (*models.Recording, error) {
	c := t.setup.c
	c.Batch = t.Batch
	pipelined := c.Strategy != nil && c.Strategy.Name == models.PP // whose stages hold several at a time
	if len(t.Timed) == 0 && t.Replay.Device == "" && !pipelined {
		c.Accumulate = min(c.Accumulate, MaxMicroBatches)
	}
	o := models.Options{
		Validation: t.Validation, Steps: max(t.Steps, 0), Ceiling: t.MemoryCap, Others: lists.Map(others, RecorderGPU),
	}
	if t.Steps == stepsUntilSteady {
		conf := (&Trial{setup: t.setup}).unlimitedAllocator() // one recording, however it is replayed
		o.NeedsMoreSteps = func(p *program.Program) bool {
			run, err := Simulate(ctx, p, WithUnlimitedMemory(t.GPU), conf, 0)
			t.simulation = run
			return err == nil && run.OOM == nil && len(run.Phases) > 0 &&
				cacheGrewIn(run.Run, lastStep(run.Run)) && lastStep(run.Run) < maxSteps-1
		}
	}
	return t.setup.RecordCase(ctx, c, t.GPU, o)
}

// stepsUntilSteady is the [Trial.Steps] that ends the recording when the allocator's cache stops growing.
const stepsUntilSteady = -1

// unlimitedAllocator returns the allocator settings for a replay without a memory limit.
func (t *Trial) unlimitedAllocator() allocator.Config {
	conf := t.setup.conf
	conf.Expandable = conf.Expandable || t.Replay.Expandable
	conf.MemoryFraction, conf.GarbageCollection = 1, 0
	return conf
}

// A Result is the result of running a trial.
type Result struct {
	Counts models.Counts `json:"counts"`
	Facts  trace.Facts   `json:"facts"`
	// Steps is the number of recorded training steps.
	Steps int `json:"steps"`
	// ValidationStep is the step number of the validation batch's phases; zero if there is none.
	ValidationStep int `json:"validation_step,omitempty"`
	// LargestWeight is the size of the largest parameter, in bytes.
	LargestWeight int64 `json:"largest_weight"`
	// Buffers are Inductor's largest buffers at the peak of a recorded torch.compile step.
	Buffers []report.Buffer `json:"buffers,omitempty"`
	// Tuned are the peaks of a recorded torch.compile step if Inductor finds its autotuning results in its cache; nil
	// if it autotunes nothing.
	Tuned *report.Peaks `json:"tuned,omitempty"`
	// Reordered are the peaks of a recorded torch.compile step with the other possible order of its kernels, which is
	// one of the perturbed replays; nil if there is only one order.
	Reordered *report.Peaks `json:"reordered,omitempty"`
	// Loads are the work of the steady step (which all later steps repeat) on each of the timed GPUs.
	Loads []steptime.Load `json:"loads,omitempty"`
	// Run is the replay; nil if the trial omits it. On a device it is the first replay, whose memory is measured.
	Run *replay.Run `json:"run,omitempty"`
	// Spread is the variation of reserved bytes over perturbed replays without a memory limit.
	Spread replay.PeakSpread `json:"spread,omitzero"`
	// Spill is the host memory that the steps use if the driver allocates host memory once the GPU is full.
	Spill replay.Spill `json:"spilled,omitzero"`
	// Device is the peak of used GPU memory, without other processes, in bytes.
	Device int64 `json:"device"`
	// Measured is the measurement on a device; nil if the GPU was simulated.
	Measured *Measurement `json:"measured,omitempty"`

	trial Trial
}

// A Measurement is the result of a trial's replays on a device.
type Measurement struct {
	Run *report.Run `json:"run"`
	// Timed is the number of replays that were timed.
	Timed int `json:"timed,omitempty"`
	// TimesVaried reports whether a later replay used another amount of memory than the first.
	TimesVaried bool `json:"varied,omitempty"`
	// Neighbors are other processes that were seen on the device.
	Neighbors []device.Neighbor `json:"neighbors,omitempty"`
}

// LastStep returns the peak of allocated bytes in the last training step.
func (r *Result) LastStep() int64 {
	most := int64(0)
	for _, p := range r.Run.Phases {
		if p.Step == r.Run.Phases[len(r.Run.Phases)-1].Step {
			most = max(most, p.Max.Allocated)
		}
	}
	return most
}

// Discard frees the recording. Trials returned by [Result.ReplayTrial] must then record again.
func (r *Result) Discard() {
	if r.trial.shared != nil {
		r.trial.shared, r.trial.recording = nil, nil
	}
	if r.trial.recording != nil {
		r.trial.recording.Discard()
	}
}

// AdoptRecording uses the recording of another result of the same steps for further trials.
func (r *Result) AdoptRecording(other *Result) {
	if other.trial.recording != nil {
		r.trial.recording, r.trial.shared = other.trial.recording, other.trial.shared
	}
}

// ReplayTrial returns a trial that replays the result's recording with other options, without recording again.
func (r *Result) ReplayTrial(how ReplayOptions) Trial {
	t := r.trial
	t.Replay, t.Timed = how, nil
	return t
}

// WithoutEvaluation reports whether only training steps were replayed, without the evaluation after them.
func (r *Result) WithoutEvaluation() bool { return r.trial.Replay.TrainingOnly }

// Sample returns the peak of the run as a sample for the planner.
func (r *Result) Sample() planner.Sample {
	s := planner.Sample{
		Batch: r.trial.Batch, Classes: r.Run.Peak.Allocated, Reserved: r.Run.Max.Reserved,
		Segments: r.Run.Stats.Segment[allocator.AllPools].Current, PeakPhase: r.Run.Peak.Phase.String(),
	}
	s.ManagedBytes, s.HasModeledWorkspaces, s.Host = r.Facts.Managed, r.hasModeledWorkspaces(), r.hostNeed()
	if r.Spread.High > 0 {
		s.Below, s.Above = max(0, s.Reserved-r.Spread.Low), max(0, r.Spread.High-s.Reserved)
		s.Less = max(0, s.Allocated()-r.Spread.OtherOrder)
		s.More = max(0, r.Spread.OtherOrder-s.Allocated(), r.Spread.Larger-s.Allocated())
	}
	if other := r.Reordered; other != nil {
		s.Less, s.More = max(s.Less, s.Allocated()-other.Allocated), max(s.More, other.Allocated-s.Allocated())
		s.Below, s.Above = max(s.Below, s.Reserved-other.Reserved), max(s.Above, other.Reserved-s.Reserved)
	}
	return s
}

// hasModeledWorkspaces reports whether cuDNN has no recorded answer about some convolution of the steps.
func (r *Result) hasModeledWorkspaces() bool {
	return slices.ContainsFunc(r.Facts.Convolutions, func(c trace.Convolution) bool { return !c.Asked })
}

// Report converts the run for a report.
func (r *Result) Report() *report.Run {
	if r.Measured != nil {
		return r.Measured.Run
	}
	out := runReport(r.Run, r.trial.GPU.Memory-r.trial.GPU.Context-r.trial.Replay.OtherProcessBytes)
	out.Simulated, out.Device = true, r.Device
	return out
}

// largestWeight returns the size of the largest parameter of a program, in bytes.
func largestWeight(p *program.Program) (most int64) {
	for _, b := range p.Buffers {
		if b.Class == program.Weights {
			most = max(most, b.Bytes)
		}
	}
	return most
}

// Package smoke tests before training whether a case is safe on a GPU, at every point
// of training at which memory may run out.
package smoke

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/replay"
)

// Test is the input of [Run].
type Test struct {
	Model models.Model
	// Case is what is trained, at its batch size.
	Case models.Case
	GPU  device.GPU
	// Budget is how much of the GPU may be filled; its Memory is taken from the
	// GPU.
	Budget planner.Budget
	// Others is the number of bytes that other processes hold on the GPU.
	Others int64
	step.Evidence
	// Device, if not nil, is the GPU itself, where every check is played.
	Device device.Device
	// Alone says that the user named the stage: later stages of training are shown and not judged.
	Alone bool
	// Validation is the batch size of validation; zero is the project's, or
	// else that of training.
	Validation int
	// Longest are settings of the longest sample, nil if all are alike.
	Longest models.Settings
	// Lengths is the distribution of the lengths of the data set's samples, nil if all are
	// alike. Epochs over them are replayed, on a simulated GPU even if there is a device.
	Lengths *epoch.Lengths
	// Progress is told how far work on lengths is.
	Progress progress.Func
}

// Run replays the training step of a case and looks at the moments at which
// training runs out of memory: in the order of a training run, with those that
// only come after hours last. If not all are within the budget, it says which
// batch would be. A case that PyTorch would refuse is an error.
func Run(ctx context.Context, t Test) (*report.Smoke, error) {
	setup, err := step.New(t.Model, t.Case, t.Evidence)
	if err != nil {
		return nil, err
	}
	budget, err := setup.Budget(t.Budget, t.GPU, t.Others)
	if err != nil {
		return nil, err
	}
	s := &report.Smoke{
		Schema: report.SmokeSchema, Case: report.CaseOf(t.Model, setup.Case()), Batch: setup.Case().Batch,
		Device: step.DeviceOf(t.GPU),
		Budget: report.Budget{Margin: t.Budget.Margin, Risk: t.Budget.Risk, Others: t.Others},
		Limit:  budget.Limit(), Safe: true,
	}
	m := &checks{test: t, setup: setup, gpu: t.GPU, budget: budget, smoke: s, replayed: map[models.Key]*caseReplay{}}
	s.Warnings = append(setup.Warnings(), step.Unsupported([]device.GPU{t.GPU}, setup.Case())...)
	if t.Device != nil {
		m.setup = setup.On(t.Device)
		s.Device = step.DeviceOn(t.Device)
		s.Warnings = slices.Concat(s.Warnings, step.Shared(t.Device), m.neighbors.Warnings(t.Device))
	}
	if err := m.epochs(ctx); err != nil {
		return nil, err
	}
	for _, look := range []func(context.Context) error{m.training, m.later, m.longest} {
		if err := look(ctx); err != nil {
			return nil, err
		}
	}
	if m.epoch != nil {
		s.Checks = append(s.Checks, *m.epoch)
	}
	for _, check := range s.Checks {
		s.Safe = s.Safe && (check.Safe || check.Aside)
	}
	if err := m.host(ctx); err != nil {
		return nil, err
	}
	if err := m.smaller(ctx); err != nil || s.Safe {
		return s, err
	}
	if s.Reason == "" {
		s.Reason = s.Worst().Reason
	}
	s.LargestBatch, err = m.largest(ctx)
	return s, err
}

// checks is a smoke test in progress.
type checks struct {
	test   Test
	setup  *step.Setup
	gpu    device.GPU
	budget planner.Budget
	smoke  *report.Smoke
	// replayed are the cases that were replayed.
	replayed map[models.Key]*caseReplay
	// epoch is the check of epochs over samples of different lengths, nil for none, and
	// whole the case with samples as long as may be.
	epoch     *report.Check
	whole     *step.Setup
	neighbors step.Neighborhood
	// refused are the stages that PyTorch or the model refuses in this case.
	refused []string
}

// caseReplay is a case that was replayed: training steps alone, and with validation after them.
type caseReplay struct {
	*step.Course
	training, with *replayed
}

// replayCase replays a case at its batch size, once.
func (m *checks) replayCase(ctx context.Context, c models.Case) (*caseReplay, error) {
	key := c.Key()
	if r := m.replayed[key]; r != nil {
		return r, nil
	}
	t := m.setup.For(c).Trial(m.gpu, c.Batch)
	if d := m.test.Device; d != nil {
		t.Replay.Device = d.Name()
	}
	course, err := m.setup.For(c).Course(ctx, t, m.test.Validation)
	if err != nil {
		return nil, err
	}
	if err := m.setup.Perturb(ctx, course); err != nil {
		return nil, err
	}
	r := &caseReplay{Course: course}
	if r.training, err = m.onGPU(ctx, course.Training, true); err != nil {
		return nil, err
	}
	if r.with = r.training; course.With != course.Training {
		if r.with, err = m.onGPU(ctx, course.With, false); err != nil {
			return nil, err
		}
	}
	if key == m.setup.Case().Key() {
		m.smoke.Workspaces = step.WorkspacesOf(r.With.Facts)
	}
	m.replayed[key] = r
	return r, nil
}

// estimate returns the memory in use at a point of a run as an estimate.
func (m *checks) estimate(r *step.Result, u replay.Usage) (planner.Estimate, error) {
	return m.setup.EstimateAt(m.gpu, r, u)
}

// moment is a moment of a run.
type moment func(*replay.Run) replay.PhaseUsage

// peakOf and endOf are moments of a phase, whole is the peak of all.
func peakOf(step int, name string) moment {
	return func(r *replay.Run) replay.PhaseUsage { return r.PeakOf(step, name) }
}

func endOf(step int, name string) moment {
	return func(r *replay.Run) replay.PhaseUsage { return r.EndOf(step, name) }
}

func whole(r *replay.Run) replay.PhaseUsage { return r.Whole() }

// add appends a check of the memory in use at a point of a run.
func (m *checks) add(name, note string, t *replayed, of moment) error {
	at := of(t.Run)
	if t.Measured != nil {
		m.smoke.Checks = append(m.smoke.Checks, m.measuredCheck(name, note, t, at))
		return nil
	}
	e, err := m.estimate(t.Result, at.Usage)
	if err != nil {
		return err
	}
	need := m.budget.Need(e)
	why := m.budget.Why(e)
	check := report.Check{
		Name: name, Note: note, Simulated: true, Allocated: e.Allocated.Value, Reserved: e.Reserved.Value,
		Device: e.Device.Value,
		Need:   need, Safe: why == "", Reason: report.Reason(why),
		Fits: e.Device.Value-e.Paged.Value <= m.budget.Memory,
	}
	t.ended(&check, of)
	m.smoke.Checks = append(m.smoke.Checks, check)
	return nil
}

// training checks the first steps: loading the model, the first forward pass, the first
// optimizer step, and the step with the highest peak.
func (m *checks) training(ctx context.Context) error {
	r, err := m.replayCase(ctx, m.setup.Case())
	if err != nil {
		return err
	}
	if m.smoke.Components, err = m.components(ctx, r); err != nil {
		return err
	}
	loaded := "weights and buffers on the device"
	if m.setup.Case().Dataset > 0 {
		loaded += ", and the data set"
		if m.smoke.Streamed, err = m.streamed(ctx); err != nil {
			return err
		}
	}
	t := r.training
	for _, check := range []struct {
		name, note string
		of         moment
	}{
		{"model size", loaded, endOf(-1, "model")},
		{"forward", "the first, with the graph kept", peakOf(0, "forward")},
		{"first optimizer step", "its state comes to life", peakOf(0, "optimizer")},
		{"training step", fmt.Sprintf("the highest, in %s", step.PhaseName(t.Run.Peak.Phase)), whole},
	} {
		if err := m.add(check.name, check.note, t, check.of); err != nil {
			return err
		}
	}
	return nil
}

// streamed estimates the device bytes of the training step with the data set on the host,
// in bytes.
func (m *checks) streamed(ctx context.Context) (int64, error) {
	c := m.setup.Case()
	c.Dataset = 0
	e, err := m.simulated(ctx, c)
	return e.Device.Value, err
}

// later checks what comes after hours of training: validation, saving a checkpoint, the
// next stage.
func (m *checks) later(ctx context.Context) error {
	c := m.setup.Case()
	r, err := m.replayCase(ctx, c)
	if err != nil {
		return err
	}
	if k, unchosen := m.setup.OtherLoop(c); unchosen && r.Training.Facts.Outputs > 0 {
		other, err := m.replayCase(ctx, k)
		if err != nil {
			return err
		}
		name := "training step, loop " + string(k.Loop)
		if err := m.add(name, "no --loop was given; give it to check one loop", other.training, whole); err != nil {
			return err
		}
	}
	if r.With.ValidationStep > 0 {
		name := fmt.Sprintf("validation, batch %d", r.Validation)
		of := peakOf(r.With.ValidationStep, "")
		note := "without gradients, after training steps"
		if w := c.Evaluate.Words(); w != "" {
			note += ", " + w
		}
		if err := m.add(name, note, r.with, of); err != nil {
			return err
		}
	}
	if err := m.add("checkpoint save", saves(c), r.training, endOf(1, "")); err != nil {
		return err
	}
	for _, k := range m.otherStages(c) {
		r, err := m.replayCase(ctx, k)
		if step.Refused(err) {
			m.refused = append(m.refused, k.Stage)
			m.smoke.Warnings = append(m.smoke.Warnings,
				report.Warning{What: fmt.Sprintf("stage %s is not checked: %v", k.Stage, err)})
			continue
		}
		if err != nil {
			return fmt.Errorf("stage %s: %w", k.Stage, err)
		}
		if err := m.add("stage "+k.Stage, "if training goes on to it with this batch", r.training, whole); err != nil {
			return err
		}
		m.smoke.Checks[len(m.smoke.Checks)-1].Aside = m.test.Alone
	}
	return nil
}

// saves says what the device holds while a checkpoint is saved. Whoever asks for whole weights of ranks that share them
// out (full_state_dict of torch.distributed.checkpoint, stage3_gather_16bit_weights_on_model_save) has one after the
// other gathered and copied.
func saves(c models.Case) string {
	if s := c.Strategy; s != nil && (s.Name == models.FSDP2 || s.Name == models.TP || s.Name == models.ZeRO3) {
		return "copies to the host; a whole checkpoint gathers one weight at a time beside what it held"
	}
	return "copies to the host; the device holds what it held"
}

// longest checks a batch of the longest samples, if samples differ in length.
func (m *checks) longest(ctx context.Context) error {
	if len(m.test.Longest) == 0 {
		return nil
	}
	k, err := m.stretched(m.setup.Case())
	if err != nil {
		return err
	}
	r, err := m.replayCase(ctx, k)
	if err != nil {
		return fmt.Errorf("longest sample: %w", err)
	}
	return m.add("longest sample", "a batch of nothing else", r.with, whole)
}

// stretched returns a case with the settings of the longest sample.
func (m *checks) stretched(c models.Case) (models.Case, error) {
	settings := models.Settings{}
	maps.Copy(settings, c.Settings)
	maps.Copy(settings, m.test.Longest)
	c.Settings = settings
	return m.test.Model.Complete(c)
}

// safety says which batches are safe: in the case, with the longest samples, and in other
// stages, unless the device itself was asked.
func (m *checks) safety() *step.Safety {
	return &step.Safety{
		Cases: lists.Map(m.variants(m.setup.Case().Batch), m.setup.For), GPU: m.gpu, Budget: m.budget,
		Validation: m.test.Validation,
	}
}

// host adds what the machine needs, and has the verdict say if it may have too little memory.
func (m *checks) host(ctx context.Context) error {
	r, err := m.replayCase(ctx, m.setup.Case())
	if err != nil {
		return err
	}
	e, err := m.estimate(r.Training, r.Training.Run.Max)
	m.smoke.Host = step.EstimateOf(e).Host
	if err == nil && m.smoke.Safe && e.Host.Exceeds() {
		m.smoke.Safe, m.smoke.Reason = false, report.Reason(planner.HostFull)
	}
	return err
}

// smaller has the verdict say if a smaller batch, or the next size of the search, is not safe.
func (m *checks) smaller(ctx context.Context) error {
	if m.test.Device != nil || !m.smoke.Safe {
		return nil
	}
	why, at, err := m.safety().Judge(ctx, m.smoke.Batch)
	if err == nil && why != "" {
		m.smoke.Safe, m.smoke.Reason, m.smoke.Judged = false, report.Reason(why), at
	}
	return err
}

// largest returns the largest batch below the one that was tested that is safe; zero if none is.
func (m *checks) largest(ctx context.Context) (int, error) {
	batch := m.setup.Case().Batch
	begin := planner.Start{Batch: batch}
	if m.test.Device != nil {
		return step.Largest(&planner.Search{
			From: 1, To: batch, Begin: begin, Limit: m.budget.Limit(), Runs: true,
			Need: func(batch int) (int64, error) { return m.measuredNeed(ctx, batch) },
		})
	}
	largest, err := m.safety().Largest(ctx, begin, batch)
	if err != nil || largest == 0 || m.test.Lengths == nil {
		return largest, err
	}
	return m.largestOfEpochs(ctx, largest)
}

// measuredNeed returns what a batch needs of the device.
func (m *checks) measuredNeed(ctx context.Context, batch int) (worst int64, err error) {
	for _, k := range m.variants(batch) {
		r, err := m.replayCase(ctx, k)
		if err != nil {
			return 0, err
		}
		for _, t := range []*replayed{r.training, r.with} {
			if t.Measured.Run.Strained() {
				return math.MaxInt64, nil
			}
			worst = max(worst, t.Device)
		}
	}
	return worst, nil
}

// otherStages returns a case in each of the stages that training may go on to, with an optimizer where the
// stage has one. A case with adapters stays in its own.
func (m *checks) otherStages(c models.Case) (others []models.Case) {
	if c.LoRA != nil {
		return nil
	}
	for _, stage := range m.test.Model.Stages {
		if stage == c.Stage || slices.Contains(m.refused, stage) {
			continue
		}
		k := c
		k.Stage = stage
		if _, err := m.test.Model.Complete(k); err != nil {
			k.Optimizer = ""
		}
		others = append(others, k)
	}
	return others
}

// variants returns the cases that a batch size must be safe in: all stages, and the longest
// samples.
func (m *checks) variants(batch int) []models.Case {
	c := m.setup.Case()
	c.Batch = batch
	cases := []models.Case{c}
	if !m.test.Alone {
		cases = append(cases, m.otherStages(c)...)
	}
	if len(m.test.Longest) > 0 {
		if k, err := m.stretched(c); err == nil { // an error was found before
			cases = append(cases, k)
		}
	}
	return cases
}

// Package smoke tests before training whether a case is safe on a GPU, at every point where memory may run out.
package smoke

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/replay"
)

// Test is the input of [Run].
type Test struct {
	Model models.Model
	// Case is the case to test, with its batch size.
	Case models.Case
	GPU  device.GPU
	// Budget is the share of the GPU's memory that may be used. Its Memory is set from the GPU.
	Budget planner.Budget
	// Others is the memory of other processes on the GPU, in bytes.
	Others int64
	step.Evidence
	// Device, if not nil, is the real GPU, on which every check runs.
	Device device.Device
	// SingleGPU reports whether the user named the stage. Later stages of training are then shown but not judged.
	SingleGPU bool
	// Validation is the batch size of validation; zero is the project's or, without one, the training batch size.
	Validation int
	// Parts are the other stages of a curriculum, which train with the same batch size.
	Parts []step.Part
	// LongestInputs are the settings of the longest sample; nil if all samples have the same length.
	LongestInputs models.Settings
	// Lengths are the sample lengths of the data set; nil if all are equal. Epochs over them are replayed, on a
	// simulated GPU even if there is a device.
	Lengths *epoch.Lengths
	// Progress receives the progress of replayed epochs.
	Progress progress.Func
}

// Run replays the training step of a case and checks each point at which training may run out of memory, in the order
// of a training run. If a check exceeds the budget, the result names a smaller batch that does not. A case that PyTorch
// would refuse is an error.
func Run(ctx context.Context, t Test) (*report.Smoke, error) {
	setup, err := step.New(t.Model, t.Case, t.Evidence)
	if err != nil {
		return nil, err
	}
	setup = setup.WithParts(t.Parts)
	j, err := judge.New(setup, t.GPU, t.Budget, t.Others)
	if err != nil {
		return nil, err
	}
	defer j.FreeRecordings()
	j.Validation = t.Validation
	s := &report.Smoke{
		Schema: report.SmokeSchema, Case: report.CaseOf(t.Model, setup.Case()), Batch: setup.Case().Batch,
		Device: step.DeviceOf(t.GPU),
		Budget: report.Budget{Margin: t.Budget.Margin, Risk: t.Budget.Risk, OtherProcessBytes: t.Others},
		Limit:  j.Budget.Limit(), Safe: true,
	}
	m := &checks{test: t, setup: setup, judge: j, smoke: s}
	s.Warnings = append(setup.Warnings(), step.Unsupported([]device.GPU{t.GPU}, setup.Case())...)
	if t.Device != nil {
		m.setup, j.Device = setup.WithDevice(t.Device), t.Device.Name()
		s.Device = step.DeviceOn(t.Device)
		s.Warnings = slices.Concat(s.Warnings, step.SharedGPUWarnings(t.Device), m.neighbors.Warnings(t.Device))
	}
	if err := m.checkEpochs(ctx); err != nil {
		return nil, err
	}
	for _, look := range []func(context.Context) error{
		m.training, m.checkLaterSteps, m.checkCurriculum,
		m.checkLongestInputs,
	} {
		if err := look(ctx); err != nil {
			return nil, err
		}
	}
	if m.epoch != nil {
		s.Checks = append(s.Checks, *m.epoch)
	}
	if err := m.verdict(ctx); err != nil || s.Safe {
		return s, err
	}
	s.LargestBatch, err = m.largest(ctx)
	return s, err
}

// checks is the state of a smoke test.
type checks struct {
	test  Test
	setup *step.Setup
	judge *judge.Judge
	smoke *report.Smoke
	// epoch is the check of epochs over samples of different lengths, nil without them. whole is the case with samples
	// of the greatest length.
	epoch      *report.Check
	wholeSetup *step.Setup
	neighbors  step.WarnedProcesses
	// refused are the stages of training that PyTorch or the model refuses in this case.
	refused []string
}

// judgeCase returns the complete judgement of a case at its own batch size.
func (m *checks) judgeCase(ctx context.Context, c models.Case) (*judge.Judgement, error) {
	d, err := m.judge.Try(ctx, m.setup.WithCase(c), c.Batch)
	if err == nil {
		err = d.Complete(ctx)
	}
	if err == nil {
		err = d.Evaluate(ctx)
	}
	return d, err
}

// phaseSelector selects the memory usage at one point of a run.
type phaseSelector func(*replay.Run) replay.PhaseUsage

// phasePeak and phaseEnd select a phase's peak or end, wholeRun the peak of the run.
func phasePeak(step int, name string) phaseSelector {
	return func(r *replay.Run) replay.PhaseUsage { return r.PhasePeak(step, name) }
}

func phaseEnd(step int, name string) phaseSelector {
	return func(r *replay.Run) replay.PhaseUsage { return r.PhaseEnd(step, name) }
}

func wholeRun(r *replay.Run) replay.PhaseUsage { return r.WholeUsage() }

// add appends a check of the memory usage that of selects from a result's run.
func (m *checks) add(ctx context.Context, name, note string, s *step.Setup, r *step.Result, of phaseSelector) error {
	if r.Measured != nil { // other processes that were seen on the device
		m.smoke.Warnings = append(m.smoke.Warnings, m.neighbors.Warnings(m.test.Device, r.Measured.Neighbors...)...)
	}
	check, err := m.judge.CheckPhase(ctx, s, r, of)
	check.Name, check.Note = name, note
	m.smoke.Intervals = check.Source
	m.smoke.Checks = append(m.smoke.Checks, check)
	return err
}

// training checks the first training steps: loading the model, the first forward pass, the first optimizer step, and
// the step with the highest peak.
func (m *checks) training(ctx context.Context) error {
	d, err := m.judgeCase(ctx, m.setup.Case())
	if err != nil {
		return err
	}
	l := d.Loops[0]
	m.smoke.Workspaces = step.WorkspacesOf(l.Steps.Facts)
	if m.smoke.Components, err = m.components(ctx, l); err != nil {
		return err
	}
	isSharded := m.setup.Case().Strategy.SharesWeights() // in a phase of its own
	loaded := "weights and buffers on the device" + phrase.If(isSharded, ", in the strategy's wrapper")
	if m.setup.Case().Dataset > 0 {
		loaded += ", and the data set"
		if m.smoke.Streamed, err = m.streamedNeed(ctx); err != nil {
			return err
		}
	}
	highest := fmt.Sprintf("the highest, in %s", l.Steps.Run.Peak.Phase)
	if len(d.Loops) > 1 {
		highest += fmt.Sprintf("; loop %s, which needs most", l.Name)
	}
	for _, check := range []struct {
		name, note string
		of         phaseSelector
	}{
		{"model size", loaded, phaseEnd(-1, phrase.If(!isSharded, "model"))},
		{"forward", "the first, with the graph kept", phasePeak(0, "forward")},
		{"first optimizer step", "its state comes to life", phasePeak(0, "optimizer")},
		{"training step", highest, wholeRun},
	} {
		if err := m.add(ctx, check.name, check.note, l.Setup, l.Steps, check.of); err != nil {
			return err
		}
	}
	return nil
}

// streamedNeed estimates the device bytes of the training step if the data set stays on the host.
func (m *checks) streamedNeed(ctx context.Context) (int64, error) {
	c := m.setup.Case()
	c.Dataset = 0
	e, err := m.estimateCase(ctx, c)
	return e.Device.Value, err
}

// checkLaterSteps checks points hours after the start of training: validation, saving a checkpoint, the next stage.
func (m *checks) checkLaterSteps(ctx context.Context) error {
	c := m.setup.Case()
	d, err := m.judgeCase(ctx, c)
	if err != nil {
		return err
	}
	l := d.Loops[0]
	if len(d.Loops) > 1 && l.Steps.Facts.Outputs > 0 {
		other := d.Loops[1]
		note := fmt.Sprintf("loop %s; no --loop was given, and one checks that loop alone", other.Name)
		if err := m.add(ctx, "training step, other loop", note, other.Setup, other.Steps, wholeRun); err != nil {
			return err
		}
	}
	if e := d.Evaluation; e != nil {
		name, note := fmt.Sprintf("validation, batch %d", e.Batch), "without gradients, after training steps"
		if !e.Judged {
			note = "if you evaluate: --evaluate batch=N judges it, none leaves it out"
		}
		if w := c.Evaluate.Summary(); w != "" {
			note += ", " + w
		}
		if err := m.add(ctx, name, note, l.Setup, e.Result, phasePeak(e.Result.ValidationStep, "")); err != nil {
			return err
		}
		m.smoke.Checks[len(m.smoke.Checks)-1].NotInVerdict = !e.Judged
	}
	last := phaseEnd(l.Steps.Steps-1, "")
	if err := m.add(ctx, "checkpoint save", savingNote(c), l.Setup, l.Steps, last); err != nil {
		return err
	}
	for _, k := range m.otherStages(c) {
		d, err := m.judgeCase(ctx, k)
		if step.IsRefused(err) {
			m.refused = append(m.refused, k.Stage)
			m.smoke.Warnings = append(m.smoke.Warnings,
				report.Warning{What: fmt.Sprintf("stage %s is not checked: %v", k.Stage, err)})
			continue
		}
		if err != nil {
			return fmt.Errorf("stage %s: %w", k.Stage, err)
		}
		l, note := d.Loops[0], "if training goes on to it with this batch"
		if err := m.add(ctx, "stage "+k.Stage, note, l.Setup, l.Steps, wholeRun); err != nil {
			return err
		}
		m.smoke.Checks[len(m.smoke.Checks)-1].NotInVerdict = m.test.SingleGPU
	}
	return nil
}

func (m *checks) checkCurriculum(ctx context.Context) error {
	for i, s := range m.setup.PartSetups() {
		d, err := m.judgeCase(ctx, s.Case())
		if err != nil {
			return fmt.Errorf("part %s: %w", s.Part(), err)
		}
		l, note := d.Loops[0], strings.Join(m.test.Parts[i].Settings.Assignments(), ", ")
		if err := m.add(ctx, "part "+s.Part(), note, l.Setup, l.Steps, wholeRun); err != nil {
			return err
		}
	}
	return nil
}

// savingNote describes what is on the device while a checkpoint is saved. Full state dicts of sharded weights
// (full_state_dict of torch.distributed.checkpoint, stage3_gather_16bit_weights_on_model_save) gather and copy the
// weights one after another.
func savingNote(c models.Case) string {
	if c.Strategy.SharesWeights() {
		return "copies to the host; a whole checkpoint gathers one weight at a time beside what it held"
	}
	return "copies to the host; the device holds what it held"
}

// checkLongestInputs checks a batch of the longest samples, if samples differ in length.
func (m *checks) checkLongestInputs(ctx context.Context) error {
	if len(m.test.LongestInputs) == 0 {
		return nil
	}
	k, err := m.longestCase(m.setup.Case())
	if err != nil {
		return err
	}
	d, err := m.judgeCase(ctx, k)
	if err != nil {
		return fmt.Errorf("longest sample: %w", err)
	}
	l := d.Loops[0]
	result := l.Steps
	if e := d.Evaluation; e != nil && e.Judged {
		result = e.Result
	}
	return m.add(ctx, "longest sample", "a batch of nothing else", l.Setup, result, wholeRun)
}

func (m *checks) longestCase(c models.Case) (models.Case, error) {
	settings := models.Settings{}
	maps.Copy(settings, c.Settings)
	maps.Copy(settings, m.test.LongestInputs)
	c.Settings = settings
	return m.test.Model.Complete(c)
}

// verdict sets the verdict on the batch from all checks that count, from smaller batches and from the host memory.
func (m *checks) verdict(ctx context.Context) error {
	s, batch := m.smoke, m.smoke.Batch
	for _, check := range s.Checks {
		s.Safe = s.Safe && (check.Safe || check.NotInVerdict)
	}
	m.judge.Cases = lists.Map(m.variants(batch), m.setup.WithCase)
	d, err := m.judge.JudgeBatch(ctx, batch)
	if err != nil {
		return err
	}
	steps := d.Loops[0].Steps
	e, err := m.judge.Estimate(d.Loops[0].Setup, steps, steps.Run.Max)
	if err != nil {
		return err
	}
	s.Host = step.EstimateOf(e).Host
	switch {
	case !s.Safe && (d.Safe() || d.Reason == planner.SmallerBatch):
		s.Reason = s.WorstCheck().Reason
	case !s.Safe:
		s.Reason = report.Reason(d.Reason)
	case !d.Safe():
		s.Safe, s.Reason = false, report.Reason(d.Reason)
		if d.Reason != planner.HostFull {
			s.Judged = d.DecidingMoment.Batch
		}
	}
	return nil
}

// largest returns the largest safe batch below the tested one; zero if there is none.
func (m *checks) largest(ctx context.Context) (int, error) {
	batch := m.setup.Case().Batch
	largest, err := m.judge.Largest(ctx, planner.Start{Batch: batch}, batch)
	if err != nil || largest == 0 || m.test.Lengths == nil {
		return largest, err
	}
	return m.largestOfEpochs(ctx, largest)
}

// otherStages returns the case in each other stage of training, with the stage's own optimizer if it has one. A case
// with adapters has no other stage.
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

// variants returns all cases in which a batch must be safe: stages of training and curriculum, the longest samples.
func (m *checks) variants(batch int) []models.Case {
	c := m.setup.Case()
	c.Batch = batch
	cases := []models.Case{c}
	if !m.test.SingleGPU {
		cases = append(cases, m.otherStages(c)...)
	}
	for _, s := range m.setup.PartSetups() {
		cases = append(cases, s.Case())
	}
	if len(m.test.LongestInputs) > 0 {
		if k, err := m.longestCase(c); err == nil { // an error was found before
			cases = append(cases, k)
		}
	}
	return cases
}

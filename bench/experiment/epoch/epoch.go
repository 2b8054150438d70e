package epoch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/replay"
)

// Options limit the work of [Run]. The zero value selects the defaults.
type Options struct {
	// Epochs is the number of epochs to replay, each with its samples in another order; zero is 20.
	Epochs int
	// MaxReplayedActions is the approximate total number of allocations and frees to replay; zero is 100 million, some
	// ten seconds.
	MaxReplayedActions int
	// OtherProcessBytes is the number of bytes that other processes hold on the GPU.
	OtherProcessBytes int64
	// MemoryLimit, if not zero, ends the replays when an epoch runs out of memory, frees cached memory, or reserves
	// more than these bytes. A search for a batch size needs no more.
	MemoryLimit int64
	// Progress receives the progress of the replays.
	Progress progress.Func
}

const (
	defaultEpochs  = 20
	defaultActions = 100_000_000
	quickEpochs    = 4
	quickActions   = 8_000_000
	// maxRecorded limits the number of different lengths to record. If there are more, lengths are rounded up.
	maxRecorded = 160
	// mostRecorded is the number of steps after which every loop repeats. DDP rebuilds its buckets in the second step.
	mostRecorded = 4
	// fewestSteps and mostSteps limit the number of steps to replay in an epoch.
	fewestSteps, mostSteps = 40, 5000
)

// ForSearch returns the options with smaller limits, for a quick check that finds most batches that run out of memory.
func (o Options) ForSearch() Options {
	o.Epochs, o.MaxReplayedActions = quickEpochs, quickActions
	return o
}

// Run replays epochs over samples of different lengths on a simulated GPU, at a batch size. All steps of an epoch use
// one allocator. Samples longer than the case's are cut, as trainers do. Results are reproducible.
func Run(ctx context.Context, s *step.Setup, gpu device.GPU, batch int, l *Lengths,
	o Options,
) (*report.Lengths, error) {
	o.Epochs = cmp.Or(o.Epochs, defaultEpochs)
	if l.Batching == Packed {
		o.Epochs = 1 // every batch is as long as any other
	}
	o.MaxReplayedActions = cmp.Or(o.MaxReplayedActions, defaultActions)
	setting, err := settingOf(s.Model(), l.Setting)
	if err != nil {
		return nil, err
	}
	s = s.WithLargestLoop()
	e := &epochRun{
		setup: s.WithAccumulation(step.StepsToRecord(s.Case().Accumulate)), gpu: gpu, batch: batch, lengths: l,
		options: o,
		setting: setting, limit: s.Case().Settings[setting.Name], microBatches: s.Case().Accumulate,
		recorded: map[int64]*replay.ReplayableSteps{},
	}
	if err := e.planEpochs(ctx); err != nil {
		return nil, err
	}
	if err := e.recordLengths(ctx); err != nil {
		return nil, err
	}
	return e.replayAndReport(ctx, s)
}

// settingOf returns the setting of a model that sets the length of a sample.
func settingOf(m models.Model, name string) (models.Setting, error) {
	var lengths []string
	for _, s := range m.Settings {
		if s.Name == name || name == "" && s.Length {
			return s, nil
		}
		lengths = append(lengths, s.Name)
	}
	switch {
	case len(lengths) == 0:
		return models.Setting{}, input.Errorf("all samples of %s have one size, so lengths do not apply; use them "+
			"with a model of sequences", m.Name)
	case name != "":
		return models.Setting{}, input.Errorf("%s has no setting %q; its settings are %s", m.Name, name,
			strings.Join(lengths, ", "))
	}
	return models.Setting{},
		input.Errorf("it is not clear which setting of %s is the length of a sample; write --lengths %s=FILE, with "+
			"one of its settings: %s", m.Name, lengths[0], strings.Join(lengths, ", "))
}

// An epochRun is the state of [Run].
type epochRun struct {
	setup        *step.Setup
	gpu          device.GPU
	batch        int
	lengths      *Lengths
	options      Options
	setting      models.Setting
	limit        int64
	microBatches int

	plans []epochPlan
	// multiple is the number to whose multiples lengths were rounded up so that at most maxRecorded differ; zero
	// without rounding.
	multiple int64
	recorded map[int64]*replay.ReplayableSteps
}

// epochRandom returns the random number generator of an epoch, seeded with its number, so results are reproducible.
func epochRandom(epoch int) *rand.Rand { return rand.New(rand.NewPCG(uint64(epoch), 2026)) } //nolint:gosec // no secret

// planEpochs plans the batches of all epochs, with as many steps as the limits allow.
func (e *epochRun) planEpochs(ctx context.Context) error {
	first := e.lengths.planEpoch(epochRandom(0), e.batch, e.limit, 1)
	longest := max(e.lengths.paddedLength(first.longest, e.limit), e.setting.Min)
	if e.lengths.Batching == Packed {
		longest = e.limit
	}
	steps, err := e.recordLength(ctx, longest)
	if err != nil {
		return err
	}
	e.recorded[longest] = steps
	each := max(steps.ActionCount(), 1) * e.microBatches / step.StepsToRecord(e.microBatches)
	most := min(max(e.options.MaxReplayedActions/(e.options.Epochs*max(each, 1)), fewestSteps), mostSteps)
	for i := range e.options.Epochs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.plans = append(e.plans, e.lengths.planEpoch(epochRandom(i), e.batch, e.limit, most*e.microBatches))
	}
	e.roundLengths()
	return nil
}

// roundLengths rounds the planned lengths up to a multiple, so that few lengths are recorded, and at least to the
// shortest length that the model accepts.
func (e *epochRun) roundLengths() {
	for multiple := max(e.lengths.Multiple, 1); ; multiple *= 2 {
		different := map[int64]bool{}
		for _, p := range e.plans {
			for _, n := range p.lengths {
				different[max(padLength(n, multiple, e.limit), e.setting.Min)] = true
			}
		}
		if len(different) > maxRecorded {
			continue
		}
		for _, p := range e.plans {
			for i, n := range p.lengths {
				p.lengths[i] = max(padLength(n, multiple, e.limit), e.setting.Min)
			}
		}
		if multiple > max(e.lengths.Multiple, 1) {
			e.multiple = multiple
		}
		return
	}
}

func (e *epochRun) caseOfLength(length int64) models.Case {
	return e.lengths.batchOf(e.setup.Model(), e.setup.Case(), e.setting.Name, e.batch, length)
}

func (l *Lengths) batchOf(m models.Model, c models.Case, setting string, batch int, length int64) models.Case {
	c.Settings = maps.Clone(c.Settings)
	c.Settings[setting] = length
	l.setMasked(m, batch, c.Settings)
	c.Batch = batch
	return c
}

// Longest returns the case whose batches have the greatest length of usual epochs over the data set, at most the case's
// length. The error means bad input.
func (l *Lengths) Longest(m models.Model, c models.Case) (models.Case, error) {
	setting, err := settingOf(m, l.Setting)
	if err != nil {
		return c, err
	}
	limit := c.Settings[setting.Name]
	longest := limit
	if l.Batching != Packed {
		longest = setting.Min
		for i := range defaultEpochs {
			longest = max(longest, l.paddedLength(l.planEpoch(epochRandom(i), 1, limit, 1).longest, limit))
		}
	}
	return l.batchOf(m, c, setting.Name, c.Batch, longest), nil
}

// WorstCase returns the case with batches of the length that needed the most memory in replayed epochs.
func (l *Lengths) WorstCase(m models.Model, c models.Case, of *report.Lengths) models.Case {
	return l.batchOf(m, c, of.Setting, c.Batch, of.WorstLength)
}

// recordLength records the case with samples of a length and splits the recording into steps.
func (e *epochRun) recordLength(ctx context.Context, length int64) (*replay.ReplayableSteps, error) {
	c := e.caseOfLength(length)
	for recorded := 2; ; recorded++ {
		rec, err := e.setup.RecordCase(ctx, c, e.gpu, models.Options{Steps: recorded})
		if err != nil {
			return nil, fmt.Errorf("samples of length %d: %w", length, err)
		}
		steps, err := replay.CutSteps(rec.Program, c.Accumulate)
		if !errors.Is(err, replay.ErrStepsDiffer) || recorded == mostRecorded {
			return steps, err
		}
	}
}

// recordLengths records the case at each length of the plans.
func (e *epochRun) recordLengths(ctx context.Context) error {
	missing := map[int64]bool{}
	for _, p := range e.plans {
		for _, n := range p.lengths {
			if e.recorded[n] == nil {
				missing[n] = true
			}
		}
	}
	lengths := slices.Sorted(maps.Keys(missing))
	cuts := make([]*replay.ReplayableSteps, len(lengths))
	err := progress.Each(ctx, e.options.Progress, "lengths", lengths,
		func(ctx context.Context, i int, length int64) (err error) {
			cuts[i], err = e.recordLength(ctx, length)
			return err
		})
	for i, n := range lengths {
		e.recorded[n] = cuts[i]
	}
	return err
}

// replayAndReport replays the epochs and reports the worst batch, the growth of reserved memory, and OOMs.
func (e *epochRun) replayAndReport(ctx context.Context, s *step.Setup) (*report.Lengths, error) {
	out := e.describe()
	worst := slices.Max(slices.Collect(maps.Keys(e.recorded)))
	c := s.Case()
	c.Settings = e.caseOfLength(worst).Settings
	alone, err := step.New(s.Model(), c, s.Evidence())
	if err != nil {
		return nil, err
	}
	d, err := judge.JudgeBatch(ctx, alone, e.gpu, e.batch)
	if err != nil {
		return nil, err
	}
	defer d.FreeRecordings()
	if out.Worst, err = d.Report(ctx); err != nil {
		return nil, err
	}
	tried := d.Loops[0].Steps
	out.WorstLength = worst
	conf := s.Allocator()
	if out.Epochs, err = e.replayEpochs(ctx, conf); err != nil {
		return nil, err
	}
	if out.MostDevice, err = e.highestNeed(alone, tried.Sample(), out.Epochs); err != nil {
		return nil, err
	}
	if !conf.Expandable && out.Epochs.RanShortOfMemory() && e.options.MemoryLimit == 0 {
		conf.Expandable = true
		expandable, err := e.replayEpochs(ctx, conf)
		if err != nil {
			return nil, err
		}
		out.Expandable = &expandable
	}
	return out, nil
}

// highestNeed estimates the device bytes at the peak of reserved bytes, from a replayed sample of the worst batch; nil
// if memory runs out. It excludes managed memory.
func (e *epochRun) highestNeed(s *step.Setup, worst planner.Sample, all report.Epochs) (*report.Interval, error) {
	if all.OutOfMemory > 0 {
		return nil, nil
	}
	worst.Reserved, worst.ManagedBytes = max(worst.Allocated(), all.Most), 0
	most, err := s.Estimate(e.gpu, worst)
	return new(step.IntervalOf(most.Device)), err
}

// describe returns the part of the report about the data set and its batches: lengths, padding, steps.
func (e *epochRun) describe() *report.Lengths {
	out := &report.Lengths{
		Simulated: true, Source: e.lengths.Source, Setting: e.setting.Name, Batching: string(e.lengths.Batching),
		Multiple: e.lengths.Multiple,
		Rounded:  e.multiple, Limit: e.limit,
	}
	var tokens, positions, total, samples int64
	for _, p := range e.plans {
		tokens, positions = tokens+p.tokens, positions+p.positions
		total, samples = total+p.total, samples+int64(p.samples)
		out.P99, out.P999 = max(out.P99, p.p99), max(out.P999, p.p999)
		out.Longest, out.P95, out.Cut = max(out.Longest, p.longest), max(out.P95, p.p95), max(out.Cut, p.truncated)
	}
	first := e.plans[0]
	out.Samples, out.Mean = int64(first.samples), float64(total)/float64(samples)
	if positions > 0 {
		out.Padding = 1 - float64(tokens)/float64(positions)
	}
	out.Steps = e.stepCount(first.batches)
	out.Replayed = e.stepCount(len(first.lengths))
	return out
}

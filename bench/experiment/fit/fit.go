// Package fit finds the largest safe batch on a GPU for every configuration of training.
package fit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// Search is the input of [Run]: cases, GPUs and the budget.
type Search struct {
	Model models.Model
	// Cases are the configurations to search; their batch sizes are ignored.
	Cases []models.Case
	GPUs  []device.GPU
	// CaseCount is the number of cases of the whole search if this search is one part.
	CaseCount int
	// Budget is the share of each GPU's memory that may be used. Its Memory is set from the GPU.
	Budget planner.Budget
	// Others is the memory of other processes on each GPU, in bytes.
	Others int64
	// Effective is the number of samples of an optimizer step; zero keeps the cases' accumulation.
	Effective int
	// MaxBatch is the largest batch size to try.
	MaxBatch int
	// Multiple is the number of which batches are multiples, unless they are smaller; zero and one allow any batch.
	Multiple int
	// Batch is the only batch size to try; zero searches the largest that fits.
	Batch int
	// SeqLen searches the longest safe sequence ([SeqLen]) at Batch instead of the batch.
	SeqLen bool
	step.Evidence
	// Ranks describes the GPUs if the cases have strategies for several GPUs, and each case records one rank; else it
	// is zero. If strategies are searched, most cases are interpolated, and the least number of GPUs is computed.
	Ranks report.Parallel
	// Device, if not nil, is the only GPU. Each recommended batch is measured on it, and reduced until it fits.
	Device device.Device
	// TrySavings reports whether the cases differ by memory-saving options, whose savings are then computed.
	TrySavings bool
	// Precisions are the precisions in which the best combinations of memory-saving options are also searched.
	Precisions []models.Autocast
	// Lengths are the sample lengths of the data set; nil if all are equal. Recommended batches complete whole epochs
	// over them. Lengths require a single simulated GPU.
	Lengths *epoch.Lengths
	// Parts are the settings of each stage of a curriculum whose stages train with one batch. The batch must be safe in
	// all of them. Nil without a curriculum.
	Parts []models.Settings
	// UnreadReason returns the reason why the project's code cannot train a configuration; empty if it can. May be nil.
	UnreadReason func(models.Case) string
	// Slots limits concurrent work together with other searches; nil if no other search runs.
	Slots Slots
	// Progress receives the number of searched configurations.
	Progress progress.Func
}

// Slots limits the number of configurations that all searches process at a time. Each holds recordings in memory, so
// more than one per core is useless.
type Slots chan struct{}

// NewSlots returns as many slots as there are cores.
func NewSlots() Slots { return make(Slots, runtime.GOMAXPROCS(0)) }

// acquire waits for a slot, and returns the function that releases it.
func (s Slots) acquire() (giveBack func()) {
	if s == nil {
		return func() {}
	}
	s <- struct{}{}
	return func() { <-s }
}

// Run finds the largest batch within the budget for every configuration on every GPU, and recommends the fastest for
// each stage and GPU: the one with the most samples per second, or the simplest strategy that is equally fast. Each
// recommendation has been replayed on the simulated GPU at its batch. Configurations that PyTorch or the model refuses
// are part of the result, unless all are refused: then the first's error is returned.
func Run(ctx context.Context, s Search) (*report.Fit, error) {
	f := s.newReport()
	s.Evidence = s.WithSharedSteps(s.GPUs)
	v, err := s.surveyCases(ctx, s.Cases)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(v.refusals, nil) {
		return nil, v.refusals[0]
	}
	f.Choices = v.choices
	f.Intervals = intervalsSource(f.Choices)
	rankChoices(f, s.Model.Stages)
	if s.TrySavings {
		if err := s.searchPrecisions(ctx, f); err != nil {
			return nil, err
		}
	}
	if s.Ranks.Strategy == AutoStrategy {
		if err := s.searchVariants(ctx, f); err != nil {
			return nil, err
		}
	}
	if err := s.confirmRecommended(ctx, f); err != nil {
		return f, err
	}
	if s.Lengths != nil {
		if err := s.checkEpochs(ctx, f); err != nil {
			return f, err
		}
	}
	if s.TrySavings {
		if err := s.addWaterfalls(ctx, f); err != nil {
			return f, err
		}
	}
	for _, c := range f.Choices {
		if c.Recommended && s.SeqLen { // whose length the search has set
			f.Warnings = lists.Union(f.Warnings, step.Caveats(s.Model, c.Case.Case)...)
		}
	}
	if s.usesSurvey() {
		return f, nil
	}
	if s.Device != nil {
		return f, s.measureChoices(ctx, f)
	}
	return f, nil
}

// confirmRecommended replays recommendations that were only interpolated, and finds the least number of GPUs.
func (s *Search) confirmRecommended(ctx context.Context, f *report.Fit) error {
	fits := slices.ContainsFunc(f.Choices, func(c report.Choice) bool { return c.Fits() })
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := s.replayRecommended(ctx, f)
		return err
	})
	if s.Ranks.Strategy == AutoStrategy && fits {
		g.Go(func() (err error) {
			f.Parallel.MinGPUs, err = s.leastGPUs(ctx)
			return err
		})
	}
	return g.Wait()
}

// newReport returns the report of a search without any configuration.
func (s *Search) newReport() *report.Fit {
	f := &report.Fit{
		Schema: report.FitSchema, Model: s.Model.Name, BatchUnit: s.Model.BatchUnit,
		Config: json.RawMessage(s.Model.Description.Text()),
		Budget: report.Budget{
			Margin: s.Budget.Margin, Risk: s.Budget.Risk, OtherProcessBytes: s.Others,
			EffectiveBatch: s.Effective, MaxBatch: s.MaxBatch, Multiple: s.Multiple, Batch: s.Batch,
			SeqLen: s.SeqLen,
		},
	}
	if s.Ranks.GPUs > 1 {
		r := s.Ranks
		r.Bandwidth = cmp.Or(r.Bandwidth, s.GPUs[0].LinkBandwidth)
		f.Parallel = &r
	}
	f.Parts = s.Parts
	f.Devices = lists.Map(s.GPUs, step.DeviceOf)
	f.Warnings = append(step.Caveats(s.Model, s.Cases...), step.Unsupported(s.GPUs, s.Cases...)...)
	return f
}

// surveyCases returns a choice for each case on each GPU: interpolated for several GPUs, replayed for one.
func (s Search) surveyCases(ctx context.Context, cases []models.Case) (*survey, error) {
	s.CaseCount, s.Cases = max(s.CaseCount, len(s.Cases)), cases
	n := len(cases) * len(s.GPUs)
	v := &survey{search: &s, choices: make([]report.Choice, n), refusals: make([]error, n)}
	if s.usesSurvey() {
		return v, v.fillChoices(ctx)
	}
	return v, s.surveyExactly(ctx, v)
}

// surveyExactly searches the largest batch of every configuration on every GPU by replays.
func (s *Search) surveyExactly(ctx context.Context, v *survey) error {
	begin := planner.Start{Batch: s.Model.Default.Batch}
	gpus := lists.Make(len(v.choices), func(at int) device.GPU { return s.GPUs[at/len(s.Cases)] })
	order := step.OrderForSharing(gpus, func(at int) models.CaseKey { return keyOf(s.Cases[at%len(s.Cases)]) })
	return progress.Each(ctx, s.Progress, "configurations", order, func(ctx context.Context, _, at int) (err error) {
		gpu, c := gpus[at], s.Cases[at%len(s.Cases)]
		v.choices[at], v.refusals[at], err = s.largestBatch(ctx, gpu, c, begin)
		return err
	})
}

// rankChoices sorts the choices and marks the first that fits in each stage as recommended.
func rankChoices(f *report.Fit, stages []string) {
	dropRefused(f)
	for i := range f.Choices {
		f.Choices[i].Recommended = false
	}
	at := map[string]int{}
	for i, d := range f.Devices {
		at[d.Name] = i
	}
	grouped := func(a, b report.Choice) int {
		return cmp.Or(
			cmp.Compare(at[a.Device], at[b.Device]),
			cmp.Compare(slices.Index(stages, a.Case.Stage), slices.Index(stages, b.Case.Stage)),
		)
	}
	slices.SortStableFunc(f.Choices, func(a, b report.Choice) int {
		return cmp.Or(
			grouped(a, b),
			-cmp.Compare(a.SeqLen, b.SeqLen),
			-cmp.Compare(a.SamplesPerSecond, b.SamplesPerSecond),
			cmp.Compare(a.Refused, b.Refused),
		)
	})
	type group struct{ device, stage string }
	best, fastest := map[group]*report.Choice{}, map[group]float64{}
	for i := range f.Choices {
		c := &f.Choices[i]
		g := group{c.Device, c.Case.Stage}
		switch b := best[g]; {
		case !c.Fits():
		case b == nil || b.NotAdvised != "" && c.NotAdvised == "":
			best[g], fastest[g] = c, c.SamplesPerSecond
		case c.NotAdvised != "" && b.NotAdvised == "":
		case c.SeqLen == b.SeqLen && c.SamplesPerSecond >= equalSpeedShare*fastest[g] && isSimpler(c, b):
			best[g] = c
		}
	}
	for _, c := range best {
		c.Recommended = true
	}
	// The recommended choice comes first in its stage, although others may be a little faster.
	slices.SortStableFunc(f.Choices, func(a, b report.Choice) int {
		return cmp.Or(grouped(a, b), report.CompareBools(a.Recommended, b.Recommended))
	})
}

// equalSpeedShare is the share of the highest samples per second from which on a choice counts as equally fast.
const equalSpeedShare = 0.99

// isSimpler reports whether choice a is simpler for users than the equally fast b: it trains as the model's authors do,
// or has fewer memory-saving options, or has a strategy with fewer options that needs no more memory.
func isSimpler(a, b *report.Choice) bool {
	like := a.Case.Case
	like.Strategy = b.Case.Strategy
	switch {
	case a.Case.Strategy != nil && b.Case.Strategy != nil:
		return keyOf(like) == keyOf(b.Case.Case) && len(a.Case.Strategy.String()) < len(b.Case.Strategy.String()) &&
			a.Estimate.Device.Bytes <= b.Estimate.Device.Bytes
	case a.IsAuthorsOwn != b.IsAuthorsOwn:
		return a.IsAuthorsOwn
	}
	return countSavings(a) < countSavings(b)
}

// countSavings counts the memory-saving options of a choice (liger, 8-bit optimizers, ...). A paged 8-bit optimizer
// counts two, since no estimate includes the transfers of its pages.
func countSavings(c *report.Choice) (n int) {
	for _, t := range memoryOptions() {
		if t.is(&c.Case.Case) {
			n++
		}
	}
	if strings.HasPrefix(c.Case.Optimizer, "paged-") {
		n++
	}
	return n
}

// largestBatch finds the largest batch size of one configuration on one GPU, starting at begin. refused is the reason
// why PyTorch or the model would not train the configuration.
func (s *Search) largestBatch(ctx context.Context, gpu device.GPU, c models.Case, begin planner.Start) (
	out report.Choice, refused, err error,
) {
	defer s.Slots.acquire()()
	given, q, err := s.searchOf(gpu, c)
	if err != nil {
		return s.refusedChoice(gpu, c, err)
	}
	defer q.judge.FreeRecordings()
	q.start = begin
	gpus := s.batchesOf(c)
	size, largest, steps, err := q.find(ctx, (s.Effective+gpus-1)/gpus, c.Accumulate)
	if err != nil {
		c.Accumulate = step.StepsToRecord(c.Accumulate)
		return s.refusedChoice(gpu, c, err)
	}
	out = report.Choice{Device: step.SimName(gpu), LargestIsCapped: largest == q.max, Largest: largest, Batch: size}
	whole := given.WithAccumulation(steps).Case()
	if q.rowBatch > 0 && size > 0 {
		found, batch := q.setupOf(size, steps)
		whole, out.SeqLen, out.Largest, out.Batch = found.Case(), size, batch, batch
	}
	out.Case, out.IsAuthorsOwn = report.CaseOf(s.Model, whole).Short(), s.isOwnCase(whole)
	out.NotAdvised = s.notAdvised(gpu, whole)
	out.EffectiveBatch = out.Batch * steps * gpus
	return out, nil, q.describe(ctx, &out, size, steps)
}

// refusedChoice returns a configuration that PyTorch or the model refuses as a choice without a batch, or other errors.
func (s *Search) refusedChoice(gpu device.GPU, c models.Case, cause error) (report.Choice, error, error) {
	if !step.IsRefused(cause) {
		return report.Choice{}, nil, cause
	}
	return report.Choice{
		Device: step.SimName(gpu), Case: report.CaseOf(s.Model, c).Short(),
		Refused: cause.Error(),
	}, cause, nil
}

// notAdvised returns the reason why a configuration is not recommended even if it is the fastest; empty if it may be.
func (s *Search) notAdvised(gpu device.GPU, c models.Case) string {
	if c.AMP == "bf16" && gpu.EmulatesBF16() {
		return fmt.Sprintf("is emulated on compute capability %v", gpu.Capability)
	}
	if s.UnreadReason != nil {
		return s.UnreadReason(c)
	}
	return ""
}

// isOwnCase reports whether the case trains as the model's authors do: with their precision, settings, optimizer and
// checkpointing, and without a strategy that the search chose.
func (s *Search) isOwnCase(c models.Case) bool {
	d, err := s.Model.Complete(s.Model.Default)
	if err != nil {
		return false
	}
	d.Loop, d.Evaluate = c.Loop, c.Evaluate // which users choose for themselves
	for name, v := range d.Settings {
		if c.Settings[name] != v {
			return false
		}
	}
	return c.Strategy == nil && c.AMP == d.AMP && c.Weights == d.Weights && c.Checkpointing == d.Checkpointing &&
		c.Optimizer == d.Optimizer && c.MemoryOptions == d.MemoryOptions && c.LoRA == nil && c.Task == d.Task
}

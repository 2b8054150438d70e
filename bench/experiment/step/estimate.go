package step

import (
	"context"
	"fmt"
	"slices"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/replay"
)

// Planner makes estimates on a GPU, by interpolation between samples at some batch sizes.
func (s *Setup) Planner(gpu device.GPU, samples ...planner.Sample) (*planner.Planner, error) {
	known := map[int]planner.Sample{}
	var batches []int
	for _, sample := range samples {
		known[sample.Batch] = sample
		batches = append(batches, sample.Batch)
	}
	curve, err := planner.Draw(batches, func(batch int) (planner.Sample, error) { return known[batch], nil })
	if err != nil {
		return nil, err
	}
	modeled := slices.ContainsFunc(samples, func(s planner.Sample) bool { return s.Modeled })
	c, err := s.Coefficients(gpu, modeled, batches...)
	if err != nil {
		return nil, err
	}
	return &planner.Planner{
		Curve: curve, Coefficients: c,
		Memory: int64(float64(gpu.Memory)*s.conf.MemoryFraction) - s.others,
	}, nil
}

// Estimate returns what a sample needs on a GPU, with its interval.
func (s *Setup) Estimate(gpu device.GPU, sample planner.Sample) (planner.Estimate, error) {
	p, err := s.Planner(gpu, sample)
	if err != nil {
		return planner.Estimate{}, err
	}
	return p.Estimate(sample.Batch)
}

// Settle tries a trial with as many steps as it takes until further ones need no more; [Result.Spread] may be missing.
// Where the cache had to grow in the second step, a third finds it in another order: it may have to grow once more,
// or take blocks that are larger than what is requested.
func (s *Setup) Settle(ctx context.Context, t Trial) (*Result, error) {
	t.Replay.Nominal = true
	if r, err := s.likeTheLast(ctx, t); r != nil || err != nil {
		return r, err
	}
	for last, beyond := steadyStep, 0; ; last++ {
		r, err := s.Try(ctx, t)
		if err != nil {
			return nil, err
		}
		if last == mostSteps-1 || r.Run == nil || !grows(r.Run, last) {
			s.settling.took(t.setup.c, beyond)
			return r, nil
		}
		r.Discard()
		t.Steps, beyond = last+2, last+2
	}
}

// likeTheLast returns the settled trial with as many steps as another size of the case took beyond the usual ones, or
// another loop of it; nil if none did, or if this one takes another number.
func (s *Setup) likeTheLast(ctx context.Context, t Trial) (*Result, error) {
	steps := s.settling.steps(t.setup.c)
	if t.Steps > 0 || steps == 0 {
		return nil, nil
	}
	t.Steps = steps
	r, err := s.Try(ctx, t)
	if err != nil || r.Run == nil {
		return r, err
	}
	settled := steadyStep
	for settled < steps && grewIn(r.Run, settled) {
		settled++
	}
	if settled == steps-1 || settled == mostSteps {
		return r, nil
	}
	r.Discard()
	return nil, nil
}

// Perturb completes a result that was tried without its perturbed replays, unless a device ran it.
func (s *Setup) Perturb(ctx context.Context, r *Result) error {
	if r.Spread.High > 0 || r.Measured != nil {
		return nil
	}
	how := r.trial.Replay
	how.Omit, how.Nominal = true, false
	perturbed, err := s.Try(ctx, r.Again(how))
	if err == nil {
		r.Spread, r.Reordered = perturbed.Spread, perturbed.Reordered
		r.Adopt(perturbed)
	}
	return err
}

// mostSteps bounds how long a cache is given to settle.
const mostSteps = 5

// grows reports whether the last step of a run, of this number, has the cache grow.
func grows(r *replay.Run, last int) bool {
	return r.Phases[len(r.Phases)-1].Step == last && grewIn(r, last)
}

// grewIn reports whether a step of a run has the cache grow.
func grewIn(r *replay.Run, step int) bool {
	before := int64(0)
	for s := -1; s < step; s++ {
		before = max(before, r.PeakOf(s, "").Reserved)
	}
	return r.PeakOf(step, "").Reserved > before
}

// Coefficients returns the planner's coefficients for the case on a GPU, where the workspaces of some convolutions
// are modeled or none are. Of which batch sizes a compiled step is known may depend on the sizes.
func (s *Setup) Coefficients(gpu device.GPU, modeled bool, batches ...int) (planner.Coefficients, error) {
	unknown := slices.ContainsFunc(s.cases(batches), func(c models.Case) bool { return s.model.NotRecorded(c) != "" })
	of := planner.Subject{
		Model: s.model.Name, Release: s.c.ReleaseName(), Partial: s.model.Partial, Modeled: modeled,
		Compiled: s.c.Compile && !unknown,
	}
	c, err := s.evidence.Coefficients(gpu, of)
	if unknown {
		c.Compile(s.model.ReadsText())
	}
	if r := s.c.Strategy; r != nil && r.Communicators(s.c.GPUs) > 0 {
		c.Communicate(planner.CommunicationOf(gpu, r.Communicators(s.c.GPUs)))
	}
	return c, err
}

// cases returns the case at some batch sizes; without any, as it is.
func (s *Setup) cases(batches []int) []models.Case {
	if len(batches) == 0 {
		return []models.Case{s.c}
	}
	all := make([]models.Case, len(batches))
	for i, batch := range batches {
		all[i] = s.c
		all[i].Batch = batch
	}
	return all
}

// What expandable segments must spare of the device bytes to be worth saying.
const (
	sparedBytes = 256 << 20
	sparedShare = 0.05
)

// Expandable estimates what the device would show with expandable segments; nil if they
// are on already, or would spare little of the estimate of a trial.
func (s *Setup) Expandable(ctx context.Context, e planner.Estimate, gpu device.GPU,
	r *Result,
) (*report.Interval, error) {
	worth := max(sparedBytes, int64(sparedShare*float64(e.Device.Value)))
	if s.conf.Expandable || e.Reserved.Value-e.Allocated.Value < worth {
		return nil, nil
	}
	other, err := s.Try(ctx, r.Again(Replay{Expandable: true, Training: true}))
	if err != nil {
		return nil, err
	}
	then, err := s.Estimate(gpu, other.Sample())
	if err != nil || e.Device.Value-then.Device.Value < worth {
		return nil, err
	}
	return new(IntervalOf(then.Device)), nil
}

// Budget completes a budget for a GPU: its Memory is the share of the GPU's memory that the allocator settings allow
// the process, less the bytes that others hold. It is an error if nothing is left.
func (s *Setup) Budget(b planner.Budget, gpu device.GPU, others int64) (planner.Budget, error) {
	b.Memory = int64(float64(gpu.Memory)*s.conf.MemoryFraction) - others
	if err := b.Check(); err != nil {
		return b, fmt.Errorf("%s: %w", gpu.Name, err)
	}
	return b, nil
}

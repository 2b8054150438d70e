package step

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// Safety says which batches of a case are safe on a GPU: those whose need at each point of
// training that decides is within the budget. All commands judge by this one meaning of "safe".
type Safety struct {
	// Cases are what a batch must be safe in: the case, and what training comes to besides, as
	// the longest sample or another stage. Their batch sizes do not matter.
	Cases []*Setup
	GPU   device.GPU
	// Budget is complete, as [Setup.Budget] makes it.
	Budget planner.Budget
	// Validation is the size of a validation batch; zero is the project's, or else that of
	// training.
	Validation int

	known map[int]int64
}

// Safety says which batches of the case are safe on a GPU, of which others hold some bytes, in
// a budget, whose Memory is taken from the GPU.
func (s *Setup) Safety(gpu device.GPU, b planner.Budget, others int64) (*Safety, error) {
	b, err := s.Budget(b, gpu, others)
	return &Safety{Cases: []*Setup{s}, GPU: gpu, Budget: b}, err
}

// A Course is a trial of training steps, and with them what follows: a validation batch, in
// systems that validate while they train.
type Course struct {
	// Training are the steps alone, With also the validation after them; the same if there is
	// none.
	Training, With *Result
	// Validation is the size of the validation batch.
	Validation int
}

// Course tries a batch size with as many steps as it takes until further ones need no more, and
// with validation after them. What differs from run to run is left to [Setup.Perturb].
func (s *Setup) Course(ctx context.Context, t Trial, validation int) (*Course, error) {
	t = s.training(t, validation)
	training, err := s.nominal(ctx, t)
	if err != nil {
		return nil, err
	}
	c := &Course{Training: training, With: training, Validation: t.Validation}
	if training.ValidationStep > 0 {
		how := t.Replay
		how.Training, how.Nominal = false, true
		c.With, err = s.Try(ctx, training.Again(how))
	}
	return c, err
}

// Perturb completes the results of a course by their perturbed replays. A validation that
// reserves nothing beyond what training has leaves the spread as it is.
func (s *Setup) Perturb(ctx context.Context, c *Course) error {
	if err := s.perturb(ctx, c.Training); err != nil {
		return err
	}
	if c.With.Measured == nil && c.With.Run.Max.Reserved <= c.Training.Run.Max.Reserved {
		c.With.Spread, c.With.Reordered = c.Training.Spread, c.Training.Reordered
	}
	return s.perturb(ctx, c.With)
}

// training returns a trial with its validation recorded, unless there is none, and training alone replayed.
func (s *Setup) training(t Trial, validation int) Trial {
	t.Replay.Training = true
	if s.c.Evaluate.Off {
		return t
	}
	t.Validation = cmp.Or(validation, s.c.Evaluate.Batch, s.model.Validation, t.Batch)
	return t
}

// Need returns what a course needs of a budget at most, in bytes; [math.MaxInt64] if it does not get
// through. Where no loop was chosen, it is the most of both. A need beyond
// the limit may be less than the most: what was beyond it first, without the perturbed replays.
func (s *Setup) Need(ctx context.Context, gpu device.GPU, b planner.Budget, c *Course) (most int64, err error) {
	if other := s.withOtherLoop(); other != nil {
		course, err := other.Course(ctx, other.Trial(gpu, c.Training.trial.Batch), c.Validation)
		if err != nil {
			return 0, err
		}
		defer course.Training.Discard()
		if most, err = other.Need(ctx, gpu, b, course); err != nil || most > b.Limit() {
			return most, err
		}
	}
	nominal, err := s.needOf(gpu, b, c)
	if err != nil || nominal > b.Limit() {
		return nominal, err
	}
	if err := s.Perturb(ctx, c); err != nil {
		return 0, err
	}
	perturbed, err := s.needOf(gpu, b, c)
	return max(most, perturbed), err
}

// needOf returns the device memory in bytes that a budget compares with its limit: the most of the replays of a course,
// with the spread of those that were perturbed.
func (s *Setup) needOf(gpu device.GPU, b planner.Budget, c *Course) (most int64, err error) {
	for _, r := range []*Result{c.Training, c.With} {
		if r.Run.OOM != nil {
			return math.MaxInt64, nil
		}
		e, err := s.Estimate(gpu, r.Sample())
		if err != nil {
			return 0, err
		}
		if e.Host.Exceeds() {
			return math.MaxInt64, nil
		}
		most = max(most, b.Need(e))
	}
	return most, nil
}

// OtherLoop returns the case with the other of the two training loops that a batch must be safe in where no flag chose
// one: the model's own, and the plain one, which keeps most of a step alive. It is false where a loop was chosen.
func (s *Setup) OtherLoop(c models.Case) (models.Case, bool) {
	if own := s.evidence.OwnLoop; own != "" && c.Loop != own {
		c.Loop = own
		return c, true
	}
	return s.model.KeepingMost(c)
}

// withOtherLoop returns the setup of [Setup.OtherLoop], nil where a loop was chosen. Where the model returns the loss
// alone, only that lives longer, which changes the spread of reserved bytes.
func (s *Setup) withOtherLoop() *Setup {
	if c, unchosen := s.OtherLoop(s.c); unchosen {
		return s.For(c)
	}
	return nil
}

// need returns the most that a batch size needs at any point of training.
func (s *Safety) need(ctx context.Context, batch int) (most int64, err error) {
	for _, c := range s.Cases {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		course, err := c.Course(ctx, c.Trial(s.GPU, batch), s.Validation)
		if err != nil {
			return 0, err
		}
		n, err := c.Need(ctx, s.GPU, s.Budget, course)
		course.Training.Discard()
		if most = max(most, n); err != nil || most > s.Budget.Limit() {
			return most, err
		}
	}
	return most, nil
}

// Largest returns the largest safe batch up to one; zero if none is.
func (s *Safety) Largest(ctx context.Context, begin planner.Start, to int) (int, error) {
	return Largest(s.search(ctx, begin, to))
}

// Judge is why a batch size is not safe, and the size that is not: the batch itself, the next
// size of the search, or a smaller one. The reason is empty if it is safe.
func (s *Safety) Judge(ctx context.Context, batch int) (why planner.Reason, at int, err error) {
	safe, at, err := safeAt(s.search(ctx, planner.Start{}, batch), batch)
	switch {
	case err != nil || safe:
		return "", 0, err
	case at < batch:
		return planner.SmallerBatch, at, nil
	}
	return s.Budget.Judge(s.known[at]), at, nil
}

// Unsafe is why a batch is not safe on a GPU, of which others hold some bytes, by its estimate, or if
// that is, by what else decides; empty if it is safe.
func (s *Setup) Unsafe(
	ctx context.Context, gpu device.GPU, e planner.Estimate, others int64,
) (report.Reason, error) {
	if e.Host.Exceeds() {
		return report.Reason(planner.HostFull), nil
	}
	safety, err := s.Safety(gpu, planner.Budget{Margin: planner.DefaultMargin}, others)
	if err != nil { // nothing is left of the GPU
		return report.Reason(planner.GPUFull), nil
	}
	why := safety.Budget.Why(e)
	if why == "" {
		why, _, err = safety.Judge(ctx, e.Batch)
	}
	return report.Reason(why), err
}

func (s *Safety) search(ctx context.Context, begin planner.Start, to int) *planner.Search {
	if s.known == nil {
		s.known = map[int]int64{}
	}
	return &planner.Search{
		From: 1, Begin: begin, To: to, Limit: s.Budget.Limit(), Jagged: s.Cases[0].Jagged(),
		Need: func(batch int) (int64, error) {
			if n, ok := s.known[batch]; ok {
				return n, nil
			}
			n, err := s.need(ctx, batch)
			if err == nil {
				s.known[batch] = n
			}
			return n, err
		},
	}
}

// Safe reports whether a batch of a search is safe, from one, or from two if PyTorch refuses one.
func Safe(s *planner.Search, batch int) (bool, error) {
	safe, _, err := safeAt(s, batch)
	return safe, err
}

func safeAt(s *planner.Search, batch int) (safe bool, at int, err error) {
	safe, at, err = s.Safe(batch)
	if errors.As(err, new(*RefusedError)) && batch > 1 && s.From < 2 {
		s.From = 2
		return s.Safe(batch)
	}
	return safe, at, err
}

// Largest returns the largest safe batch of a search from one, or from two if PyTorch refuses one, as
// batch norm does; zero if none is.
func Largest(s *planner.Search) (int, error) {
	largest, err := s.Largest()
	if errors.As(err, new(*RefusedError)) && s.To > 1 {
		s.From = 2
		return s.Largest()
	}
	return largest, err
}

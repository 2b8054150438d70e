package step

import (
	"context"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/planner"
)

// Judge is the estimate of a trial as reports show it, with the verdict that every command
// gives. Where the board's memory lies within the estimate's interval, a replay on the board
// decides, of which other processes hold some bytes: the case does not fit if the replay runs
// out of memory, however wide the interval is, and is slow if the replay has to give cached
// memory back. Where no flag chose a loop, the verdict is that of the loop that needs more.
func (s *Setup) Judge(ctx context.Context, e planner.Estimate, r *Result, others int64) (*report.Estimate, error) {
	out := EstimateOf(e)
	if err := s.onBoard(ctx, out, r, Replay{Within: true, Others: others, Training: true}); err != nil {
		return nil, err
	}
	if err := s.evaluate(ctx, out, r, others); err != nil {
		return nil, err
	}
	return out, s.keepMost(ctx, out, r, others)
}

// onBoard has a replay on the board decide where the board's memory lies within the interval of an estimate.
func (s *Setup) onBoard(ctx context.Context, out *report.Estimate, r *Result, how Replay) error {
	if out.Verdict != report.Tight {
		return nil
	}
	on, err := s.Try(ctx, r.Again(how))
	if err == nil {
		out.Verdict = on.Report().Judge(out.Verdict)
	}
	return err
}

// keepMost adds to the estimate of a trial what the loop needs that keeps the most of a step, and
// its verdict if that is worse. Where a loop was chosen, or the model returns the loss alone, there is nothing to add.
func (s *Setup) keepMost(ctx context.Context, out *report.Estimate, r *Result, others int64) error {
	c, open := s.model.KeepingMost(s.c)
	if !open || r.Facts.Outputs == 0 {
		return nil
	}
	most, gpu := s.For(c), r.trial.Board
	tried, err := most.Settled(ctx, most.training(most.Trial(gpu, r.trial.Batch), 0))
	if err != nil {
		return err
	}
	defer tried.Discard()
	p, err := most.Planner(gpu, tried.Sample())
	if err != nil {
		return err
	}
	p.Memory -= others
	e, err := p.Estimate(r.trial.Batch)
	if err != nil {
		return err
	}
	judged, err := most.Judge(ctx, e, tried, others)
	if err != nil || judged.Device.Bytes <= out.Device.Bytes {
		return err
	}
	out.Open, out.Verdict = &report.OpenLoop{Loop: s.model.Levers.Loop, Device: judged.Device},
		out.Verdict.Worse(judged.Verdict)
	return nil
}

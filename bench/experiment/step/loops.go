package step

import (
	"cmp"

	"github.com/vprof/vprof/models"
)

// Loops returns the case in each training loop that it may have: in its own and, if no flag chose the loop, also in the
// plain one, which keeps most of a step alive. A batch must be safe in both.
func (s *Setup) Loops() []*Setup {
	c, unchosen := s.model.KeepingMost(s.c)
	if !unchosen || s.model.Levers.Loop == models.LoopPlain {
		return []*Setup{s}
	}
	return []*Setup{s, s.For(c)}
}

// KeepingMost returns the case in the loop that keeps most of a step alive, of the loops that it may have.
func (s *Setup) KeepingMost() *Setup {
	loops := s.Loops()
	return loops[len(loops)-1]
}

// Loop returns the name of the training loop; empty for a model with a loop of its own.
func (s *Setup) Loop() models.Loop { return cmp.Or(s.c.Loop, s.model.Levers.Loop) }

// Evaluates reports whether training evaluates: users asked for it, or the project's own loop does.
func (s *Setup) Evaluates() bool {
	return !s.c.Evaluate.Off && (!s.c.Evaluate.IsZero() || s.model.Levers.Loop == "")
}

// Training returns a trial that also records an evaluation batch, unless the case has none, but replays only the
// training steps. A batch size of zero means the evaluation's own, the project's, or the training's.
func (s *Setup) Training(t Trial, evaluation int) Trial {
	t.Replay.Training = true
	if !s.c.Evaluate.Off {
		t.Validation = cmp.Or(evaluation, s.c.Evaluate.Batch, s.model.Validation, t.Batch)
	}
	return t
}

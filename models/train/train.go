// Package train has what the training loops of all systems share: autocast and
// loss scaling, clipping, the optimizer's step. Names and order follow the
// loops' PyTorch code.
package train

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Counts are the element counts of a model and its criterion, which may be
// nil.
func Counts(net, criterion *nn.Tree) models.Counts {
	var c models.Counts
	c.Total, c.Trainable = net.Numel()
	c.Buffers = net.BufferNumel()
	if criterion != nil {
		c.Criterion, _ = criterion.Numel()
	}
	return c
}

// Session is a training loop in progress.
type Session struct {
	Tape *trace.Tape
	amp  string
}

// Autocast runs f in the case's precision.
func (s *Session) Autocast(f func()) {
	switch s.amp {
	case "fp16":
		s.Tape.Autocast(trace.F16, f)
	case "bf16":
		s.Tape.Autocast(trace.BF16, f)
	default:
		f()
	}
}

type Recipe struct{}

func AdamW(wd float64) Recipe { return Recipe{} }

type StepOption struct{}

func Clip(float64) StepOption { return StepOption{} }
func NewSession(t *trace.Tape, c models.Case, p []*nn.Parameter, r Recipe) *Session {
	return &Session{Tape: t, amp: c.AMP}
}
func (s *Session) Backward(f *trace.Frame, loss *trace.Tensor) { loss.Backward() }
func (s *Session) ClipWithoutScaler(float64)                   {}
func (s *Session) Step(o ...StepOption)                        {}
func (s *Session) ZeroGrad()                                   {}

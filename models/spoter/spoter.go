// Package spoter records the training of BdSLW-SPOTER, which recognizes words of sign language from poses: the
// eight-layer encoder of the training notebook, and the six-layer encoder of an earlier notebook.
package spoter

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// The numbers of frames of a clip: padded, or cut at firstFrames by the earlier notebook.
const (
	frames      = 150
	firstFrames = 100
)

// inference is the freeze stage in which nothing is trained.
const inference = "inference"

// Models returns the models of both training phases; stage inference evaluates the second phase's network.
func Models() []models.Model {
	entry := func(name, summary string, first bool, validation int, d models.Case, notes ...string) models.Model {
		stages, trains := []string{"full"}, map[string]string(nil)
		if !first {
			stages = append(stages, inference)
			trains = map[string]string{
				inference: "nothing: phase 5, the evaluation of the trained network without gradients",
			}
		}
		d.Model, d.Stage = name, "full"
		return models.Model{
			Name: name, Summary: summary, Validation: validation,
			Source:         "sayad-dot/BDSLW_SPOTER, phase 3 and phase 4 notebooks",
			Stages:         stages,
			TrainedByStage: trains,
			Default:        d,
			Batches:        []int{4, 8, 16, 32, 64, 128},
			BatchUnit:      "clip",
			Notes:          append(notes, "the notebook trains in fp32: its mixed precision is not there"),
			Check:          check,
			Caveat:         caveats,
			Build:          func(c models.Case) (models.Trainer, error) { return newTrainer(c, first), nil },
		}
	}
	return []models.Model{
		entry("bdslw-spoter", "sign language transformer, 8 layers, 150 frames (phase 4)", false, 16,
			models.Case{Batch: 8, Accumulate: 2},
			"head width 12 keeps fp16 off the fused attention kernels: autocast needs more memory than fp32"),
		entry("bdslw-spoter-phase3", "sign language transformer, 6 layers, 100 frames (phase 3)", true, 0,
			models.Case{Batch: 16, Accumulate: 1},
			"its attention is written out: it materializes the probabilities in every precision"),
	}
}

// check returns an error for options that the inference stage does not support.
func check(c models.Case) error {
	if c.Stage == inference && c.Optimizer != "" {
		return &models.CaseError{Model: c.Model, Field: "optimizer", Reason: "stage " + inference + " has none"}
	}
	return nil
}

func caveats(c models.Case) []string {
	if c.AMP != "" && c.Stage != inference {
		return []string{"the system's notebook has no autocast: it trains in fp32"}
	}
	return nil
}

// trainer records training steps of one case.
type trainer struct {
	train.OwnLoopModel[batch]
	first bool
	model network
}

func newTrainer(c models.Case, first bool) *trainer {
	t := &trainer{first: first, model: newSpoterNet()}
	if first {
		t.model = newFirstNotebookNet()
	}
	t.OwnLoopModel = train.OwnLoopModel[batch]{
		Case: c, Net: nn.NewTree(t.model), HasNoOptimizer: c.Stage == inference, Load: t.load, Step: t.step,
		ComputeLosses: func(f *trace.Frame, b batch) { t.losses(f, new(*tensor), new(*tensor), b) },
	}
	if t.HasNoOptimizer {
		t.Step = func(s *train.Session, _ *optim.Optimizer, b batch) { t.evaluate(s, b) }
	}
	return t
}

type batch struct{ poses, mask, labels *tensor }

// load copies n clips to the device.
func (t *trainer) load(tape *trace.Tape, clips int) batch {
	n, length := int64(clips), int64(frames)
	if t.first {
		length = firstFrames
	}
	return batch{
		poses:  tape.Hold(tape.New("randn", program.Batch, trace.F32, n, length, features)),
		mask:   tape.Hold(tape.New("ones", program.Batch, trace.F32, n, length)),
		labels: tape.Hold(tape.New("randint", program.Batch, trace.I64, n)),
	}
}

// losses records the forward pass and the loss.
func (t *trainer) losses(f *trace.Frame, logits, loss **tensor, b batch) {
	smoothing := 0.1
	if t.first {
		smoothing = 0
	}
	f.Set(logits, t.model.call(f, b.poses, b.mask, t.Case.Checkpointing))
	f.Tape().Mark("forward")
	f.Set(loss, (*logits).CrossEntropyWith(b.labels, trace.CrossEntropyArgs{LabelSmoothing: smoothing}))
	if !t.first {
		f.Set(loss, (*loss).DivScalar())
	}
	f.Tape().Mark("loss")
}

// step records one optimizer step of the notebook's loop.
func (t *trainer) step(s *train.Session, opt *optim.Optimizer, b batch) {
	f := s.Tape.Frame()
	t.Net.SetTraining(true)
	var logits, loss, correct *tensor
	for micro := range t.Case.Accumulate {
		if t.first {
			opt.ZeroGrad()
		}
		s.Autocast(func() { t.losses(f, &logits, &loss, b) })
		s.Backward(loss)
		s.Tape.Mark("backward")
		if micro+1 == t.Case.Accumulate {
			s.Step(opt, t.Net.Parameters)
			s.Tape.Mark("optimizer")
			if !t.first {
				opt.ZeroGrad()
			}
		}
		f.Set(&correct, logits.ArgMax(false, 1).Eq(b.labels).Sum(false))
	}
	s.Tape.Mark("zero_grad")
	train.EndTrainingStep(f, loss)
}

// evaluate records as many evaluation batches as a training step has micro-batches.
func (t *trainer) evaluate(s *train.Session, b batch) {
	f := s.Tape.Frame()
	t.Net.SetTraining(false)
	var logits, correct *tensor
	s.Tape.NoGrad(func() {
		for range t.Case.Accumulate {
			s.Autocast(func() { f.Set(&logits, t.model.call(f, b.poses, b.mask, false)) })
			s.Tape.Mark("forward")
			f.Set(&correct, logits.ArgMax(false, 1).Eq(b.labels).Sum(false))
			s.Tape.Mark("accuracy")
		}
	})
	f.End()
}

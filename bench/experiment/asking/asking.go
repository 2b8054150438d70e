// Package asking finds the convolutions of training steps whose cuDNN workspace is estimated by a model because vprof
// has no recorded answer of cuDNN. "vprof capture ask" sends these questions to cuDNN.
package asking

import (
	"context"
	"errors"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// GenerationQuestions is the set of questions for cuDNN about the GPUs of one architecture, without duplicates.
type GenerationQuestions struct {
	// Generation is the GPUs' architecture, as returned by [cudnn.Generation].
	Generation int
	Questions  []query.Question
	known      map[query.Question]bool
}

// Options select the training steps whose convolutions are collected.
type Options struct {
	// Setups are the cases to record, at all batch sizes on all GPUs.
	Setups  []*step.Setup
	GPUs    []device.GPU
	Batches []int
	// SkipRefused reports whether batch sizes that PyTorch refuses are left out.
	SkipRefused bool
	// RepeatAnswered reports whether convolutions with a recorded answer are included.
	RepeatAnswered bool
	// MaxQuestions is the number of questions after which no further batch sizes are recorded; 0 is no limit.
	MaxQuestions int
}

// CollectQuestions records all steps and returns the questions about their convolutions, one set for each GPU
// architecture. Errors come from [step.Setup.Record].
func CollectQuestions(ctx context.Context, o Options) ([]*GenerationQuestions, error) {
	var topics []*GenerationQuestions
	questions := 0
	for _, batch := range o.Batches {
		if o.MaxQuestions > 0 && questions >= o.MaxQuestions {
			break
		}
		questions = 0
		for _, gpu := range o.GPUs {
			generation := cudnn.Generation(cudnn.GPU{Capability: int(gpu.Capability)})
			i := slices.IndexFunc(topics, func(t *GenerationQuestions) bool { return t.Generation == generation })
			if i < 0 {
				i = len(topics)
				topics = append(topics, &GenerationQuestions{Generation: generation, known: map[query.Question]bool{}})
			}
			if err := topics[i].record(ctx, o, batch, gpu); err != nil {
				return nil, err
			}
			questions += len(topics[i].Questions)
		}
	}
	return topics, nil
}

// record adds the questions about the training steps at a batch size on a GPU.
func (t *GenerationQuestions) record(ctx context.Context, o Options, batch int, gpu device.GPU) error {
	for _, s := range o.Setups {
		rec, err := s.Record(ctx, batch, gpu)
		if refused := (*step.RefusedError)(nil); o.SkipRefused && errors.As(err, &refused) {
			continue
		}
		if err != nil {
			return err
		}
		t.add(rec.Facts.Convolutions, o.RepeatAnswered)
	}
	return nil
}

func (t *GenerationQuestions) add(calls []trace.Convolution, again bool) {
	for _, c := range calls {
		q := query.NewQuestion(c.Config, c.Direction)
		if !t.known[q] && (again || !c.Asked) {
			t.known[q] = true
			t.Questions = append(t.Questions, q)
		}
	}
}

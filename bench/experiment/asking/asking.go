// Package asking finds the convolutions of training steps whose cuDNN workspace is
// modeled, since cuDNN was not asked about them yet: the questions of vprof capture ask.
package asking

import (
	"context"
	"errors"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/oracle"
)

// Topic is the questions that are put to cuDNN for the boards of one architecture,
// without duplicates.
type Topic struct {
	// Generation is the boards' architecture, as [cudnn.Generation] has it.
	Generation int
	Questions  []oracle.Question
	known      map[oracle.Question]bool
}

// Options are the training steps whose convolutions are collected.
type Options struct {
	// Setups are recorded at all batch sizes on all boards.
	Setups  []*step.Setup
	GPUs    []device.GPU
	Batches []int
	// Possible leaves out batch sizes that PyTorch refuses.
	Possible bool
	// Again asks about convolutions that have an answer, too.
	Again bool
}

// Topics records all steps and returns the questions about their convolutions, a topic
// for each architecture. Errors are those of [step.Setup.Record].
func Topics(ctx context.Context, o Options) ([]*Topic, error) {
	var topics []*Topic
	for _, gpu := range o.GPUs {
		generation := cudnn.Generation(cudnn.Board{Capability: int(gpu.Capability)})
		i := slices.IndexFunc(topics, func(t *Topic) bool { return t.Generation == generation })
		if i < 0 {
			i = len(topics)
			topics = append(topics, &Topic{Generation: generation, known: map[oracle.Question]bool{}})
		}
		for _, s := range o.Setups {
			for _, batch := range o.Batches {
				rec, err := s.Record(ctx, batch, gpu)
				if refused := (*step.RefusedError)(nil); o.Possible && errors.As(err, &refused) {
					continue
				}
				if err != nil {
					return nil, err
				}
				topics[i].add(rec.Facts.Convolutions, o.Again)
			}
		}
	}
	return topics, nil
}

func (t *Topic) add(calls []trace.Convolution, again bool) {
	for _, c := range calls {
		q := oracle.Of(c.Config, c.Direction)
		if !t.known[q] && (again || !c.Asked) {
			t.known[q] = true
			t.Questions = append(t.Questions, q)
		}
	}
}

// Package toy is a model for tests whose memory is easy to compute.
//
// Its weights have 16 MiB. A sample needs 1 MiB of batch data, 10 MiB of activations (5 in half precision, 2 with
// checkpointing), and 4 MiB of temporaries in backward and in validation, each times seq-len. Gradients have the size
// of the weights. The optimizer's state, created in the first step, has twice that size. Only stage full has gradients
// and a state. Like PyTorch's batch norm, it refuses a batch of one.
//
// Its peak is in the backward of a step after the first: in stage full and fp32, 16 + 32 + 16 MiB, and 15 MiB per
// sample.
package toy

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

const mib = 1 << 20

// Model returns the toy model under the name "toy".
func Model() models.Model {
	return models.Model{
		Name: "toy", Summary: "a model to add up in the head", Source: "tools/toy", BatchUnit: "sample",
		Stages: []string{"full", "frozen"}, Batches: []int{8, 16, 32, 64},
		Default: models.Case{Stage: "full", Batch: 16, Accumulate: 1},
		Settings: []models.Setting{
			{Name: "seq-len", Usage: "tokens of a sample", Length: true, Default: 1, Min: 1, Max: 64},
			{Name: "heads", Usage: "heads that share the tokens", Default: 1, Min: 1, Max: 64},
		},
		Check: check,
		Notes: []string{"It trains nothing."},
		Build: func(c models.Case) (models.Trainer, error) { return trainer{c}, nil },
	}
}

// check returns an error unless the heads divide the tokens evenly.
func check(c models.Case) error {
	if n, heads := c.Settings["seq-len"], c.Settings["heads"]; n%heads != 0 {
		return &models.CaseError{
			Model: "toy", Field: "heads",
			Reason: fmt.Sprintf("%d does not divide seq-len %d", heads, n),
		}
	}
	return nil
}

type trainer struct{ c models.Case }

// Counts implements [models.Trainer].
func (m trainer) Counts() models.Counts {
	n := models.Counts{Total: 4 << 20, Trainable: 4 << 20, Gradients: 16 << 20}
	if m.c.Stage == "frozen" {
		n.Trainable, n.Gradients = 0, 0
	}
	return n
}

// Record implements [models.Trainer].
func (m trainer) Record(t *trace.Tape, steps int) error {
	if m.c.Batch == 1 {
		return fmt.Errorf(
			"norm: Expected more than 1 value per channel when training, got input size torch.Size([1, 64])")
	}
	f := t.Frame() // never ended: weights, batch and state stay allocated
	f.Bind(bytes(t, "to", program.Weights, 16*mib))
	t.Mark("model")
	f.Bind(bytes(t, "to", program.Batch, mib*m.batch()))
	t.Mark("batch")
	for step := range steps {
		t.SetStep(step)
		m.step(t, f, step == 0)
		t.Mark("step_end")
	}
	return nil
}

// Validate implements [models.Validator].
func (m trainer) Validate(t *trace.Tape, n int) error {
	f := t.Frame()
	m.c.Batch = n
	f.Bind(bytes(t, "to", program.Batch, mib*m.batch()))
	f.Bind(bytes(t, "linear", program.Temporaries, 4*mib*m.batch()))
	f.End()
	t.Mark("step_end")
	return nil
}

func (m trainer) step(t *trace.Tape, f *trace.Frame, first bool) {
	var grad *trace.Tensor
	for range m.c.Accumulate {
		y := f.Bind(bytes(t, "linear", program.Activations, m.activations()))
		t.Mark("forward")
		g := f.Bind(bytes(t, "mul", program.Temporaries, 4*mib*m.batch()))
		if grad == nil && m.c.Stage == "full" {
			grad = f.Bind(bytes(t, "mm", program.Gradients, 16*mib))
		}
		f.Del(&g, &y)
		t.Mark("backward")
	}
	if grad != nil {
		if first {
			f.Bind(bytes(t, "_foreach_add", program.OptimizerState, 32*mib))
		}
		f.Del(&grad)
	}
	t.Mark("optimizer")
}

// batch returns the number of samples of one token, batch times seq-len.
func (m trainer) batch() int64 { return int64(m.c.Batch) * max(1, m.c.Settings["seq-len"]) }

func (m trainer) activations() int64 {
	switch {
	case m.c.Checkpointing:
		return 2 * mib * m.batch()
	case m.c.AMP != "":
		return 5 * mib * m.batch()
	}
	return 10 * mib * m.batch()
}

func bytes(t *trace.Tape, op string, c program.Class, n int64) *trace.Tensor {
	return t.New(op, c, trace.F32, n/trace.F32.Size())
}

// Package modelcard collects what is known about a model: element counts, the tensors of a batch, attention backends,
// and the values that its guide states.
package modelcard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/vprof/vprof/bench/experiment/claims"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/trace"
)

// Describe records a model to collect what the registry lacks: element counts of each stage, the tensors of a batch,
// attention backends by precision, and the guide's values compared with vprof's.
func Describe(
	ctx context.Context, m models.Model, gpu device.GPU, residuals step.ResidualsFunc,
) (*report.Model, error) {
	out := &report.Model{GPU: gpu.Name}
	tasks := m.Tasks
	if len(tasks) == 0 {
		tasks = []string{""}
	}
	for _, task := range tasks {
		for _, stage := range m.Stages {
			c := m.DefaultCase()
			c.Task, c.Stage = task, stage
			counts, err := countsOf(m, c)
			if err != nil {
				return nil, err
			}
			out.Parameters = append(out.Parameters, report.Stage{
				Task: task, Stage: stage, Trains: m.StageDescription(stage),
				Parameters: step.ParametersOf(counts),
			})
		}
	}
	var err error
	if out.Inputs, err = inputsOf(m, gpu); err != nil && !errors.As(err, new(*step.RefusedError)) {
		return nil, err
	}
	if out.Attention, err = attentionOf(ctx, m, gpu); err != nil && !errors.As(err, new(*step.RefusedError)) {
		return nil, err
	}
	out.Claims, err = claims.AnswersFor(ctx, m, gpu, residuals)
	return out, err
}

func countsOf(m models.Model, c models.Case) (models.Counts, error) {
	c, err := m.Complete(c)
	if err != nil {
		return models.Counts{}, err
	}
	trainer, err := m.Build(c)
	if err != nil {
		return models.Counts{}, fmt.Errorf("%s: %w", m.Name, err)
	}
	return trainer.Counts(), nil
}

// factsOf records one step of the model's default case at a batch size and returns the recording's facts. The weights
// are fp32, which works with any precision.
func factsOf(m models.Model, gpu device.GPU, amp models.Autocast, batch int) (trace.Facts, error) {
	c := m.DefaultCase()
	c.AMP, c.Batch, c.Weights = amp, batch, ""
	if c.Task == "" && len(m.Tasks) > 0 {
		c.Task = m.Tasks[0]
	}
	rec, err := m.Record(c, step.RecorderGPU(gpu), models.Options{Steps: 1})
	if err != nil {
		return trace.Facts{}, &step.RefusedError{Err: fmt.Errorf("%s: batch %d: %w", m.Name, batch, err)}
	}
	return rec.Facts, nil
}

// inputsOf lists the tensors of a batch. Recordings of two batch sizes show which dimensions grow with the batch size.
func inputsOf(m models.Model, gpu device.GPU) ([]report.Input, error) {
	const small, large = 2, 3
	a, err := factsOf(m, gpu, m.Default.AMP, small)
	if err != nil {
		return nil, err
	}
	b, err := factsOf(m, gpu, m.Default.AMP, large)
	if err != nil {
		return nil, err
	}
	var out []report.Input
	for i, x := range a.Inputs {
		in := report.Input{Type: x.DType.Torch(), Count: 1}
		for j, n := range x.Shape {
			in.Shape = append(in.Shape, sizeOf(n, b.Inputs[i].Shape[j], small, large))
		}
		if n := len(out) - 1; n >= 0 && out[n].Type == in.Type && slices.Equal(out[n].Shape, in.Shape) {
			out[n].Count++
			continue
		}
		out = append(out, in)
	}
	return out, nil
}

// sizeOf formats a dimension that has size n at batch size a and m at batch size b: "48000", "B", "8·B".
func sizeOf(n, m, a, b int64) string {
	switch {
	case n == m:
		return strconv.FormatInt(n, 10)
	case n == a && m == b:
		return "B"
	case n%a == 0 && n/a*b == m:
		return strconv.FormatInt(n/a, 10) + "·B"
	}
	return fmt.Sprintf("%d at B=%d", n, a)
}

// attentionOf lists the backend of each attention call, by precision.
func attentionOf(ctx context.Context, m models.Model, gpu device.GPU) ([]report.AttentionBackend, error) {
	var out []report.AttentionBackend
	for _, amp := range models.AutocastPrecisions() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		facts, err := factsOf(m, gpu, amp, 2)
		if err != nil {
			return nil, err
		}
		for _, a := range facts.Attention {
			out = append(out, report.AttentionBackend{
				Precision: cmp.Or(string(amp), "fp32"), Backend: a.Backend, HeadWidth: a.HeadWidth,
				Masked: a.Masked, Why: a.Why,
			})
		}
	}
	return out, nil
}

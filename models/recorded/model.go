package recorded

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/cudnnanswers"
)

// stepModel returns the model of recorded eager steps. Its cases may change only the fields in [changeableFields].
func stepModel(f *File, name string, o cudnnanswers.Source) (models.Model, error) {
	torch, err := models.ParseRelease(f.Torch)
	if err != nil {
		return models.Model{}, err
	}
	first := f.Recordings[0]
	var losses []string
	if f.Steps.Loss != "" {
		losses = append(losses, f.Steps.Loss)
	}
	usual := models.Case{
		Model: name, Stage: "full", Batch: first.Batch, Accumulate: 1, Torch: torch, Loss: f.Steps.Loss,
		AMP: models.Autocast(first.AMP),
	}
	return models.Model{
		Name: name, Summary: "a training step of " + f.Name, Torch: f.Torch,
		Source: "recorded for " + f.GPU + ", torch " + f.Torch, Stages: []string{"full"}, Default: usual,
		Supports: models.MemoryOptionSupport{Loop: models.LoopFunction}, Batches: f.batches(first.AMP),
		BatchUnit: "sample",
		Losses:    losses, UserModel: true,
		IsPartial: f.deviation(first.AMP) > 0,
		Check: func(c models.Case) error {
			why := f.difference(c, usual)
			switch {
			case c.Compile:
				why = "recorded without torch.compile"
			case c.ReleaseName() != usual.ReleaseName():
				why = "PyTorch " + f.Torch + " ran what is recorded, and another release may allocate otherwise"
			case why == "":
				return nil
			}
			return &models.CaseError{Model: name, Field: "recorded step", Reason: why}
		},
		Caveat: f.stepCaveats,
		Build: func(c models.Case) (models.Trainer, error) {
			r, err := f.AtBatch(string(c.AMP), c.Batch)
			if err != nil {
				return nil, err
			}
			return newTrainer(f, r, c, o), nil
		},
	}, nil
}

// batches returns the recorded batch sizes in a precision, ascending.
func (f *File) batches(amp string) []int {
	return slices.Compact(lists.Map(f.recordings(amp), func(r *Recording) int { return r.Batch }))
}

// stepCaveats returns warnings that limit the estimates of recorded steps.
func (f *File) stepCaveats(c models.Case) []string {
	amp := string(c.AMP)
	batches := f.batches(amp)
	all := []string{fmt.Sprintf("recorded: the step as it ran under PyTorch %s on a simulated %s at batch %s; on "+
		"other GPUs libraries may choose other kernels", f.Torch, f.GPU, strings.Trim(fmt.Sprint(batches), "[]"))}
	if from, to := batches[0], batches[len(batches)-1]; c.Batch < from || c.Batch > to {
		all = append(all, fmt.Sprintf("recorded: what lies beyond batch %d to %d goes on in a line", from, to))
	}
	if f.deviation(amp) > 0 {
		all = append(all, "recorded: "+f.Linearity(amp))
	}
	if len(f.Steps.Guessed) > 0 {
		all = append(all, "recorded: the control flow of the step depends on numbers that were never computed, at "+
			strings.Join(f.Steps.Guessed, ", "))
	}
	return all
}

// Linearity returns a sentence about how linear the recorded peaks of a precision are in the batch size.
func (f *File) Linearity(amp string) string {
	switch name, off := models.Autocast(amp), f.deviation(amp); {
	case len(f.batches(amp)) < 3:
		return fmt.Sprintf("amp %v: too few batch sizes to see whether sizes follow the batch in a line; record three",
			name)
	case math.IsInf(off, 1):
		return fmt.Sprintf("amp %v: steps of different batch sizes have too little in common to follow from each other",
			name)
	case off > 0:
		return fmt.Sprintf("amp %v: sizes do not follow the batch in a line, peaks between recorded ones are up to "+
			"%.2g %% off", name, 100*off)
	default:
		return fmt.Sprintf("amp %v: sizes follow the batch in a line", name)
	}
}

// deviation returns the largest relative difference between a recording's peak and the peak interpolated from its
// neighbors; infinite if nothing can be interpolated.
func (f *File) deviation(amp string) float64 {
	most := 0.0
	all := f.recordings(amp)
	for i := 1; i < len(all)-1; i++ {
		others := File{Header: f.Header, Recordings: slices.Delete(slices.Clone(all), i, i+1)}
		line, err := others.AtBatch(amp, all[i].Batch)
		if err != nil {
			return math.Inf(1)
		}
		was, follows := all[i].steps[1].peak(), line.steps[1].peak()
		most = max(most, math.Abs(float64(was-follows))/float64(max(was, 1)))
	}
	return most
}

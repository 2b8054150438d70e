package compiled

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/asked"
)

const (
	// Eager is the form of a step that ran as it is, without torch.compile.
	Eager = "eager"
	// StepScheme is what the names of models begin with that have no graph, but a recorded eager step.
	StepScheme = "step"
	// StepSuffix is what their files end in.
	StepSuffix = ".step"
)

// Steps opens the files that vprof capture --step writes: models that torch.export refuses, each with a training step
// that was recorded as it ran.
func Steps(o asked.Oracle) models.Source {
	return models.FileSource(StepScheme, StepSuffix, "recorded step",
		func(file, name string, content []byte) (models.Model, error) {
			return stepModel(file, name, content, o)
		})
}

// stepModel returns the model of a file's content. Its cases are what the recording leaves open: see [leftOpen].
func stepModel(file, name string, content []byte, o asked.Oracle) (models.Model, error) {
	f, err := Read(content, file)
	if err == nil && f.Form != Eager {
		err = input.KeyErrorf(file, "form",
			"is %s: a compiled step, which --torch-compile takes from beside the model's own file", f.Form)
	}
	if err != nil {
		return models.Model{}, err
	}
	torch, err := models.ParseRelease(f.Torch)
	if err != nil {
		return models.Model{}, err
	}
	first, levers := &f.Recordings[0], models.LeverSet{}
	if first.Steps[1].Returned != nil {
		levers.Loop = models.LoopFunction
	}
	usual := models.Case{
		Model: name, Stage: "full", Batch: first.Batch, Accumulate: 1, Torch: torch, Loss: f.Loss,
		AMP: models.Autocast(first.AMP),
	}
	return models.Model{
		Name: name, Summary: "a training step of " + f.Model, Torch: f.Torch,
		Source: "recorded for " + f.GPU + ", torch " + f.Torch, Stages: []string{"full"}, Default: usual,
		Levers: levers, Batches: f.batches(first.AMP), BatchUnit: "sample", Foreign: true,
		Partial: f.offTheLine(first.AMP) > 0,
		Check: func(c models.Case) error {
			why := f.differs(c, usual)
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
	var all []int
	for i := range f.Recordings {
		if r := &f.Recordings[i]; r.AMP == amp {
			all = append(all, r.Batch)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// stepCaveats say what the figures of a recorded step are.
func (f *File) stepCaveats(c models.Case) []string {
	amp := precision(c.AMP)
	batches := strings.Trim(fmt.Sprint(f.batches(amp)), "[]")
	all := []string{fmt.Sprintf("recorded: the step as it ran under PyTorch %s on a simulated %s at batch %s; on "+
		"other GPUs libraries may choose other kernels", f.Torch, f.GPU, batches)}
	if from, to := f.batchRange(amp); c.Batch < from || c.Batch > to {
		all = append(all, fmt.Sprintf("recorded: what lies beyond batch %d to %d goes on in a line", from, to))
	}
	if f.offTheLine(amp) > 0 {
		all = append(all, "recorded: "+f.Line(amp))
	}
	if len(f.Guessed) > 0 {
		all = append(all, "recorded: the course of the step depends on numbers that were never computed, at "+
			strings.Join(f.Guessed, ", "))
	}
	return all
}

// Line says whether what lies between the recordings of a precision follows from them in a line.
func (f *File) Line(amp string) string {
	name, off := noneOr(amp), f.offTheLine(amp)
	switch {
	case len(f.batches(amp)) < 3:
		return "amp " + name + ": too few batch sizes to see whether sizes follow the batch in a line; record three"
	case math.IsInf(off, 1):
		return "amp " + name + ": steps of different batch sizes have too little in common to follow from each other"
	case off > 0:
		return fmt.Sprintf("amp %s: sizes do not follow the batch in a line, peaks between recorded ones are up to "+
			"%.2g %% off", name, 100*off)
	}
	return "amp " + name + ": sizes follow the batch in a line"
}

// offTheLine returns how far, as a share, the peaks that follow from neighboring recordings of a precision are from
// those of the recording between them, at most; infinite where nothing follows.
func (f *File) offTheLine(amp string) float64 {
	batches := f.batches(amp)
	most := 0.0
	for i := 1; i < len(batches)-1; i++ {
		others := *f
		others.Recordings = slices.DeleteFunc(slices.Clone(f.Recordings), func(r Recording) bool {
			return r.AMP == amp && r.Batch == batches[i]
		})
		recorded, err := f.AtBatch(amp, batches[i])
		line, missing := others.AtBatch(amp, batches[i])
		if errors.Join(err, missing) != nil {
			return math.Inf(1)
		}
		was, follows := recorded.Steps[1].peak(), line.Steps[1].peak()
		most = max(most, math.Abs(float64(was-follows))/float64(max(was, 1)))
	}
	return most
}

// peak returns the most that the allocations of a step hold at a time, in bytes.
func (s *Step) peak() int64 {
	var now, most int64
	for _, n := range s.Order {
		if n >= 0 {
			now += s.Allocations[n][0]
			most = max(most, now)
		} else {
			now -= s.Allocations[^n][0]
		}
	}
	return most
}

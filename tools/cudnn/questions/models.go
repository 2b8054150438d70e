package main

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// batches are the batch sizes of questions about models.
var batches = []int{
	1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128,
	160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024,
}

// ofFiles returns the questions of exported models. Models that cannot be planned are logged and left out.
func ofFiles(files []string, batches []int) ([]query.Question, error) {
	registry := all.Models()
	var found []models.Model
	for _, path := range files {
		m, err := registry.Lookup(path)
		if err != nil {
			log.Print(err)
			continue
		}
		found = append(found, m)
	}
	return ofModels(found, batches)
}

// ofModels returns the convolutions of models at all batches and precisions. Settings are used as they are, halved and
// doubled. Every direction and both layouts are included, since one model omits what another needs (a gradient of its
// input).
func ofModels(known []models.Model, batches []int) ([]query.Question, error) {
	asked := map[query.Question]bool{}
	for _, m := range known {
		for _, c := range casesOf(m, batches) {
			if err := record(m, c, asked); err != nil {
				return nil, err
			}
		}
	}
	questions := make([]query.Question, 0, len(asked))
	for q := range asked {
		questions = append(questions, q)
	}
	slices.SortFunc(questions, func(a, b query.Question) int { return cmp.Compare(a.String(), b.String()) })
	return questions, nil
}

// casesOf returns the cases of a model that have different convolution shapes.
func casesOf(m models.Model, batches []int) []models.Case {
	settings := []models.Settings{nil}
	for _, s := range m.Settings {
		for _, v := range []int64{s.Default / 2, s.Default * 2} {
			if s.Inert == "" && v >= s.Min && v <= s.Max {
				settings = append(settings, models.Settings{s.Name: v})
			}
		}
	}
	stage := m.Default.Stage
	if slices.Contains(m.Stages, "full") {
		stage = "full"
	}
	var cases []models.Case
	for _, amp := range models.AutocastPrecisions() {
		for _, b := range batches {
			for _, s := range settings {
				cases = append(cases, models.Case{Model: m.Name, Stage: stage, Batch: b, AMP: amp, Settings: s})
			}
		}
	}
	return cases
}

// record adds the calls of one step to asked. Cases that the model or PyTorch refuses have none.
func record(m models.Model, c models.Case, asked map[query.Question]bool) error {
	c, err := m.Complete(c)
	var refused *models.CaseError
	if errors.As(err, &refused) {
		return nil
	}
	if err != nil {
		return err
	}
	trainer, err := m.Build(c)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	tape := trace.New(trace.GPU{Name: "any", Capability: 80, SMs: 100, ThreadsPerSM: 2048, Memory: 1 << 40},
		stack.Default().Rules(), trace.Options{})
	if err := trainer.Record(tape, 1); err != nil {
		return nil //nolint:nilerr // PyTorch refuses the case, so cuDNN is not called
	}
	tape.Convolutions(func(c cudnn.Config, _ cudnn.Direction) {
		for d := cudnn.Forward; d <= cudnn.GradWeight; d++ {
			for _, c.Layout = range layoutsOf(c) {
				asked[query.NewQuestion(c, d)] = true
			}
		}
	})
	return nil
}

// layoutsOf returns the layouts that a convolution may have; with one channel both are the same.
func layoutsOf(c cudnn.Config) []cudnn.Layout {
	if c.Ci == 1 || c.Dim == 1 {
		return []cudnn.Layout{cudnn.Contiguous}
	}
	return []cudnn.Layout{cudnn.Contiguous, cudnn.ChannelsLast}
}

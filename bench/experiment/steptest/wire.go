package steptest

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
)

// Wire is an executor that trials reach as JSON, and whose results come back as JSON: what
// one in another process is.
type Wire struct {
	Models *models.Registry
	trials atomic.Int64
}

// Trials is the number of trials so far.
func (w *Wire) Trials() int { return int(w.trials.Load()) }

// Try implements [step.Executor].
func (w *Wire) Try(ctx context.Context, t step.Trial) (*step.Result, error) {
	w.trials.Add(1)
	there, err := sent(t)
	if err != nil {
		return nil, err
	}
	r, err := step.Local{Models: w.Models}.Try(ctx, there)
	if err != nil {
		return nil, err
	}
	back, err := sent(*r)
	return &back, err
}

// sent is what arrives of a value.
func sent[T any](v T) (T, error) {
	var there T
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &there)
	}
	return there, err
}

// Package steptest has GPUs and setups for the tests of several experiments.
package steptest

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/tools/toy"
)

// MiB is 2^20 bytes.
const MiB = 1 << 20

// Card returns a GPU with this many MiB left after a context of 100 MiB.
func Card(free int64) device.GPU {
	return device.GPU{
		Name: "card", Product: "Card", Capability: 80, SMs: 100, ThreadsPerSM: 2048,
		Memory: (free + 100) * MiB, Context: 100 * MiB,
	}
}

// GPUs returns GPUs of the catalog by name.
func GPUs(t require.TestingT, names ...string) []device.GPU {
	var all []device.GPU
	for _, name := range names {
		gpu, err := device.Lookup(name)
		require.NoError(t, err)
		all = append(all, gpu)
	}
	return all
}

// Toy returns the setup for a case of the toy model with allocator settings.
func Toy(t require.TestingT, c models.Case, conf string) *step.Setup {
	c.AllocConf = conf
	setup, err := step.New(toy.Model(), c, Exact())
	require.NoError(t, err)
	return setup
}

// Full returns the case in the stage "full", with one micro-batch per step if it sets none.
func Full(c models.Case) models.Case {
	c.Stage, c.Accumulate = "full", max(1, c.Accumulate)
	return c
}

// Exact returns evidence that replays equal PyTorch exactly: no residuals, and the known context of a [Card].
func Exact() step.Evidence {
	return step.Evidence{Residuals: Exactly, Calibrated: &coefficients.Selection{Entries: []coefficients.Entry{{
		GPU: "card", Memory: map[string]coefficients.Number{planner.ContextBytes.String(): {Value: 100 * MiB}},
	}}}}
}

// Exactly returns zero residuals, for a model whose replays are exact.
func Exactly(planner.ResidualSubject) (allocated, reserved planner.Residual, err error) { return }

// On returns a simulated device for a GPU.
func On(t require.TestingT, gpu device.GPU) device.Device {
	d, err := sim.New(gpu, 0)
	require.NoError(t, err)
	return d
}

// Wire is an executor that passes trials and results as JSON, like an executor in another process.
type Wire struct {
	Models *models.Registry
	trials atomic.Int64
}

// Trials returns the number of trials so far.
func (w *Wire) Trials() int { return int(w.trials.Load()) }

// Try runs a trial after it was encoded as JSON and decoded. It implements [step.Executor].
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

// sent returns a value after it was encoded as JSON and decoded.
func sent[T any](v T) (T, error) {
	var there T
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &there)
	}
	return there, err
}

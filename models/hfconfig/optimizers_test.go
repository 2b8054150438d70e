package hfconfig

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Peaks of the phases of the second step with bitsandbytes 0.49, galore_torch 1.0, torchao 0.17 (its compiled update
// left out), transformers 5.23 and torch 2.11 on an A100, allocations in blocks of 512 bytes.
func TestOptimizersOfOtherLibraries(t *testing.T) {
	const (
		loss = 512 // which the measured loops had freed
	)
	for name, want := range map[string]struct{ forward, backward, step int64 }{
		"lion32bit": {190896640, 199268352, 0}, // no more than there is after backward
		"lion8bit":  {157257216, 165628928, 0},

		"galore-adamw:rank=16":     {163863040, 172234752, 88650752 + loss},
		"galore-adamw8bit:rank=16": {155151872, 163523584, 72075264 + loss},
		"galore-adafactor:rank=16": {163233792, 171605504, 121545728 + loss},
		"adafactor-transformers":   {145958400, 154330112, 104270336 + loss},
		"adamw8bit-torchao":        {168751616, 177123328, 0},
		"adamw4bit":                {157808128, 166179840, 0},
		"adamw-fp8":                {168704512, 177076224, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := model(t, smallLlama)
			c := complete(t, m, models.Case{
				Batch: 2, Weights: "bf16", Optimizer: name, Settings: models.Settings{"seq-len": 512, "packed": 0},
				MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
			})
			r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
			require.NoError(t, err)
			all := phases(r.Program, inBlocks)
			require.Equal(t, want.forward, all[phase(1, "forward")].peak)
			require.Equal(t, want.backward, all[phase(1, "backward")].peak)
			if want.step > 0 {
				require.Equal(t, want.step, all[phase(1, "optimizer")].peak)
			}
		})
	}
}

// Peaks of galore_torch 1.0's optimizers, which step in backward by layers, as transformers has them.
func TestOptimizersOfOtherLibrariesInBackward(t *testing.T) {
	for _, want := range []struct {
		optimizer, weights string
		forward, backward  int64
	}{
		{"galore-adamw:rank=16", "bf16", 163863040, 172234752},
		{"galore-adamw:rank=16", "", 318743040, 335503360},
		{"galore-adamw8bit:rank=16", "bf16", 155196928, 163568640},
		{"galore-adafactor:rank=16", "bf16", 163233792, 171605504},
	} {
		m := model(t, smallLlama)
		c := models.Case{
			Batch: 2, Weights: models.WeightType(want.weights), Optimizer: want.optimizer,
			Settings: models.Settings{"seq-len": 512, "packed": 0},
		}
		c.InBackward = true
		r, err := m.Record(complete(t, m, c), trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048},
			models.Options{Steps: 2})
		require.NoError(t, err)
		all := phases(r.Program, inBlocks)
		require.Equal(t, want.forward, all[phase(1, "forward")].peak, want.optimizer)
		require.Equal(t, want.backward, all[phase(1, "backward")].peak, want.optimizer)
	}
}

func TestOptimizersThatDoNotGoWithTheRest(t *testing.T) {
	for want, c := range map[string]models.Case{
		"galore-adamw projects the gradients": {
			Optimizer: "galore-adamw", LoRA: nil,
			MemoryOptions: models.MemoryOptions{TrainOnly: "embed_tokens"},
		},
		"rank: \"none\" is not a whole number": {Optimizer: "galore-adamw:rank=none"},
		"optimizer muon has no options":        {Optimizer: "muon:rank=2"},
		"needs whole gradients": {
			Optimizer: "galore-adamw",
			Strategy:  &models.Strategy{Name: "fsdp2"}, GPUs: 2,
		},
	} {
		m := model(t, smallLlama)
		c.Batch = 1
		if full, err := m.Complete(c); err != nil {
			require.ErrorContains(t, err, want)
		} else {
			_, err = m.Record(full, testGPU, models.Options{})
			require.ErrorContains(t, err, want)
		}
	}
}

// Each rank of two steps its share of what the optimizer takes, which of Muon is matrices alone.
func TestOptimizersStepShares(t *testing.T) {
	m := model(t, smallLlama)
	state := func(optimizer string, c models.Case) (bytes int64, err error) {
		c.Batch, c.Optimizer = 1, optimizer
		r, err := m.Record(c, testGPU, models.Options{})
		if err != nil {
			return 0, err
		}
		for _, b := range r.Program.Buffers {
			if b.Class == program.OptimizerState {
				bytes += b.Bytes
			}
		}
		return bytes, r.Program.Validate()
	}
	for _, name := range optim.Names() {
		var both int64
		for rank := range int64(2) {
			share, err := state(name, models.Case{GPUs: 2, Strategy: &models.Strategy{Name: models.ZeRO1, Rank: &rank}})
			if errors.As(err, new(*models.CaseError)) {
				continue
			}
			require.NoError(t, err, name)
			both += share
		}
		if name == "muon" {
			whole, err := state(name, models.Case{})
			require.NoError(t, err)
			require.Equal(t, whole, both)
		}
	}
}

package accuracy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
)

// TestPreferencesNeedWhatPyTorchAllocates has the peaks of DPO steps as TRL 1.8 takes them
// under transformers 5.23, peft 0.21 and accelerate's autocast (which gives the logits
// back in fp32): two pairs of 512 tokens, SGD, the second step. The bytes are those of
// PyTorch 2.11's own caching allocator, the CUDA build run on a driver without a GPU;
// forward includes what is logged of the scores.
func TestPreferencesNeedWhatPyTorchAllocates(t *testing.T) {
	m, err := all.Models().Lookup("hf:testdata/preferences.json")
	require.NoError(t, err)
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	lora := &models.LoRA{Rank: 8, Alpha: 16}
	for _, k := range []struct {
		amp               models.Autocast
		lora              *models.LoRA
		forward, backward float64
	}{
		{"", lora, 1989898752, 1701072384},
		{"bf16", lora, 1990932992, 1941771776},
		{"", nil, 1969036800, 1680210432},
	} {
		setup, err := step.New(m, models.Case{
			Batch: 2, AMP: k.amp, LoRA: k.lora, Weights: "bf16", Optimizer: "sgd", Torch: "2.11", Settings: models.Settings{"seq-len": 512},
			Levers: models.Levers{Objective: models.Objective{Name: models.DPO}, Clip: models.ClipNone},
		}, step.Evidence{})
		require.NoError(t, err)
		r, err := setup.Try(t.Context(), setup.Trial(gpu, 2))
		require.NoError(t, err)
		peaks := map[string]int64{}
		for _, p := range r.Run.Phases {
			if p.Step == 1 {
				peaks[p.Name] = p.Max.Allocated
			}
		}
		require.InEpsilon(t, k.forward, max(peaks["forward"], peaks["loss"]), 0.0001, "%v %v forward", k.amp, k.lora)
		require.InEpsilon(t, k.backward, peaks["backward"], 0.0001, "%v %v backward", k.amp, k.lora)
	}
}

package accuracy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
)

// TestSelectiveCheckpointingNeedsWhatPyTorchAllocates has the peaks of steps with create_selective_checkpoint_contexts
// under transformers 5.23 and peft 0.21: two rows of 1024 tokens, SGD, the second step, by PyTorch 2.11's own caching
// allocator on a driver without a GPU. Of mm/2 the policy counts calls and has every second one computed again.
func TestSelectiveCheckpointingNeedsWhatPyTorchAllocates(t *testing.T) {
	m, err := all.Models().Lookup("hf:testdata/preferences.json")
	require.NoError(t, err)
	lora := &models.LoRA{Rank: 8, Alpha: 16}
	for _, k := range []struct {
		how               models.Recompute
		amp               models.Autocast
		weights           models.WeightType
		lora              *models.LoRA
		forward, backward float64
	}{
		{"selective=mm", "", "bf16", nil, 1353290240, 1484328960},
		{"selective=mm/2,sdpa", "", "bf16", nil, 1248440832, 1378430976},
		{"selective=sdpa", "", "bf16", lora, 1072738816, 1198534656},
		{"selective=mm,sdpa", "bf16", "", nil, 2021931520, 1956362240},
		{"selective=mm", "", "bf16", lora, 1953927680, 2079723520},
	} {
		peaks := peaksOfSecondStep(t, m, models.Case{
			Batch: 2, AMP: k.amp, Weights: k.weights, LoRA: k.lora, Optimizer: "sgd", Torch: "2.11",
			Settings:      models.Settings{"seq-len": 1024},
			Checkpointing: true, MemoryOptions: models.MemoryOptions{Clip: models.ClipNone, Recompute: k.how},
		})
		require.InEpsilon(t, k.forward, max(peaks["forward"], peaks["loss"]), 0.00003, "%v forward", k)
		require.InEpsilon(t, k.backward, peaks["backward"], 0.00003, "%v backward", k)
	}
}

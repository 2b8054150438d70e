package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// Bytes that a step asks for beyond those before it, with the losses of LLaMA-Factory, TRL,
// ms-swift and axolotl that weigh tokens: at most in its forward pass and in backward. Their functions were
// called with PyTorch 2.11 and its allocator, four rows of 256 tokens, bf16, where every token
// counts; indices of the tokens were numbers.
func TestLossesThatWeighTokens(t *testing.T) {
	for _, want := range []struct {
		objective         string
		amp               models.Autocast
		forward, backward int64
	}{
		{"dft", models.NoAutocast, 69440548, 73065552},
		{"dft", "bf16", 68391972, 73065552},
		{"dft:as=ms-swift", models.NoAutocast, 69419084, 73065552},
		{"dft:as=ms-swift", "bf16", 68370508, 73065552},
		{"dft:as=trl", models.NoAutocast, 68356168, 73065548},
		{"dft:as=trl", "bf16", 68356168, 73065552},
		{"eaft", models.NoAutocast, 72019100, 73065552},
		{"eaft", "bf16", 70970524, 73065552},
		{"asft", models.NoAutocast, 84054024, 73576452},
		{"asft", "bf16", 87187464, 74620932},
		{"eaft:as=axolotl", models.NoAutocast, 69391396, 73065552},
		{"eaft:as=axolotl", "bf16", 72883896, 73065552},
	} {
		o, err := models.ParseObjective(want.objective)
		require.NoError(t, err)
		m := model(t, shortLlama)
		c := complete(t, m, models.Case{
			Batch: 4, Torch: "2.11", Weights: "bf16", AMP: want.amp, Optimizer: "sgd",
			Settings: models.Settings{"seq-len": 256, "packed": 0, "padding": 0},
			Levers:   models.Levers{Objective: o, Clip: models.ClipNone},
		})
		forward, backward := growth(t, m, c)
		require.InEpsilon(t, want.forward, forward, 0.0002, want.objective)
		require.InEpsilon(t, want.backward, backward, 0.0002, want.objective)
	}
}

// LLaMA-Factory has the reference of ASFT in the precision of training, and none beside adapters.
func TestReferencesOfWeighedTokens(t *testing.T) {
	m := model(t, shortLlama)
	weights := func(objective string, lora *models.LoRA) (int64, error) {
		o, err := models.ParseObjective(objective)
		require.NoError(t, err)
		c, err := m.Complete(models.Case{AMP: "bf16", LoRA: lora, Levers: models.Levers{Objective: o}})
		if err != nil {
			return 0, err
		}
		r, err := m.Record(c, testGPU, models.Options{Steps: 1})
		require.NoError(t, err)
		return phasePeak(r.Program, -1, "model"), nil
	}
	alone, err := weights("dft", nil)
	require.NoError(t, err)
	both, err := weights("asft", nil)
	require.NoError(t, err)
	require.InEpsilon(t, 1.5, float64(both)/float64(alone), 0.001)
	_, err = weights("asft", &models.LoRA{Rank: 4})
	require.ErrorContains(t, err, "LLaMA-Factory makes no reference for it beside adapters")
}

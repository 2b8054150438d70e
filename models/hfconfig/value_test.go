package hfconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// Bytes that a step asks for beyond those before it, with LLaMA-Factory's loss of rewards and TRL's value head: at most
// in its forward pass and in backward. They were called with PyTorch 2.11 and its allocator, two pairs of 256 tokens.
func TestValuesBesideWords(t *testing.T) {
	o, err := models.ParseObjective("reward:as=llama-factory")
	require.NoError(t, err)
	lora := &models.LoRA{Rank: 8}
	for _, want := range []struct {
		weights           models.WeightType
		amp               models.Autocast
		lora              *models.LoRA
		checkpointing     models.Recompute
		forward, backward int64
	}{
		{"", "bf16", nil, "", 102497354, 104595556},
		{"bf16", models.NoAutocast, nil, "", 73072712, 72543316},
		{"bf16", "bf16", lora, "", 79566920, 77445204},
		{"bf16", "bf16", lora, "on", 16164864, 37056548},
		{"bf16", "bf16", lora, models.Reentrant, 16164864, 38105124},
		{"", "bf16", nil, "on", 33170434, 56285220},
	} {
		m := model(t, shortLlama)
		c := complete(t, m, models.Case{
			Batch: 2, Torch: "2.11", Weights: want.weights, AMP: want.amp, LoRA: want.lora,
			Checkpointing: want.checkpointing != "", Optimizer: "sgd",
			Settings: models.Settings{"seq-len": 256, "packed": 0, "padding": 0}, MemoryOptions: models.MemoryOptions{
				Objective: o,
				Clip:      models.ClipNone, Recompute: models.Recompute(strings.TrimPrefix(string(want.checkpointing),
					"on")),
			},
		})
		forward, backward := growth(t, m, c)
		require.InEpsilon(t, want.forward, forward, 0.0005, "%+v", want)
		require.InEpsilon(t, want.backward, backward, 0.0005, "%+v", want)
		tr, err := m.Build(c)
		require.NoError(t, err)
		if want.lora == nil {
			require.EqualValues(t, 7_605_760+513, tr.Counts().Trainable, "the head is trained")
		}
	}
}

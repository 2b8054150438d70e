package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// Levers together, to the byte: what PyTorch 2.11 requested of its own allocator up to the
// end of the second backward pass.
func TestLeversTogetherRequestWhatPyTorchDoes(t *testing.T) {
	m := model(t,
		`{"model_type": "llama", "hidden_size": 192, "intermediate_size": 321, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 1003, "pad_token_id": 0}`)
	adapters := &models.LoRA{Rank: 8, Targets: []string{"q_proj", "down_proj"}}
	for name, row := range map[string]struct {
		c    models.Case
		want int64
	}{
		// the product with an unpacked weight is not seen by the policy, as it is bitsandbytes' own operator
		"packed layers, selective": {models.Case{
			Checkpointing: true, LoRA: adapters, Optimizer: "sgd",
			MemoryOptions: models.MemoryOptions{Quantize: "nf4", Recompute: "selective=mm"},
		}, 24_755_184},
		// each parameter's optimizer makes its state when it is made, and there is no other
		"optimizers in backward": {models.Case{
			Optimizer:     "adagrad",
			MemoryOptions: models.MemoryOptions{InBackward: true},
		}, 31_389_992},
	} {
		c := row.c
		c.Batch, c.Weights, c.Settings, c.Clip = 3, "bf16", models.Settings{"seq-len": 130}, models.ClipNone
		c, err := m.Complete(c)
		require.NoError(t, err, name)
		r, err := m.Record(c, testGPU, models.Options{Steps: 2})
		require.NoError(t, err, name)
		require.Equal(t, row.want, phasePeak(r.Program, 1, "backward"), name)
	}
}

package hfconfig

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
)

const smallUntied = `{"model_type": "llama", "vocab_size": 4096, "hidden_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 512, "tie_word_embeddings": `

// An output layer in 4 bits has half a byte for a weight, and 4 for the scale of 64 of them; the step unpacks it.
func TestPackedHead(t *testing.T) {
	const weights = 4096 * 512
	packed := func(on int64) []int64 {
		m := model(t, smallUntied+`false}`)
		c := complete(t, m, models.Case{
			Batch: 1, Weights: "bf16", LoRA: &models.LoRA{Rank: 8, Targets: []string{"q_proj"}},
			Settings: models.Settings{
				"seq-len":     64,
				"packed-head": on,
			}, MemoryOptions: models.MemoryOptions{Quantize: "nf4"},
		})
		r, err := m.Record(c, testGPU, models.Options{Steps: 1})
		require.NoError(t, err)
		var all []int64
		for _, b := range r.Program.Buffers {
			if b.Class != program.Weights {
				continue
			}
			all = append(all, b.Bytes)
		}
		return all
	}
	off, on := packed(0), packed(1)
	require.NotContains(t, off, int64(weights/2))
	require.Contains(t, on, int64(weights/2))
	require.Contains(t, on, int64(weights/64*4))
	count := func(all []int64) int {
		return len(all) - len(slices.DeleteFunc(slices.Clone(all), func(b int64) bool { return b == 2*weights }))
	}
	require.Equal(t, count(off)-1, count(on), "the embeddings alone are left as they are")
}

func TestSettingsOfQuantizedLayersNeedThem(t *testing.T) {
	adapters := &models.LoRA{Rank: 8}
	for reason, c := range map[string]models.Case{
		"early-bitsandbytes: is about linear layers in 4 bits; give it with --quantize nf4 or nf4-dq": {
			LoRA:     adapters,
			Settings: models.Settings{"early-bitsandbytes": 1}, MemoryOptions: models.MemoryOptions{Quantize: "int8"},
		},
		"early-bitsandbytes: vprof records DoRA beside the layers of newer releases": {
			LoRA: &models.LoRA{
				Rank: 8,
				DoRA: models.TorchtuneDoRA,
			}, Settings: models.Settings{"early-bitsandbytes": 1},
			MemoryOptions: models.MemoryOptions{Quantize: "nf4"},
		},
		"packed-head: is about --quantize, which is not given": {
			LoRA:     adapters,
			Settings: models.Settings{"packed-head": 1},
		},
		"packed-head: what --lora save=... names is trained as a whole": {
			LoRA: &models.LoRA{
				Rank: 8,
				Save: []string{"lm_head"},
			}, Settings: models.Settings{"packed-head": 1},
			MemoryOptions: models.MemoryOptions{Quantize: "nf4"},
		},
		"packed-head: another loss reads the weight of the output layer itself": {
			LoRA: adapters,
			Settings: models.Settings{
				"packed-head": 1,
				"fused-loss":  1,
			}, MemoryOptions: models.MemoryOptions{Quantize: "nf4"},
		},
	} {
		_, err := model(t, smallUntied+`false}`).Complete(c)
		require.ErrorContains(t, err, reason)
	}
	_, err := model(t, smallUntied+`true}`).Complete(models.Case{
		LoRA:     adapters,
		Settings: models.Settings{"packed-head": 1}, MemoryOptions: models.MemoryOptions{Quantize: "nf4"},
	})
	require.ErrorContains(t, err, "packed-head: there is no such setting", "the output layer is the embeddings")
}

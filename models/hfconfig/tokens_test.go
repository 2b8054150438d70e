package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// Peaks in the second step of transformers 5.23's classes for token classification, with
// torch 2.11 on an A100, allocations in blocks of 512 bytes.
func TestTokenClassification(t *testing.T) {
	const ids = 2 * 512 * 8 // what vprof has towers: labels that are not the input, a mask of padding for encoders
	const sizes = `"vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 8`
	qwen := `{"model_type": "qwen2", ` + sizes +
		`, "num_key_value_heads": 4, "tie_word_embeddings": false, "use_sliding_window": false}`
	encoder := models.Settings{"seq-len": 512, "classes": 2, "padding": 0}
	for _, want := range []struct {
		config            string
		weights           models.WeightType
		settings          models.Settings
		lora              *models.LoRA
		beside            int64
		forward, backward int64
	}{
		{qwen, "bf16", models.Settings{"seq-len": 512, "classes": 2}, nil, ids, 154225152, 158411776},
		{
			qwen, "bf16",
			models.Settings{"seq-len": 512, "classes": 2},
			&models.LoRA{Rank: 8, Alpha: 16, Targets: []string{"q_proj"}}, ids, 91659264, 95836672,
		},
		{`{"model_type": "bert", ` + sizes + `}`, "", encoder, nil, 2 * ids, 225651712, 225112064},
		{
			`{"model_type": "roberta", ` + sizes + `, "max_position_embeddings": 600}`, "", encoder, nil, 2 * ids,
			226206720, 225667072,
		},
		{
			`{"model_type": "distilbert", "vocab_size": 8192, "dim": 512, "hidden_dim": 1024, "n_layers": 3, "n_heads": 8}`, "", encoder, nil, 2 * ids, 224057856, 223518208,
		},
	} {
		m := model(t, want.config)
		c := complete(t, m, models.Case{
			Task: tokens, Batch: 2, AMP: "bf16", Weights: want.weights, Optimizer: "adamw-fused", LoRA: want.lora,
			Settings: want.settings, MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
		})
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048},
			models.Options{Steps: 2})
		require.NoError(t, err)
		forward, backward := secondStep(r.Program)
		require.Equal(t, want.forward+want.beside, forward, want.config)
		require.Equal(t, want.backward+want.beside, backward, want.config)
	}
	_, err := model(t, qwen).Complete(models.Case{Task: causalLM, Settings: models.Settings{"head-dropout": 0}})
	require.ErrorContains(t, err, "head-dropout: has no influence on task causal-lm")
}

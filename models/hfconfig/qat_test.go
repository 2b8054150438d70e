package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

const smallLlama = `{"model_type": "llama", "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 3,
	"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}`

// Peaks in the second step of torchao 0.17, transformers 5.23 and torch 2.11 on an A100,
// allocations in blocks of 512 bytes.
func TestTrainingForQuantization(t *testing.T) {
	for _, want := range []struct {
		qat               string
		recompute         models.Recompute
		checkpointing     bool
		amp, weights      string
		forward, backward int64
	}{
		{"8da4w", "", false, "", "bf16", 312722944, 320046080},
		{"8da4w", "", true, "", "bf16", 150399488, 165650432},
		{"int8-int4", "", false, "bf16", "bf16", 426980864, 434304000},
		{"int8-int4", models.Reentrant, true, "bf16", "bf16", 176294400, 192794624},
		{"int8-int4", "", true, "bf16", "", 240934400, 267925504},
	} {
		q, err := models.ParseQAT(want.qat)
		require.NoError(t, err)
		m := model(t, smallLlama)
		c := complete(t, m, models.Case{
			Batch: 2, AMP: models.Autocast(want.amp), Weights: models.WeightType(want.weights),
			Optimizer: "adamw-fused", Checkpointing: want.checkpointing,
			Settings:      models.Settings{"seq-len": 512, "packed": 0},
			MemoryOptions: models.MemoryOptions{QAT: q, Recompute: want.recompute, Clip: models.ClipNone},
		})
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
		require.NoError(t, err)
		forward, backward := secondStep(r.Program)
		require.Equal(t, want.forward, forward, "%+v", want)
		require.Equal(t, want.backward, backward, "%+v", want)
	}
	m := model(t, smallLlama)
	_, err := m.Record(models.Case{
		Batch:         1,
		MemoryOptions: models.MemoryOptions{QAT: models.QAT{Name: models.QATInt8Int4, Group: 500}},
	}, testGPU, models.Options{})
	require.ErrorContains(t, err, "qat: groups of 500 do not divide the inputs of its linear layers")
	_, err = m.Record(models.Case{
		Batch: 1, LoRA: &models.LoRA{Rank: 8},
		MemoryOptions: models.MemoryOptions{QAT: q8da4w},
	}, testGPU,
		models.Options{})
	require.NoError(t, err)
	_, err = m.Complete(models.Case{
		LoRA:          &models.LoRA{Rank: 8},
		MemoryOptions: models.MemoryOptions{QAT: q8da4w, Quantize: "nf4"},
	})
	require.ErrorContains(t, err, "qat: layers of --quantize are frozen and cannot be trained quantization-aware (qat); leave out --quantize, or --set qat")
}

// Peaks in the second step of peft 0.21 with use_dora, otherwise as above.
func TestAdaptersWithMagnitudes(t *testing.T) {
	for _, want := range []struct {
		dropout           float64
		checkpointing     bool
		forward, backward int64
	}{
		{0, false, 153449472, 160756224},
		{0.1, false, 163410944, 170717696},
		{0, true, 89178112, 96341504},
	} {
		m := model(t, smallLlama)
		c := complete(t, m, models.Case{
			Batch: 2, AMP: "bf16", Weights: "bf16", Optimizer: "adamw-fused", Checkpointing: want.checkpointing,
			LoRA: &models.LoRA{
				Rank: 8, Dropout: want.dropout, DoRA: models.PeftDoRA,
				Targets: []string{"q_proj", "v_proj", "down_proj"},
			},
			Settings: models.Settings{
				"seq-len": 512,
				"packed":  0,
			}, MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
		})
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
		require.NoError(t, err)
		forward, backward := secondStep(r.Program)
		require.Equal(t, want.forward, forward, "%+v", want)
		require.Equal(t, want.backward, backward, "%+v", want)
	}
	m := model(t, smallLlama)
	_, err := m.Record(models.Case{
		Batch: 1, LoRA: &models.LoRA{Rank: 8, DoRA: models.PeftDoRA},
		MemoryOptions: models.MemoryOptions{Quantize: "int8"},
	}, testGPU, models.Options{})
	require.ErrorContains(t, err,
		"lora: vprof records DoRA beside linear layers that are neither packed in 8 bits nor rounded")
}

var q8da4w = models.QAT{Name: models.QAT8da4w, Group: 256}

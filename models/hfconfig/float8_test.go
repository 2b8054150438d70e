package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// Peaks of the phases of the second step of torchao 0.17's convert_to_float8_training (all linear layers but the output
// layer, one scale for each tensor), transformers 5.23 and torch 2.11 on an H100, allocations in blocks of 512 bytes.
func TestProductsInFloat8(t *testing.T) {
	const loss = 512 // which the measured loop had freed
	hopper := trace.GPU{Capability: 90, SMs: 132, ThreadsPerSM: 2048}
	float8 := models.Case{Batch: 2, Weights: "bf16", Optimizer: "adamw-fused", Settings: models.Settings{
		"seq-len": 512,
		"packed":  0,
	}, MemoryOptions: models.MemoryOptions{Clip: models.ClipNone, Float8: "tensorwise"}}
	mixed := float8
	mixed.Weights, mixed.AMP = "", "bf16"
	for _, want := range []struct {
		c                 models.Case
		forward, backward int64
		step              int64
	}{
		{float8, 243078656, 251450368, 159444992 + loss},
		{mixed, 333933056, 340207616, 249651200 + loss},
	} {
		m := model(t, smallLlama)
		r, err := m.Record(complete(t, m, want.c), hopper, models.Options{Steps: 2})
		require.NoError(t, err)
		all := phases(r.Program, inBlocks)
		require.Equal(t, want.forward, all[phase(1, "forward")].peak)
		require.Equal(t, want.backward, all[phase(1, "backward")].peak)
		require.Equal(t, want.step, all[phase(1, "optimizer")].peak)
	}
	m := model(t, smallLlama)
	_, err := m.Record(complete(t, m, float8), trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048},
		models.Options{})
	require.ErrorContains(t, err, "torch._scaled_mm is only supported")
	for want, c := range map[string]models.Case{
		"float8: there is no float8 recipe \"mxfp8\"; use one of tensorwise": {MemoryOptions: models.MemoryOptions{Float8: "mxfp8"}},
		"float8: float8 training needs a model whose weights are all trained; leave out --lora, --quantize and --set qat, or leave out --set float8": {
			LoRA:          &models.LoRA{Rank: 8},
			MemoryOptions: models.MemoryOptions{Float8: "tensorwise"},
		},
		"under fsdp2": {
			Strategy: &models.Strategy{Name: models.ZeRO1}, GPUs: 2,
			MemoryOptions: models.MemoryOptions{Float8: "tensorwise"},
		},
	} {
		_, err := m.Complete(c)
		require.ErrorContains(t, err, want)
	}
}

// Selective checkpointing sees a product of matrices in 8-bit floats as aten.mm, and keeps its result: for torchao 0.18
// and torch 2.15 a policy of mm takes as many bytes more than one of attention alone as it does without 8-bit floats.
func TestSelectiveCheckpointingKeepsProductsInFloat8(t *testing.T) {
	hopper := trace.GPU{Capability: 90, SMs: 132, ThreadsPerSM: 2048}
	m := model(t, smallLlama)
	forward := func(recipe, checkpointing string) int64 {
		c := models.Case{
			Batch: 2, Checkpointing: true, Weights: "bf16", Optimizer: "adamw-fused",
			Settings: models.Settings{
				"seq-len": 512,
				"packed":  0,
			}, MemoryOptions: models.MemoryOptions{
				Clip: models.ClipNone, Float8: recipe,
				Recompute: models.Recompute(checkpointing),
			},
		}
		r, err := m.Record(complete(t, m, c), hopper, models.Options{Steps: 2})
		require.NoError(t, err)
		return phases(r.Program, inBlocks)[phase(1, "forward")].peak
	}
	for _, products := range []string{"mm", "mm/2"} {
		kept := forward("", "selective="+products+",sdpa") - forward("", "selective=sdpa")
		require.Positive(t, kept)
		require.Equal(t, kept,
			forward("tensorwise", "selective="+products+",sdpa")-forward("tensorwise", "selective=sdpa"))
	}
}

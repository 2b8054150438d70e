package hfconfig

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// Steps of transformers' own classes, run on fake tensors: what is allocated once the model is there, what the first
// forward pass leaves for backward, and the peak. Left out is what fake tensors on the CPU do otherwise than CUDA: the
// attention kernels of grouped heads without a mask, losses of words under autocast, and convolutions. A few bytes
// differ where CUDA keeps the statistics of a norm in fp32.
func TestStepsAreThoseOfTransformers(t *testing.T) {
	data, err := os.ReadFile("testdata/steps.json")
	require.NoError(t, err)
	var ran struct {
		Steps []struct {
			Config               json.RawMessage
			Task, AMP            string
			Weights, LoRA        string
			Batch                int
			Checkpointing        bool
			Settings             models.Settings
			Model, Forward, Peak int64
		}
	}
	require.NoError(t, json.Unmarshal(data, &ran))
	require.NotEmpty(t, ran.Steps)
	for _, want := range ran.Steps {
		m := model(t, string(want.Config))
		c := models.Case{
			Task: want.Task, Batch: want.Batch, AMP: models.Autocast(want.AMP),
			Weights: models.WeightType(want.Weights), Checkpointing: want.Checkpointing,
			Settings: shared(m, want.Settings),
		}
		if want.LoRA != "" {
			l, err := models.ParseLoRA(want.LoRA)
			require.NoError(t, err)
			c.LoRA = &l
		}
		r, err := m.Record(c, testGPU, models.Options{})
		require.NoError(t, err)
		all := phases(r.Program, inBlocksBesideWorkspaces)
		require.Equal(t, want.Model, all[phase(-1, "model")].end, "%s %+v", want.Config, c)
		require.InEpsilon(t, want.Forward, all[phase(0, "forward")].end, 0.0003, "%s %+v", want.Config, c)
		require.InEpsilon(t, want.Peak, all[phase(1, "step_end")].soFar, 0.0003, "%s %+v", want.Config, c)
	}
}

// Weights in half precision and all tensors of their type take half; adapters stay in fp32.
func TestWeightsHaveATypeOfTheirOwn(t *testing.T) {
	bytes := func(m models.Model, c models.Case) int64 {
		c.Batch = 1
		r, err := m.Record(c, testGPU, models.Options{Steps: 1})
		require.NoError(t, err)
		return phases(r.Program, inBlocks)[phase(-1, "model")].end
	}
	const sizes = `"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 512`
	whole, half := model(t, `{`+sizes+`}`), model(t, `{`+sizes+`, "torch_dtype": "bfloat16"}`)
	require.EqualValues(t, "bf16", half.Default.Weights)
	full := bytes(whole, models.Case{})
	require.InEpsilon(t, full, 2*bytes(whole, models.Case{Weights: "bf16"}), 0.001) // but for the frequencies
	require.InEpsilon(t, full, 2*bytes(half, half.Default), 0.001)
	adapters := models.Case{LoRA: &models.LoRA{Rank: 16}}
	added := bytes(whole, adapters) - full
	require.EqualValues(t, 4*16*(7*2*512), added)
	adapters.Weights = "bf16"
	require.Equal(t, added, bytes(whole, adapters)-bytes(whole, models.Case{Weights: "bf16"}))

	_, err := whole.Record(models.Case{Batch: 1, Weights: "fp16", AMP: "fp16"}, testGPU, models.Options{})
	require.ErrorContains(t, err, "Attempting to unscale FP16 gradients")
	_, err = whole.Record(models.Case{Batch: 1, Weights: "bf16", AMP: "fp16"}, testGPU, models.Options{})
	require.ErrorContains(t, err, "_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'")
	adapters.Weights, adapters.AMP, adapters.Batch = "fp16", "fp16", 1
	_, err = whole.Record(adapters, testGPU, models.Options{})
	require.NoError(t, err, "the gradients of adapters are in fp32")
	_, err = model(t, `{"model_type": "vit", "dtype": "bfloat16"}`).Complete(models.Case{Weights: "bf16"})
	require.ErrorContains(t, err, "weights: vprof plans this model only with weights in fp32; leave out --weights (models of transformers, hf:config.json, also accept bf16)")
}

package hfconfig

import (
	"encoding/json"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// sizeInName returns the number of parameters that a name like "Qwen3-0.6B" or "opt-125m" has. Mixtures of experts are
// left out, whose names count otherwise.
func sizeInName(name string) (parameters float64, ok bool) {
	found := regexp.MustCompile(`(?i)-(\d+(?:\.\d+)?)([bm])(-|$)`).FindStringSubmatch(path.Base(name))
	if found == nil || strings.Contains(name, "8x") || strings.Contains(name, "MoE") {
		return 0, false
	}
	n, err := strconv.ParseFloat(found[1], 64)
	return n * map[string]float64{"b": 1e9, "m": 1e6}[strings.ToLower(found[2])], err == nil
}

// Models of the hub are known by their names without a file, with as many parameters as their names say.
func TestModelsOfTheHubAreKnownByName(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	for name, parameters := range map[string]int64{
		"Qwen/Qwen3-4B": 4_022_468_096, "Qwen/Qwen3-8B": 8_190_735_360, "Qwen/Qwen2.5-7B": 7_615_616_512,
		"meta-llama/Llama-3.1-8B": 8_030_261_248, "meta-llama/Llama-3.2-3B": 3_212_749_824,
	} {
		m, err := Open(name)
		require.NoError(t, err, name)
		require.Equal(t, Scheme+":"+path.Base(name), m.Name)
		rec, err := m.Record(models.Case{Batch: 1}, testGPU, models.Options{})
		require.NoError(t, err, name)
		require.Equal(t, parameters, rec.Counts.Total, name)
	}
	require.GreaterOrEqual(t, len(HubModels()), 200)
	for _, listed := range HubModels() {
		require.NotEmpty(t, listed.Source, listed.Name)
		require.NotEmpty(t, listed.Read, listed.Name)
		m, err := Open(listed.Name)
		require.NoError(t, err, listed.Name)
		size, ok := sizeInName(listed.Name)
		if !ok {
			continue
		}
		c := m.Default
		c.Batch = 1
		c, err = m.Complete(c)
		require.NoError(t, err, listed.Name)
		trainer, err := m.Build(c)
		require.NoError(t, err, listed.Name)
		// Names leave embeddings out, or are rounded: Gemma 2 has 2.6 billion in its 2b, Llama 3.2 1.24 in its 1B.
		require.InEpsilon(t, size, trainer.Counts().Total, 0.35, listed.Name)
	}
	bare, err := Open("sentence-transformers/all-MiniLM-L6-v2")
	require.NoError(t, err)
	require.Equal(t, maskedLM, bare.Default.Task)
	require.Contains(t, bare.Caveat(bare.Default), "BertModel has no loss of its own; planned as masked-lm "+
		"(--task: classification, masked-lm, token-classification)")
	lower, err := Open("qwen/qwen3-4b")
	require.NoError(t, err)
	require.Contains(t, lower.Source, "qwen3")
	for name, config := range Named() { // also of a name whose configuration stands under another
		text, err := json.Marshal(config)
		require.NoError(t, err)
		require.Contains(t, string(text), `"model_type"`, name)
	}
	_, err = Open("nobody/nothing")
	require.ErrorContains(t, err, "hf download nobody/nothing config.json")
}

package models

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// cases draws cases with any choice of fields.
func cases(t *rapid.T) Case {
	word := rapid.StringMatching(`[a-z][a-z0-9_.-]{0,8}`)
	c := Case{
		Model: word.Draw(t, "model"), Stage: word.Draw(t, "stage"),
		Batch: rapid.IntRange(0, 512).Draw(t, "batch"), AMP: rapid.SampledFrom(AutocastPrecisions()).Draw(t, "amp"),
		Weights:       rapid.SampledFrom(WeightTypes()).Draw(t, "weights"),
		Checkpointing: rapid.Bool().Draw(t, "checkpointing"),
		Accumulate:    rapid.IntRange(1, 8).Draw(t, "accumulate"),
		Dataset:       rapid.Int64Range(0, 1<<40).Draw(t, "dataset"),
	}
	for _, field := range []*string{
		&c.Task, &c.Optimizer, &c.Loss, &c.Output, &c.Freeze, &c.Blocks, &c.AllocConf,
		&c.ConfigHash,
	} {
		*field = rapid.OneOf(rapid.Just(""), word).Draw(t, "field")
	}
	if rapid.Bool().Draw(t, "lora") {
		c.LoRA = &LoRA{
			Rank: rapid.Int64Range(1, 64).Draw(t, "rank"), Alpha: 16,
			Targets: rapid.SliceOfN(word, 1, 3).Draw(t, "targets"),
		}
	}
	if rapid.Bool().Draw(t, "ranks") {
		s := strategies().Draw(t, "strategy")
		c.GPUs, c.Strategy = rapid.IntRange(1, 64).Draw(t, "gpus"), &s
	}
	if s := rapid.MapOfN(word, rapid.Int64(), 0, 4).Draw(t, "settings"); len(s) > 0 {
		c.Settings = s
	}
	return c
}

func TestACaseComesBackFromItsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cases(t)
		text, err := json.Marshal(c)
		require.NoError(t, err)
		var again Case
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, c, again)
		require.Equal(t, c.Key(), again.Key())
	})
}

func TestKeysAreEqualForEqualCasesOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := cases(t), cases(t)
		equal := a.Key() == b.Key()
		text, _ := json.Marshal(a)
		other, _ := json.Marshal(b)
		require.Equal(t, string(text) == string(other), equal)
		b = a
		b.Batch++
		require.NotEqual(t, a.Key(), b.Key())
	})
}

func TestNoAutocastHasOneSpelling(t *testing.T) {
	text, err := json.Marshal(Case{Model: "m", Stage: "full", Accumulate: 1})
	require.NoError(t, err)
	require.JSONEq(t, `{"model":"m","stage":"full","amp":"none","checkpointing":false,"accumulate":1}`, string(text))
	for text, want := range map[string]Autocast{"none": NoAutocast, "fp16": "fp16", "bf16": "bf16"} {
		got, err := ParseAutocast(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, text, got.String())
	}
	for _, wrong := range []string{"", "fp8", "None", "fp32"} {
		_, err := ParseAutocast(wrong)
		require.ErrorContains(t, err, "use none, fp16 or bf16")
	}
	require.Error(t, json.Unmarshal([]byte(`{"amp":"fp8"}`), &Case{}))
	require.Error(t, json.Unmarshal([]byte(`{"lora":"r=0"}`), &Case{}))
}

func TestWeightTypesAreReadAsTheyAreWritten(t *testing.T) {
	for _, w := range WeightTypes() {
		got, err := ParseWeightType(w.String())
		require.NoError(t, err)
		require.Equal(t, w, got)
	}
	_, err := ParseWeightType("")
	require.ErrorContains(t, err, "use fp32, fp16 or bf16")
}

func TestACanonicalCaseLeavesDefaultsOut(t *testing.T) {
	m := adjustable()
	given, err := m.Complete(Case{Settings: Settings{"heads": 8}})
	require.NoError(t, err)
	require.Equal(t, Settings{"heads": 8}, m.Canonical(given).Settings)
	require.Equal(t, m.Canonical(given), m.Canonical(m.Canonical(given)))

	own, err := m.Complete(Case{})
	require.NoError(t, err)
	require.Nil(t, m.Canonical(own).Settings)
}

package peft

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/models/nn"
)

// Every default of every method can be given, and means what leaving it out means.
func TestDefaultsAreValues(t *testing.T) {
	for _, name := range Methods() {
		standard, err := NewConfig(name, nil)
		require.NoError(t, err, name)
		given, err := NewConfig(name, standard.options)
		require.NoError(t, err, name)
		require.Equal(t, standard, given, name)
	}
}

func TestConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		method string
		given  map[string]string
		says   string
	}{
		{"lora2", nil, "vprof does not support the method lora2 of peft, only adalora, adamss, adaption_prompt, bdlora, boft, delora, fourierft, frod, glora, ia3, lily, loha, lokr, miss, oft, osf, p_tuning, peanut, prompt_tuning, pvera, randlora, shira, tinylora, trainable_tokens, vblora, vera, waveft; leave out method=, or run your own script with \"vprof run\", which supports all"},
		{"boft", map[string]string{"boft_P": "tpu"}, "method boft of peft: boft_P=tpu: need one of gpu, cpu"},
		{"loha", map[string]string{"rank": "8"}, "the method loha of peft has no option rank that affects memory; use one of r, rank_pattern"},
		{"loha", map[string]string{"r": "eight"}, "invalid r=eight for the method loha of peft: need a value like 8"},
		{"oft", map[string]string{"use_cayley_neumann": "2"}, "invalid use_cayley_neumann=2 for the method oft of peft: need a value like true"},
	} {
		_, err := NewConfig(c.method, c.given)
		require.ErrorContains(t, err, c.says)
	}
}

// What peft calls lora_dropout, vera_dropout and so on can be called dropout, and keys that change
// no allocation may stand there.
func TestConfigTakesOtherKeys(t *testing.T) {
	c, err := NewConfig("vera", map[string]string{"dropout": "0.1", "d_initial": "0.1", "init_weights": "false"})
	require.NoError(t, err)
	require.InDelta(t, 0.1, c.number("vera_dropout"), 0)
}

// Whatever numbers options have, a method is put at a layer or says why not.
func TestOptionsAreTakenOrRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(Methods()).Draw(t, "method")
		standard, err := NewConfig(name, nil)
		require.NoError(t, err)
		given := map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(standard.options)) {
			value := standard.options[key]
			if _, err := strconv.ParseInt(value, 10, 64); err == nil {
				given[key] = strconv.Itoa(rapid.SampledFrom([]int{-1, 0, 1, 2, 3, 8, 1000}).Draw(t, key))
			} else if value == none {
				given[key] = rapid.SampledFrom([]string{none, "up", "3"}).Draw(t, key)
			}
		}
		c, err := NewConfig(name, given)
		require.NoError(t, err)
		require.NotPanics(t, func() {
			if c.AtEmbeddings() {
				embeddings := nn.NewEmbedding(32, 16)
				_, _ = AdaptEmbeddings(&struct {
					nn.Module
					Embeddings nn.Layer
				}{Embeddings: embeddings}, c, Words{Embeddings: embeddings})
				return
			}
			_, _ = Adapt(&struct {
				nn.Module
				Up, Down nn.Layer
			}{Up: nn.NewLinear(16, 24, true), Down: nn.NewLinear(24, 16, false)}, c, func(string) bool { return true })
		}, "%v", given)
	})
}

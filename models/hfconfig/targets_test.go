package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// Targets of adapters that name no module, or one that vprof has no adapters for, are said.
func TestTargetsThatGetNoAdaptersAreSaid(t *testing.T) {
	m := model(t, shortLlama)
	for _, c := range []struct {
		targets []string
		quant   string
		want    []string
	}{
		{[]string{"q_proj", "mlp.up_proj", "lm_head"}, "", nil},
		{[]string{"q_proj", "lm_head"}, "nf4", nil},
		{[]string{"all-linear"}, "", nil},
		{
			[]string{"q_proj", "v_porj"},
			"",
			[]string{"no module is called v_porj, which peft passes over where other targets are found"},
		},
		{
			[]string{"q_proj", "embed_tokens"},
			"",
			[]string{"adapters beside embed_tokens, which is no linear layer, are not recorded"},
		},
	} {
		k := complete(t, m, models.Case{
			Batch: 1, LoRA: &models.LoRA{Rank: 8, Alpha: 8, Targets: c.targets},
			MemoryOptions: models.MemoryOptions{Quantize: c.quant},
		})
		require.Equal(t, c.want, m.Caveats(k), c.targets)
	}
}

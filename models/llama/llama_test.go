package llama

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

func llama(t *testing.T) models.Model {
	for _, m := range Models() {
		if m.Name == "llama" {
			return m
		}
	}
	t.Fatal("no llama")
	return models.Model{}
}

// The published counts of Llama 3 8B, Llama 3 70B, Llama 2 7B and, with tied
// embeddings, Llama 3.2 1B.
func TestParameterCounts(t *testing.T) {
	for want, s := range map[int64]models.Settings{
		8_030_261_248:  nil,
		70_553_706_496: {"layers": 80, "width": 8192, "heads": 64, "inner": 28672},
		6_738_415_616:  {"kv-heads": 32, "inner": 11008, "vocab": 32000},
		1_235_814_400:  {"layers": 16, "width": 2048, "inner": 8192, "tied": 1},
	} {
		c, err := llama(t).Complete(models.Case{Settings: s})
		require.NoError(t, err)
		trainer, err := llama(t).Build(c)
		require.NoError(t, err)
		require.Equal(t, want, trainer.Counts().Total, s)
	}
}

func TestHeadsMustDivideWhatTheyShare(t *testing.T) {
	for want, s := range map[string]models.Settings{
		"llama: heads: 24 does not divide width 4096":                                         {"heads": 24},
		"llama: heads: 32 heads of width 96 are 3 wide; rotary positions need an even number": {"width": 96},
		"llama: kv-heads: 5 does not divide heads 32":                                         {"kv-heads": 5},
		"llama: layers: 0 is out of range: decoder layers, from 1 to 512":                     {"layers": 0},
	} {
		_, err := llama(t).Complete(models.Case{Settings: s})
		require.EqualError(t, err, want)
	}
}

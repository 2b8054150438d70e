package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrongKinAreExplained(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "internlm3", "qkv_bias": true}`:                                    `qkv_bias: true, but bias is false: transformers uses one value for both, so set both to the same`,
		`{"model_type": "dots1", "n_group": 3}`:                                            `n_group: 3 groups: need a number that divides the 128 experts`,
		`{"model_type": "cwm", "num_hidden_layers": 2, "layer_types": ["full_attention"]}`: `layer_types: the list has 1 layers: need one value for each of the 2 layers of num_hidden_layers`,
	} {
		_, err := Parse("a/config.json", []byte(config))
		require.EqualError(t, err, "a/config.json: "+want, config)
	}
}

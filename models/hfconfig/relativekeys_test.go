package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrongKinAreExplained(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "internlm3", "qkv_bias": true}`:                                    `qkv_bias: true and bias false: transformers takes it for both`,
		`{"model_type": "dots1", "n_group": 3}`:                                            `n_group: 3 groups do not divide the 128 experts`,
		`{"model_type": "cwm", "num_hidden_layers": 2, "layer_types": ["full_attention"]}`: `layer_types: has 1 layers; num_hidden_layers is 2`,
	} {
		_, err := Parse("a/config.json", []byte(config))
		require.EqualError(t, err, "a/config.json: "+want, config)
	}
}

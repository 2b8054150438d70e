package peft

import (
	"testing"

	"github.com/stretchr/testify/require"
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
		{"lora2", nil, "vprof has no rules for the method lora2 of peft; there are adalora, "},
		{"boft", map[string]string{"boft_P": "tpu"}, "boft_P=tpu of boft is not one of gpu, cpu"},
		{"loha", map[string]string{"rank": "8"}, "loha has no option rank that bears on memory; there are r"},
		{"loha", map[string]string{"r": "eight"}, "r=eight of loha cannot be read; it is something like 8"},
		{"oft", map[string]string{"use_cayley_neumann": "2"}, "use_cayley_neumann=2 of oft cannot be read"},
	} {
		_, err := NewConfig(c.method, c.given)
		require.ErrorContains(t, err, c.says)
	}
}

// What peft calls lora_dropout, hira_dropout and so on can be called dropout, and keys that change
// no allocation may stand there.
func TestConfigTakesOtherKeys(t *testing.T) {
	c, err := NewConfig("hira", map[string]string{"dropout": "0.1", "hira_alpha": "64", "init_weights": "false"})
	require.NoError(t, err)
	require.InDelta(t, 0.1, c.number("hira_dropout"), 0)
}

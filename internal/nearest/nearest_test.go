package nearest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	gpus := []string{"rtx-3060", "rtx-3090", "rtx-4090", "rtx-5060-ti", "a100-40", "a100-80", "h100"}
	tests := []struct {
		word string
		n    int
		want []string
	}{
		{"rtx-3091", 3, []string{"rtx-3090", "rtx-3060", "rtx-4090"}}, // distances 1, 2, 2
		{"A100", 3, []string{"a100-40", "a100-80", "h100"}},           // contained, then one letter off
		{"5060", 3, []string{"rtx-5060-ti"}},
		{"RTX_5060TI", 1, []string{"rtx-5060-ti"}},
		{"rtx", 2, []string{"rtx-3060", "rtx-3090"}},
		{"resnet", 3, nil},
		{"", 3, nil},
		{"--", 3, nil},
		{"rtx", 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.word, func(t *testing.T) {
			require.Equal(t, tt.want, Names(tt.word, gpus, tt.n))
		})
	}
}

func TestDistance(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"kitten", "sitting", 3},
		{"flaw", "lawn", 2},
		{"abc", "abc", 0},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, editDistance(tt.a, tt.b), "%q to %q", tt.a, tt.b)
	}
}

func TestDistanceIsAMetric(t *testing.T) {
	word := rapid.StringMatching(`[ab]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		require.Equal(t, editDistance(a, b), editDistance(b, a))
		require.Equal(t, a == b, editDistance(a, b) == 0)
		require.LessOrEqual(t, editDistance(a, c), editDistance(a, b)+editDistance(b, c))
	})
}

func TestAKnownNameIsItsOwnNearest(t *testing.T) {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}[0-9]{2}`), 1, 8, rapid.ID[string])
	rapid.Check(t, func(t *rapid.T) {
		list := names.Draw(t, "names")
		word := rapid.SampledFrom(list).Draw(t, "word")
		require.Equal(t, []string{word}, Names(word, list, 1))
	})
}

func TestTyposAreNearAndOfTheSameNumber(t *testing.T) {
	keys := []string{"lora_alpha", "lora_r", "optimizer", "load_in_4bit", "load_in_8bit"}
	for word, want := range map[string]string{
		"lora_alpah": "lora_alpha", "arlo_r": "lora_r", "optimzer": "optimizer", "load_in_4bits": "load_in_4bit",
		"loadin8bit": "load_in_8bit",
		"lora_s":     "lora_r", "load_in_2bit": "", "my_own_key": "", "lora_r": "", "": "",
	} {
		require.Equal(t, want, LikelyTypo(word, keys), word)
	}
}

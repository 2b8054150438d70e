package cudnn

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestChoicesAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Choice{Engine: Engine(rapid.IntRange(0, numEngines-1).Draw(t, "engine"))}
		if rapid.Bool().Draw(t, "tiled") {
			c.TileM, c.TileN = rapid.Int64Range(1, 512).Draw(t, "m"), rapid.Int64Range(1, 512).Draw(t, "n")
		}
		c.Splits = rapid.Int64Range(0, 5000).Draw(t, "splits")
		have, err := parseChoice(c.String())
		require.NoError(t, err)
		require.Equal(t, c, have)
	})
}

func TestEveryFeatureAndEngineHasItsOwnName(t *testing.T) {
	seen := map[string]bool{}
	text, err := os.ReadFile("features.txt")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, numFeatures)
	for _, line := range append(lines, engineNames[:]...) {
		n, _, _ := strings.Cut(line, " ")
		require.NotEmpty(t, n)
		require.False(t, seen[n], n)
		seen[n] = true
	}
}

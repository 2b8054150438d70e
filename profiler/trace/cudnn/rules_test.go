package cudnn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMalformedRulesAreRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "no rules for"},
		{"no head", "c < 8 \n", `two words`},
		{"head of one word", "fprop\n", "two words"},
		{"unknown operation", "backward half\n= direct\n", "unknown rules"},
		{"twice", "fprop half\n= direct\nfprop half\n= direct\n", "twice"},
		{"unknown feature", "fprop half\nmood < 3\n= direct\n= copies\n", `unknown feature "mood"`},
		{"unknown engine", "fprop half\n= magic\n", `unknown engine "magic"`},
		{"half a tile", "fprop half\n= copies/64x\n", `choice "copies/64x"`},
		{"words after a choice", "fprop half\n= copies*3copies\n", `choice "copies*3copies"`},
		{"too many trees", "fprop half\n" + strings.Repeat("= direct\n", mostTrees+1), "more than"},
		{"no tree", "fprop half\n", "no tree"},
		{"missing branch", "fprop half\nc < 8\n= direct\n", "ends in the middle"},
		{"not a number", "fprop half\nc < many\n= direct\n= direct\n", "invalid syntax"},
		{"incomplete", "fprop half\n= direct\n", "no rules for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseRules(c.text)
			require.ErrorContains(t, err, c.want)
		})
	}
}

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
	for _, n := range append(append([]string{}, featureNames[:]...), engineNames[:]...) {
		require.NotEmpty(t, n)
		require.False(t, seen[n], n)
		seen[n] = true
	}
}

func FuzzParseRules(f *testing.F) {
	f.Add("fprop half\nc < 8\n= direct\n= copies/64x128*3\n")
	f.Add("fprop half\n" + strings.Repeat("c < 8\n", 100))
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRules(text)
		if err != nil {
			return
		}
		// What parses must decide.
		var x features
		for kind := range r.forests {
			for half := range r.forests[kind] {
				r.forests[kind][half].vote(&x)
			}
		}
	})
}

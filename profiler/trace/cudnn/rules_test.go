package cudnn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMalformedRulesAreRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no head", "c < 8\n", `unknown rules`},
		{"head of two words", "engine fprop\n", "three words"},
		{"unknown operation", "engine backward half\n= direct\n", "unknown rules"},
		{"unknown feature", "engine fprop half\nmood < 3\n= direct\n= copies\n", `unknown feature "mood"`},
		{"unknown engine", "engine fprop half\n= magic\n", `unknown engine "magic"`},
		{"missing branch", "engine fprop half\nc < 8\n= direct\n", "ends in the middle"},
		{"not a number", "split fprop half\n= many\n", "invalid syntax"},
		{"incomplete", "engine fprop half\n= direct\n", "no rules for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseRules(c.text)
			require.ErrorContains(t, err, c.want)
		})
	}
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
	f.Add("engine fprop half\nc < 8\n= direct # 3 cases\n= copies direct\n")
	f.Add(strings.Repeat("c < 8\n", 100))
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRules(text)
		if err != nil {
			return
		}
		// What parses must decide.
		var x features
		for kind := range r.engine {
			for half := range r.engine[kind] {
				r.engine[kind][half].leaf(&x)
				r.split[kind][half].leaf(&x)
			}
		}
	})
}

package naics

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

func recommend(part int, memory int64) models.ScriptAdvice {
	var s script
	return s.Recommend(s.Parts()[part], memory, s.EffectiveBatch())
}

func total(a models.ScriptAdvice) (sum int64) {
	for _, c := range a.Components {
		sum += c.Bytes
	}
	return sum
}

// What the script of lowmason/naics-embedder at 95fe372 prints.
func TestScriptFormulaGivesTheNumbersOfTheScript(t *testing.T) {
	for _, c := range []struct {
		gb           float64
		early, later string
	}{
		{24, "46/5/230/20.20/84.2", "120/2/240/20.26/84.4"},
		{32, "64/4/256/27.07/84.6", "128/2/256/21.43/67.0"},
		{40, "82/3/246/33.94/84.9", "128/2/256/21.43/53.6"},
		{80, "128/2/256/51.50/64.4", "128/2/256/21.43/26.8"},
		{8, "10/25/250/6.46/80.7", ""},
		{12, "19/13/247/9.89/82.4", ""},
		{16, "28/9/252/13.33/83.3", ""},
		{48, "99/2/198/40.43/84.2", ""},
		{31.75, "63/4/252/26.69/84.1", ""},
	} {
		for i, want := range []string{c.early, c.later} {
			g := recommend(i, int64(c.gb*(1<<30)))
			got := fmt.Sprintf("%d/%d/%d/%.2f/%.1f", g.Batch, g.Accumulate, g.Batch*g.Accumulate,
				float64(total(g))/(1<<30), 100*g.Utilization)
			if want != "" {
				require.Equal(t, want, got, "%v GB", c.gb)
			}
		}
	}
}

func TestScriptBreakdownIsThatOfTheScript(t *testing.T) {
	var got []string
	for _, c := range recommend(0, 24<<30).Components {
		got = append(got, fmt.Sprintf("%.1f", float64(c.Bytes)/(1<<20)))
	}
	require.Equal(t, []string{"200.7", "802.7", "200.7", "17944.5", "37.4", "1500.0"}, got)
}

// Not even one anchor fits 1 GiB; the script recommends one all the same.
func TestScriptRecommendsOneWhereNothingFits(t *testing.T) {
	g := recommend(0, 1<<30)
	require.Equal(t, 1, g.Batch)
	require.Equal(t, 256, g.Accumulate)
	require.Greater(t, g.Utilization, 1.0)
}

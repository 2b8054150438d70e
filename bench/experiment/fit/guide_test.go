package fit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/steptest"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// What the script of lowmason/naics-embedder at 95fe372 prints.
func TestGuideFormulaGivesTheNumbersOfTheScript(t *testing.T) {
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
			g := Guide(int64(c.gb*(1<<30)), GuideEffectiveBatch)[i]
			got := fmt.Sprintf("%d/%d/%d/%.2f/%.1f", g.Batch, g.Accumulate, g.EffectiveBatch, float64(g.Total)/(1<<30), 100*g.Utilization)
			if want != "" {
				require.Equal(t, want, got, "%v GB", c.gb)
			}
		}
	}
}

func TestGuideBreakdownIsThatOfTheScript(t *testing.T) {
	var got []string
	for _, c := range Guide(24<<30, GuideEffectiveBatch)[0].Components {
		got = append(got, fmt.Sprintf("%.1f", float64(c.Bytes)/(1<<20)))
	}
	require.Equal(t, []string{"200.7", "802.7", "200.7", "17944.5", "37.4", "1500.0"}, got)
}

// Not even one anchor fits 1 GiB; the script recommends one all the same.
func TestGuideRecommendsOneWhereNothingFits(t *testing.T) {
	g := Guide(1<<30, GuideEffectiveBatch)[0]
	require.Equal(t, 1, g.Batch)
	require.Equal(t, 256, g.Accumulate)
	require.Greater(t, g.Utilization, 1.0)
}

// On the A100 with 80 GiB the script recommends 128 anchors for both; a hundred
// would not fit.
func TestProfilesAreSafeWhereTheScriptIsNot(t *testing.T) {
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	s := Search{GPUs: []device.GPU{gpu}, Budget: planner.Budget{Margin: 0.85}, MaxBatch: 4096, Evidence: steptest.Exact()}
	profiles, err := Profiles(t.Context(), s, all.Models().Lookup)
	require.NoError(t, err)
	require.Len(t, profiles, 2)
	for _, p := range profiles {
		require.Positive(t, p.Choice.Batch)
		require.Less(t, p.Choice.Batch, 100)
		require.InEpsilon(t, GuideEffectiveBatch, p.Choice.EffectiveBatch, 0.02)
		require.LessOrEqual(t, p.Choice.Estimate.Device.Bytes, int64(0.85*float64(gpu.Memory)))
	}
	require.Less(t, profiles[0].Choice.Batch, profiles[1].Choice.Batch, "24 negatives take more than 8")
}

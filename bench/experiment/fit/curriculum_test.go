package fit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

// On the A100 with 80 GiB the script of the NAICS embedder recommends 128 anchors for
// both parts; a hundred would not fit.
func TestProfilesAreSafeWhereTheProjectsScriptIsNot(t *testing.T) {
	sample.Nightly(t) // curriculum.txtar does the same on the command line
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	m, err := all.Models().Lookup("naics-embedder")
	require.NoError(t, err)
	s := Search{
		Model: m, GPUs: []device.GPU{gpu}, Budget: planner.Budget{Margin: 0.85}, MaxBatch: 4096,
		Evidence: steptest.Exact(),
	}
	s.Cases, s.Slots = []models.Case{{Stage: "full", Torch: "2.15"}}, make(Slots, 1)
	profiles, err := Profiles(t.Context(), s, all.Models().Lookup)
	require.NoError(t, err)
	require.Len(t, profiles, 2)
	require.Empty(t, s.Slots, "all are free again")
	for _, p := range profiles {
		require.Positive(t, p.Choice.Batch)
		require.Equal(t, "2.15", p.Choice.Case.Torch, "the release of the search")
		require.Less(t, p.Choice.Batch, 100)
		require.InEpsilon(t, m.Curriculum.EffectiveBatch, p.Choice.EffectiveBatch, 0.02)
		require.LessOrEqual(t, p.Choice.Estimate.Device.Bytes, int64(0.85*float64(gpu.Memory)))
	}
	require.Less(t, profiles[0].Choice.Batch, profiles[1].Choice.Batch, "24 negatives take more than 8")
}

package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device/sim"
)

func toySmoke(free int64, c models.Case) SmokeTest {
	return SmokeTest{Search: toySearch(free, full(c))}
}

func checks(s *report.Smoke) map[string]report.Check {
	found := map[string]report.Check{}
	for _, c := range s.Checks {
		found[c.Name] = c
	}
	return found
}

// Weights 16 MiB; with a batch of 8, of 8 MiB, 80 of activations; backward adds
// 16 of gradients and 32 of temporaries, and after the first step 32 of state.
func TestSmokeAddsUpTheMomentsOfTraining(t *testing.T) {
	s, err := Smoke(t.Context(), toySmoke(1000, models.Case{Batch: 8}))
	require.NoError(t, err)
	require.True(t, s.Safe)
	for name, want := range map[string]int64{
		"model size": 16, "forward": 16 + 8 + 80, "training step": 64 + 15*8, "validation, batch 8": 16 + 8 + 80 + 32, "checkpoint save": 16 + 8 + 32,
		"stage frozen": 16 + 15*8,
	} {
		c, ok := checks(s)[name]
		require.True(t, ok, name)
		require.EqualValues(t, want*mib, c.Allocated, name)
		require.Equal(t, c.Reserved+100*mib, c.Device, name)
	}
	require.Contains(t, s.Verdict(), "SAFE: toy, batch 8 on card: training step needs")
}

func TestSmokeNamesTheLargestSafeBatch(t *testing.T) {
	s, err := Smoke(t.Context(), toySmoke(1000, models.Case{Batch: 200}))
	require.NoError(t, err)
	require.False(t, s.Safe)
	f, err := Fit(t.Context(), toySearch(1000, full(models.Case{})))
	require.NoError(t, err)
	require.Equal(t, f.Choices[0].Batch, s.LargestBatch)
	require.Contains(t, s.Verdict(), "NOT SAFE")
}

// Frozen fits with a batch of 60, but the stage after it does not.
func TestSmokeLooksAtTheStagesToCome(t *testing.T) {
	test := toySmoke(980, models.Case{Batch: 60})
	test.Cases[0].Stage = "frozen"
	s, err := Smoke(t.Context(), test)
	require.NoError(t, err)
	require.True(t, checks(s)["training step"].Safe)
	require.False(t, checks(s)["stage full"].Safe)
	require.False(t, s.Safe)
	require.Less(t, s.LargestBatch, 60)
}

func TestSmokeLooksAtTheLongestSample(t *testing.T) {
	test := toySmoke(1000, models.Case{Batch: 8})
	test.Longest = models.Settings{"seq-len": 16}
	s, err := Smoke(t.Context(), test)
	require.NoError(t, err)
	require.EqualValues(t, (64+15*8*16)*mib, checks(s)["longest sample"].Allocated)
	require.False(t, s.Safe)
	test.Longest = models.Settings{"seq-len": 1000}
	_, err = Smoke(t.Context(), test)
	var impossible *models.CaseError
	require.ErrorAs(t, err, &impossible)
}

func TestSmokeOnADeviceCountsWhatTheDeviceSees(t *testing.T) {
	test := toySmoke(1000, models.Case{Batch: 40})
	var err error
	test.Device, err = sim.New(card(300), 0) // smaller than the search believes
	require.NoError(t, err)
	s, err := Smoke(t.Context(), test)
	require.NoError(t, err)
	c := checks(s)["training step on sim:card"]
	require.NotNil(t, c.OOM)
	require.False(t, s.Safe)
	require.Equal(t, c, s.Worst())
}

func TestGrowthIsNamedByComponent(t *testing.T) {
	before, err := Smoke(t.Context(), toySmoke(1000, models.Case{Batch: 8}))
	require.NoError(t, err)
	same, err := Smoke(t.Context(), toySmoke(1000, models.Case{Batch: 8}))
	require.NoError(t, err)
	require.Empty(t, same.Since(before, 0))
	more, err := Smoke(t.Context(), toySmoke(1000, models.Case{Batch: 9}))
	require.NoError(t, err)
	grown := more.Since(before, 0.01)
	require.Contains(t, grown, report.Growth{Name: "activations", Before: 80 * mib, Now: 90 * mib})
	require.Empty(t, more.Since(before, 0.5))
	require.Empty(t, before.Since(more, 0))
}

var _ report.Document = (*report.Smoke)(nil)

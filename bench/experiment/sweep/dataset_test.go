package sweep

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/steptest"
)

// A data set that does not share a segment adds just its bytes, rounded up to at
// most a segment's 2 MiB; what streaming saves is what it adds.
func TestDatasetOnTheGPUAddsItsBytesAlone(t *testing.T) {
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	plan := func(t *rapid.T, bytes int64) report.Point {
		r, err := Plan(t.Context(), steptest.Toy(t, models.Case{Dataset: bytes}, ""), gpu, []int{8})
		require.NoError(t, err)
		require.Equal(t, bytes, r.Case.Dataset)
		return r.Points[0]
	}
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Int64Range(11<<20, 1<<40).Draw(t, "bytes")
		without, with := plan(t, 0), plan(t, bytes)
		require.Nil(t, without.Streamed)
		require.Equal(t, without.Estimate.Device, *with.Streamed)
		for of, more := range map[string]int64{
			"allocated": with.Estimate.Allocated.Bytes - without.Estimate.Allocated.Bytes,
			"reserved":  with.Estimate.Reserved.Bytes - without.Estimate.Reserved.Bytes,
			"saved":     with.StreamingSavings(),
		} {
			require.GreaterOrEqual(t, more, bytes, of)
			require.LessOrEqual(t, more, bytes+2<<20, of)
		}
	})
}

// A run file holds no timeline, so its case must say all that is recorded.
func TestCaseOfAReportRecordsTheSameAgain(t *testing.T) {
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	setup, err := step.New(m, models.Case{
		Stage: "full", AMP: "bf16", Checkpointing: true, Accumulate: 3, Optimizer: "sgd",
		Settings: models.Settings{"seq-len": 64},
		LoRA:     &models.LoRA{Rank: 4, Alpha: 8, Targets: []string{"q_proj"}}, Dataset: 1 << 30,
		AllocConf: "expandable_segments:True",
	}, steptest.Exact())
	require.NoError(t, err)
	r, err := Plan(t.Context(), setup, gpu, []int{2})
	require.NoError(t, err)
	again, err := step.NewFromReport(all.Models(), r.Case, steptest.Exact())
	require.NoError(t, err)
	s, err := Plan(t.Context(), again, gpu, []int{2})
	require.NoError(t, err)
	require.Equal(t, r, s)
}

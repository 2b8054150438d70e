package script_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// The largest batch of a command whose need is linear in the batch takes at most four runs, and is a multiple; one that
// grows with its square, as pairs of samples do, takes two more where the second run does not fit.
func TestTheLargestBatchTakesFewRuns(t *testing.T) {
	gpu := device.GPU{Name: "card", Memory: 24 << 30}
	rapid.Check(t, func(t *rapid.T) {
		fixed, each := rapid.Int64Range(1<<20, 8<<30).Draw(t, "fixed"), rapid.Int64Range(1<<20, 1<<30).Draw(t, "each")
		multiple, runs := rapid.IntRange(1, 8).Draw(t, "multiple"), 0
		known := rapid.Int64Range(0, fixed).Draw(t, "known")
		reserved, most := func(batch int) int64 { return fixed + each*int64(batch) }, 4
		if rapid.Bool().Draw(t, "squared") {
			reserved, most = func(batch int) int64 { return each >> 6 * int64(batch) * int64(batch) }, 6
			known = 0
		}
		budget := planner.Budget{Memory: gpu.Memory, Margin: planner.DefaultMargin}
		safe := func(batch int) bool {
			return budget.Need(planner.EstimateOfRun(gpu, reserved(batch))) <= budget.Limit()
		}
		found, err := script.LargestBatch(t.Context(), gpu, budget, multiple, 1<<16,
			func(batch int) (script.BatchRun, error) {
				runs++
				sized := script.BatchRun{Batch: batch}
				if reserved(batch) <= gpu.Memory {
					sized.Reserved, sized.Fixed = reserved(batch), known
				}
				return sized, nil
			})
		require.NoError(t, err)
		require.Zero(t, found.Batch%multiple)
		require.True(t, found.Batch == 0 || safe(found.Batch))
		require.False(t, safe(found.Batch+multiple))
		require.Equal(t, found.Batch+multiple, found.FirstFailing)
		require.LessOrEqual(t, runs, most)
	})
}

// No batch is larger than the data set, however much would fit.
func TestSamplesBoundTheLargestBatch(t *testing.T) {
	gpu := device.GPU{Name: "card", Memory: 24 << 30}
	for samples, want := range map[int]int{100: 96, 64: 64, 5: 8} {
		found, err := script.LargestBatch(t.Context(), gpu, planner.Budget{Margin: planner.DefaultMargin}, 8, 1<<16,
			func(batch int) (script.BatchRun, error) {
				require.LessOrEqual(t, batch, max(8, samples))
				return script.BatchRun{Batch: batch, Reserved: int64(batch) << 20, Samples: samples}, nil
			})
		require.NoError(t, err)
		require.Equal(t, report.Largest{Batch: want, Safe: true, Samples: samples, Limit: found.Limit}, found)
	}
}

// Where the optimizer has the peak of small batches, the peaks of the other phases tell what larger ones need.
func TestPeaksOfPhasesTellWhatLargerBatchesNeed(t *testing.T) {
	gpu, runs := device.GPU{Name: "card", Memory: 24 << 30}, 0
	budget := planner.Budget{Memory: gpu.Memory, Margin: planner.DefaultMargin}
	found, err := script.LargestBatch(t.Context(), gpu, budget, 1, 1<<20, func(batch int) (script.BatchRun, error) {
		runs++
		peaks := map[string]int64{"optimizer": 4 << 30, "backward": 2<<30 + 100_000*int64(batch)}
		sized := script.BatchRun{Batch: batch, Reserved: max(peaks["optimizer"], peaks["backward"]), Peaks: peaks}
		if sized.Reserved > gpu.Memory {
			sized.Reserved = 0
		}
		return sized, nil
	})
	require.NoError(t, err)
	require.LessOrEqual(t, runs, 4)
	require.Equal(t, found.Batch+1, found.FirstFailing)
}

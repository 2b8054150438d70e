package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
)

// tried returns a sweep of a GPU that ran some batch sizes, of which those above most do not
// fit; it ends at the first of these.
func tried(gpu string, most int, batches ...int) *Report {
	r := &Report{
		Schema: Schema, Kind: Sweep, Case: Case{Case: models.Case{Model: "toy", Stage: "full"}},
		Devices: []Device{{Name: gpu, GPU: "t4", UUID: gpu}},
	}
	for i, b := range batches {
		r.Points = append(r.Points, Point{Batch: b, Device: gpu, Run: &Run{Fits: b <= most}})
		if b > most {
			r.Stopped = StoppedByOOM(b, batches[i+1:])
			break
		}
	}
	return r
}

func TestMergedSweepEndsWhereOneProcessWouldHaveEnded(t *testing.T) {
	whole := tried("cuda:0", 20, 8, 16, 24, 32, 64)
	for _, parts := range [][]*Report{
		{tried("cuda:0", 20, 8, 16), tried("cuda:0", 20, 24), tried("cuda:0", 20, 32, 64)},
		{tried("cuda:0", 20, 24, 64), tried("cuda:0", 20, 8, 16, 32)},
		{
			tried("cuda:0", 20, 8), tried("cuda:0", 20, 64), tried("cuda:0", 20, 32), tried("cuda:0", 20, 24),
			tried("cuda:0", 20, 16),
		},
	} {
		merged, err := Merge(parts...)
		require.NoError(t, err)
		require.Equal(t, whole, merged)
	}
	fit, err := Merge(tried("cuda:0", 64, 32), tried("cuda:0", 64, 8))
	require.NoError(t, err)
	require.Nil(t, fit.Stopped)
	require.Equal(t, []int{32, 8}, []int{fit.Points[0].Batch, fit.Points[1].Batch}, "in the order of the jobs")
}

// What was merged merges with more.
func TestMergingIsAssociative(t *testing.T) {
	a, b, c := tried("cuda:0", 20, 8, 32), tried("cuda:0", 20, 16, 64), tried("cuda:0", 20, 24)
	ab, err := Merge(a, b)
	require.NoError(t, err)
	left, err := Merge(ab, c)
	require.NoError(t, err)
	bc, err := Merge(b, c)
	require.NoError(t, err)
	right, err := Merge(a, bc)
	require.NoError(t, err)
	require.Equal(t, left, right)
	require.Equal(t, 24, left.Stopped.Batch)
	require.Equal(t, []int{32, 64}, left.Stopped.Left)
}

func TestMergedSearchHasTheLargestOfAll(t *testing.T) {
	a, b := tried("cuda:0", 64, 8, 16), tried("cuda:0", 64, 32)
	a.Largest, b.Largest = &Largest{Batch: 16, FirstFailing: 40}, &Largest{Batch: 32, FirstFailing: 36}
	merged, err := Merge(a, b)
	require.NoError(t, err)
	require.Equal(t, &Largest{Batch: 32, FirstFailing: 36}, merged.Largest)
}

func TestSweepsOfSeveralGPUsStandForThemselves(t *testing.T) {
	a, b := tried("cuda:0", 20, 8, 16), tried("cuda:1", 20, 32, 64)
	_, err := Merge(a, b)
	require.True(t, input.IsBadInput(err))
	sweeps, err := MergeSweeps(a, b, tried("cuda:0", 20, 24, 32))
	require.NoError(t, err)
	require.Len(t, sweeps, 2)
	require.Equal(t, tried("cuda:0", 20, 8, 16, 24, 32), sweeps[0])
	require.Equal(t, b, sweeps[1])
	_, err = MergeSweeps()
	require.True(t, input.IsBadInput(err))
}

package epoch_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

var few = epoch.Options{Epochs: 4, MaxReplayedActions: 1}

func setupOf(t *testing.T, name string, c models.Case) *step.Setup {
	m, err := all.Models().Lookup(name)
	require.NoError(t, err)
	s, err := step.New(m, c, steptest.Exact())
	require.NoError(t, err)
	return s
}

func catalogGPU(t *testing.T, name string) device.GPU {
	gpu, err := device.Lookup(name)
	require.NoError(t, err)
	return gpu
}

func lengths(t *testing.T, text string, b epoch.Batching) *epoch.Lengths {
	l, err := epoch.ParseLengths(text)
	require.NoError(t, err)
	l.Batching = b
	return l
}

// Samples of one length need what the plan of that length says, however many micro-batches a step has.
func TestEqualLengthsNeedWhatTheirPlanSays(t *testing.T) {
	for _, accumulate := range []int{1, 3} {
		s := setupOf(t, "llama-tiny", models.Case{
			Accumulate: accumulate,
			Settings:   models.Settings{"seq-len": 64, "packed": 0},
		})
		r, err := epoch.Run(t.Context(), s, catalogGPU(t, "t4"), 2,
			lengths(t, "uniform:min=64,max=64,samples=40", epoch.Padded), few)
		require.NoError(t, err)
		require.Zero(t, r.Padding)
		require.Equal(t, int64(64), r.WorstLength)
		last := r.Epochs.Reserved[len(r.Epochs.Reserved)-1]
		// Later steps begin with other free blocks, and one of them needs one more segment of 2 MiB.
		require.Equal(t, r.Worst.Reserved.Bytes, r.Epochs.Reserved[0].Median)
		require.LessOrEqual(t, last.Median, r.Worst.Reserved.Bytes+2<<20)
		require.LessOrEqual(t, last.Median, r.Worst.Reserved.High)
		require.Equal(t, last.Median, last.Most)
		require.Equal(t, (20+accumulate-1)/accumulate, r.Steps)
		require.Equal(t, r.Steps, r.Replayed)
	}
}

// What ranks make anew in their second step, such as the buckets of DDP, is made once.
func TestRanksSettleDown(t *testing.T) {
	for _, strategy := range []string{models.DDP, models.FSDP2} {
		s := setupOf(t, "llama-tiny", models.Case{
			GPUs: 2, Strategy: &models.Strategy{Name: strategy},
			Settings: models.Settings{"seq-len": 64, "packed": 0},
		})
		r, err := epoch.Run(t.Context(), s, catalogGPU(t, "t4"), 2,
			lengths(t, "uniform:min=64,max=64,samples=80", epoch.Padded), few)
		require.NoError(t, err)
		by := r.Epochs.Reserved
		require.Equal(t, by[len(by)-2].Most, by[len(by)-1].Most, strategy) // steps 10 and 40
	}
}

// The cache grows as lengths vary, to more than the worst batch needs alone; with expandable segments it does not.
func TestTheCacheGrowsOverLengths(t *testing.T) {
	sample.Whole(t)
	s := setupOf(t, "llama-tiny", models.Case{Settings: models.Settings{"seq-len": 2048, "packed": 0, "vocab": 32000}})
	l := lengths(t, "lognormal:mean=500,p95=1500,samples=160", epoch.Padded)
	grows, err := epoch.Run(t.Context(), s, catalogGPU(t, "a100-80"), 4, l, few)
	require.NoError(t, err)
	require.Greater(t, grows.Epochs.Most, grows.Worst.Reserved.Bytes+grows.Worst.Reserved.Bytes/10)
	before := int64(0)
	for _, g := range grows.Epochs.Reserved {
		require.GreaterOrEqual(t, g.Median, before)
		before = g.Median
	}
	again, err := epoch.Run(t.Context(), s, catalogGPU(t, "a100-80"), 4, l, few)
	require.NoError(t, err)
	require.Equal(t, grows, again)

	// On a GPU that has room for the worst batch, some epochs are short of it.
	small := catalogGPU(t, "a100-80")
	small.Memory = grows.Worst.Device.Bytes + 64*steptest.MiB
	late, err := epoch.Run(t.Context(), s, small, 4, l, few)
	require.NoError(t, err)
	require.True(t, late.Epochs.RanShortOfMemory())
	require.NotNil(t, late.Expandable)
	require.LessOrEqual(t, late.Expandable.OutOfMemory, late.Epochs.OutOfMemory)
}

// A search that ends at the first epoch beyond a limit finds what all epochs say of it.
func TestAnEpochBeyondALimitEndsTheReplays(t *testing.T) {
	s := setupOf(t, "llama-tiny", models.Case{Settings: models.Settings{"seq-len": 512, "packed": 0}})
	l := lengths(t, "lognormal:mean=100,p95=300,samples=48", epoch.Padded)
	gpu := catalogGPU(t, "a100-80")
	all, err := epoch.Run(t.Context(), s, gpu, 4, l, few)
	require.NoError(t, err)
	for _, limit := range []int64{all.Epochs.Most / 2, all.Epochs.Most - 1, all.Epochs.Most, 2 * all.Epochs.Most} {
		within := few
		within.MemoryLimit = limit
		r, err := epoch.Run(t.Context(), s, gpu, 4, l, within)
		require.NoError(t, err)
		require.Equal(t, all.Epochs.Most > limit, r.Epochs.Most > limit, "%d", limit)
		if all.Epochs.Most <= limit {
			require.Equal(t, all, r)
		}
	}
	small := gpu
	small.Memory = all.Worst.Device.Bytes / 2
	few := few
	few.MemoryLimit = small.Memory
	strained, err := epoch.Run(t.Context(), s, small, 4, l, few)
	require.NoError(t, err)
	require.True(t, strained.Epochs.RanShortOfMemory())
	require.Nil(t, strained.Expandable, "nobody asks for it")
}

func TestABatchThatDoesNotFitRunsOutOfMemory(t *testing.T) {
	s := setupOf(t, "llama-tiny", models.Case{Settings: models.Settings{"seq-len": 512, "packed": 0}})
	small := catalogGPU(t, "t4")
	small.Memory = small.Context + 20*steptest.MiB
	for _, b := range epoch.Batchings() {
		r, err := epoch.Run(t.Context(), s, small, 8, lengths(t, "uniform:min=400,max=512,samples=80", b), few)
		require.NoError(t, err)
		require.Equal(t, report.DoesNotFit, r.Worst.Verdict)
		require.Equal(t, r.Epochs.Count, r.Epochs.OutOfMemory)
		require.Equal(t, 1, r.Epochs.FirstOOM)
		require.Equal(t, b == epoch.Packed, r.Epochs.Low == r.Epochs.High)
	}
}

// Padding brings a mask where the lengths say so.
func TestPaddingBringsAMask(t *testing.T) {
	s := setupOf(t, "bert-base", models.Case{Settings: models.Settings{"seq-len": 512, "padding": 0, "layers": 1}})
	l := lengths(t, "uniform:min=500,max=512,samples=64", epoch.Padded)
	plain, err := epoch.Run(t.Context(), s, catalogGPU(t, "a100-80"), 32, l, few)
	require.NoError(t, err)
	l.Masked = true
	masked, err := epoch.Run(t.Context(), s, catalogGPU(t, "a100-80"), 32, l, few)
	require.NoError(t, err)
	require.Greater(t, masked.Worst.Allocated.Bytes, plain.Worst.Allocated.Bytes)
}

func TestWhatHasNoLengthsSaysSo(t *testing.T) {
	s := setupOf(t, "resnet50", models.Case{})
	_, err := epoch.Run(t.Context(), s, catalogGPU(t, "t4"), 4, lengths(t, "uniform:max=9", epoch.Padded), few)
	require.True(t, input.IsBadInput(err))
	l := lengths(t, "uniform:max=9", epoch.Padded)
	l.Setting = "depth"
	_, err = epoch.Run(t.Context(), setupOf(t, "llama-tiny", models.Case{}), catalogGPU(t, "t4"), 4, l, few)
	require.ErrorContains(t, err, `llama-tiny has no setting "depth"`)
}

func TestAnEpochCanBeStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := epoch.Run(ctx, setupOf(t, "llama-tiny", models.Case{}), catalogGPU(t, "t4"), 4,
		lengths(t, "uniform:max=9", epoch.Padded), few)
	require.ErrorIs(t, err, context.Canceled)
}

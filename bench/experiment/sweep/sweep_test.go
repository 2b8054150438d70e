package sweep

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

func batches(sizes ...int) Options { return Options{Batches: sizes} }

func quietly(*report.Report) error { return nil }

// The toy peaks at 64 MiB + 15 MiB per sample. Batch 32 needs 544 MiB, and another 128 because the optimizer's state
// lands in the block of the temporaries; it fits into 800. Batch 64 needs 1024 MiB and does not. The allocation that
// fails are the 256 MiB of temporaries, after 720.
func TestSweepStopsAtTheFirstBatchThatDoesNotFit(t *testing.T) {
	seen := 0
	r, err := Run(t.Context(), steptest.Toy(t, models.Case{}, ""), steptest.On(t, steptest.Card(800)),
		batches(128, 8, 64, 32, 8), func(r *report.Report) error {
			seen++
			require.Len(t, r.Points, seen)
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, 3, seen)
	require.Equal(t, &report.Stopped{Batch: 64, Left: []int{128}, Reason: "out of memory at batch 64"}, r.Stopped)
	for i, batch := range []int{8, 32} {
		p := r.Points[i]
		require.Equal(t, batch, p.Batch)
		require.True(t, p.Run.Fits)
		require.True(t, p.Run.Simulated)
		require.EqualValues(t, (64+15*batch)*steptest.MiB, p.Run.Allocated)
		require.Equal(t, p.Run.Reserved+100*steptest.MiB, p.Run.Device)
		require.Equal(t, "2:backward", p.Run.PeakPhase)
	}
	oom := r.Points[2].Run.OOM
	require.False(t, r.Points[2].Run.Fits)
	require.EqualValues(t, 256*steptest.MiB, oom.Requested)
	require.EqualValues(t, 80*steptest.MiB, oom.Free)
	require.Equal(t, "temporaries", oom.Class)
	require.Equal(t, "mul", oom.Op)
	require.Equal(t, "1:backward", oom.Phase)
}

func TestClassesOfARunSumToItsPeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := models.Case{
			Stage:         rapid.SampledFrom([]string{"full", "frozen"}).Draw(t, "stage"),
			AMP:           rapid.SampledFrom(models.AutocastPrecisions()).Draw(t, "amp"),
			Checkpointing: rapid.Bool().Draw(t, "checkpointing"),
			Accumulate:    rapid.IntRange(1, 3).Draw(t, "accumulate"),
		}
		r, err := Run(context.Background(), steptest.Toy(t, c, ""), steptest.On(t, steptest.Card(4000)),
			batches(rapid.IntRange(2, 200).Draw(t, "batch")), quietly)
		require.NoError(t, err)
		var sum int64
		for _, part := range r.Points[0].Run.Classes {
			sum += part.Bytes
		}
		require.Equal(t, r.Points[0].Run.Allocated, sum)
	})
}

func TestEstimateOfAReplayedBatchIsWhatTheRunNeeds(t *testing.T) {
	r, err := Run(t.Context(), steptest.Toy(t, models.Case{}, ""), steptest.On(t, steptest.Card(4000)),
		batches(8, 16, 32, 64), quietly)
	require.NoError(t, err)
	for _, p := range r.Points {
		require.False(t, p.Estimate.Interpolated)
		require.Equal(t, p.Run.Allocated, p.Estimate.Allocated.Bytes)
		require.Equal(t, p.Run.Reserved, p.Estimate.Reserved.Bytes)
		require.Equal(t, p.Run.Device, p.Estimate.Device.Bytes)
	}
}

// However many batch sizes are shown, each is recorded.
func TestEveryBatchOfAPlanIsReplayed(t *testing.T) {
	batches := []int{8, 16, 24, 32, 40, 48, 56, 64, 72}
	r, err := Plan(t.Context(), steptest.Toy(t, models.Case{}, ""), steptest.Card(600), batches)
	require.NoError(t, err)
	require.EqualValues(t, 4<<20, r.Parameters.Total)
	for _, p := range r.Points {
		require.Nil(t, p.Run)
		require.EqualValues(t, (64+15*p.Batch)*steptest.MiB, p.Estimate.Allocated.Bytes)
		require.False(t, p.Estimate.Interpolated)
	}
}

// The estimate goes on where the GPU ends: 64 + 15*64 MiB are 1024 MiB.
func TestTrialsOfAPlanCanRunElsewhere(t *testing.T) {
	here := steptest.Toy(t, models.Case{}, "")
	wire := &steptest.Wire{Models: models.NewRegistry([]models.Model{toy.Model()})}
	evidence := here.Evidence()
	evidence.Trials = wire
	there, err := step.New(here.Model(), here.Case(), evidence)
	require.NoError(t, err)
	var plans []*report.Report
	for _, s := range []*step.Setup{here, there} {
		r, err := Plan(t.Context(), s, steptest.Card(600), []int{8, 36, 200})
		require.NoError(t, err)
		plans = append(plans, r)
	}
	require.Equal(t, plans[0], plans[1])
	require.GreaterOrEqual(t, wire.Trials(), 3)
}

func TestPlanEstimatesBeyondTheGPU(t *testing.T) {
	setup := steptest.Toy(t, models.Case{}, "per_process_memory_fraction:0.5")
	for free, want := range map[int64]report.Verdict{600: report.DoesNotFit, 9000: report.Fits} {
		r, err := Plan(t.Context(), setup, steptest.Card(free), []int{64})
		require.NoError(t, err)
		require.EqualValues(t, 1024*steptest.MiB, r.Points[0].Estimate.Allocated.Bytes)
		require.Equal(t, want, r.Points[0].Estimate.Verdict)
	}
}

func TestAllocatorSettingsReachTheRun(t *testing.T) {
	reserved := func(conf string) int64 {
		r, err := Run(t.Context(), steptest.Toy(t, models.Case{}, conf), steptest.On(t, steptest.Card(4000)),
			batches(9), quietly)
		require.NoError(t, err)
		require.Equal(t, conf, r.Case.AllocConf)
		return r.Points[0].Run.Reserved
	}
	require.NotEqual(t, reserved(""), reserved("expandable_segments:True"))
	_, err := step.New(toy.Model(), models.Case{AllocConf: "max_split:1"}, steptest.Exact())
	require.True(t, input.IsBadInput(err))
	require.ErrorContains(t, err, "max_split")
}

// A batch norm refuses one sample: that is a row, not the end.
func TestARefusedBatchIsNoEnd(t *testing.T) {
	r, err := Run(t.Context(), steptest.Toy(t, models.Case{}, ""), steptest.On(t, steptest.Card(4000)),
		batches(1, 8, 16), quietly)
	require.NoError(t, err)
	require.Equal(t, []int{8, 16}, r.Batches())
	require.Len(t, r.Refused, 1)
	require.Equal(t, 1, r.Refused[0].Batch)
	require.Contains(t, r.Refused[0].Reason, "norm: Expected more than 1 value per channel")
	again, err := Run(t.Context(), steptest.Toy(t, models.Case{}, ""), steptest.On(t, steptest.Card(4000)),
		Options{Batches: []int{1, 8, 32}, Resumed: r}, quietly)
	require.NoError(t, err)
	require.Equal(t, r.Refused, again.Refused)
}

func TestRefusedBatchIsAnErrorBeforeAnyPoint(t *testing.T) {
	_, err := Run(t.Context(), steptest.Toy(t, models.Case{}, ""), steptest.On(t, steptest.Card(600)), batches(1),
		func(*report.Report) error {
			t.Fatal("no point can be done")
			return nil
		})
	var refused *step.RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "batch 1: norm: Expected more than 1 value per channel")
}

func TestInterruptedSweepReturnsWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := Run(ctx, steptest.Toy(t, models.Case{}, ""), steptest.On(t, steptest.Card(4000)), batches(8, 16, 32),
		func(*report.Report) error {
			cancel()
			return nil
		})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, r.Points, 1)
	require.Equal(t, []int{16, 32}, r.Stopped.Left)
}

// Whatever a sweep that goes on does, the points that it was given stay.
func TestPointsOfAnEarlierSweepStay(t *testing.T) {
	run := func(ctx context.Context, o Options, each func(*report.Report) error) (*report.Report, error) {
		return Run(ctx, steptest.Toy(t, models.Case{}, ""), steptest.On(t, steptest.Card(4000)), o, each)
	}
	earlier, err := run(t.Context(), batches(8, 64), quietly)
	require.NoError(t, err)
	on := func(sizes ...int) Options { return Options{Batches: sizes, Resumed: earlier} }

	r, err := run(t.Context(), on(32), func(r *report.Report) error {
		require.Equal(t, []int{8, 32, 64}, r.Batches())
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []report.Point{earlier.Points[0], earlier.Points[1]}, []report.Point{r.Points[0], r.Points[2]})

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err = run(ctx, on(4, 8), quietly)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []int{8, 64}, r.Batches())

	other := *earlier
	other.Points = append(other.Points[:1:1], report.Point{Batch: 16, Device: "sim:t4", Run: earlier.Points[0].Run})
	_, err = run(t.Context(), Options{Batches: []int{8}, Resumed: &other}, quietly)
	require.ErrorContains(t, err, "its batch 16 on sim:t4 is no run on")
}

func TestSweepEndsWhenAResultCannotBeSaved(t *testing.T) {
	cause := errors.New("disk full")
	r, err := Run(t.Context(), steptest.Toy(t, models.Case{}, ""), steptest.On(t, steptest.Card(4000)), batches(8, 16),
		func(*report.Report) error {
			return cause
		})
	require.ErrorIs(t, err, cause)
	require.Len(t, r.Points, 1)
}

package fit

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

// toySearch looks for the toy in everything that a card has free.
func toySearch(free int64, cases ...models.Case) Search {
	return Search{
		Model: toy.Model(), Cases: cases, GPUs: []device.GPU{steptest.Card(free)}, Budget: planner.Budget{Margin: 1},
		MaxBatch: 4096, Evidence: steptest.Exact(),
	}
}

// A search plans trials and reads results: whoever runs them, it finds the same, on one GPU and on several.
func TestTrialsOfASearchCanRunElsewhere(t *testing.T) {
	for _, gpus := range [][]string{{"rtx-3060"}, {"t4", "rtx-3060"}} {
		s := toySearch(600, steptest.Full(models.Case{}), steptest.Full(models.Case{AMP: "fp16", Accumulate: 4}),
			steptest.Full(models.Case{Settings: models.Settings{"seq-len": 4}}))
		s.GPUs = steptest.GPUs(t, gpus...)
		here, err := Run(t.Context(), s)
		require.NoError(t, err)
		wire := &steptest.Wire{Models: models.NewRegistry([]models.Model{toy.Model()})}
		s.Trials = wire
		there, err := Run(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, here, there)
		require.Positive(t, wire.Trials())
	}
}

// The device needs 100 MiB, and reserves what the toy allocates, 64 MiB + 15 MiB per sample, and slack.
func TestFitIsTheEdgeOfTheBudget(t *testing.T) {
	sample.Alone(t)
	rapid.Check(t, func(t *rapid.T) {
		s := toySearch(rapid.Int64Range(200, 4000).Draw(t, "free"), steptest.Full(models.Case{
			AMP:           rapid.SampledFrom(models.AutocastPrecisions()).Draw(t, "amp"),
			Checkpointing: rapid.Bool().Draw(t, "checkpointing"),
		}))
		s.Budget.Margin = rapid.Float64Range(0.7, 1).Draw(t, "margin")
		f, err := Run(context.Background(), s)
		require.NoError(t, err)
		c := f.Choices[0]
		limit := int64(float64(s.GPUs[0].Memory) * s.Budget.Margin)
		if c.Batch == 0 {
			require.Greater(t, c.Estimate.Device.High, limit)
			return
		}
		require.LessOrEqual(t, c.Estimate.Device.Bytes, limit)
		require.True(t, c.Run.Fits)
		require.Zero(t, c.Run.Retries)
		require.Equal(t, c.Estimate.Device.Bytes, c.Run.Device)
		setup := steptest.Toy(t, s.Cases[0], "")
		most := int64(0)
		for batch := c.Batch + 1; batch <= c.Batch+c.Batch/16+1; batch++ {
			beyond, err := judge.JudgeBatch(context.Background(), setup, s.GPUs[0], batch)
			require.NoError(t, err)
			most = max(most, beyond.Loops[0].Device.High)
		}
		require.Greater(t, most, limit)
	})
}

// 250 MiB of other processes leave as much less.
func TestOtherProcessesTakeFromTheBudget(t *testing.T) {
	alone, err := Run(t.Context(), toySearch(1000, steptest.Full(models.Case{})))
	require.NoError(t, err)
	s := toySearch(1250, steptest.Full(models.Case{}))
	s.Others = 250 * steptest.MiB
	beside, err := Run(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, alone.Choices[0].Batch, beside.Choices[0].Batch)
	require.Equal(t, alone.Choices[0].Run, beside.Choices[0].Run)
}

// A step of many micro-batches finds the cache in another order than one of two, so that what is safe is a matter of
// how many there are. Reserved bytes of this system hang on it.
func TestTheLargestBatchIsOfAllMicroBatches(t *testing.T) {
	sample.Alone(t)
	m, err := all.Models().Lookup("spectrogram-gan")
	require.NoError(t, err)
	gpu := steptest.GPUs(t, "a30")[0]
	gpu.Memory = 3000 * steptest.MiB
	c := m.Default
	c.Accumulate, c.Checkpointing, c.AMP = 4, true, "bf16"
	s := Search{
		Model: m, Cases: []models.Case{c}, GPUs: []device.GPU{gpu}, MaxBatch: 24,
		Budget: planner.Budget{Margin: planner.DefaultMargin}, Evidence: step.Evidence{Residuals: planner.Residuals},
	}
	f, err := Run(t.Context(), s)
	require.NoError(t, err)
	setup, err := step.New(m, c, s.Evidence)
	require.NoError(t, err)
	safety, err := judge.New(setup, gpu, s.Budget, 0)
	require.NoError(t, err)
	largest, err := safety.Largest(t.Context(), planner.Start{Batch: 16}, s.MaxBatch)
	require.NoError(t, err)
	require.Equal(t, largest, f.Choices[0].Largest)
}

// Where nothing fits, what is shown has as many micro-batches as the effective batch takes of the smallest.
func TestWhatDoesNotFitHasTheMicroBatchesAskedFor(t *testing.T) {
	s := toySearch(1, steptest.Full(models.Case{}))
	s.Effective = 4
	f, err := Run(t.Context(), s)
	require.NoError(t, err)
	require.False(t, f.Choices[0].Fits())
	s.Effective, s.Cases[0].Accumulate = 0, 4
	same, err := Run(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, same.Choices[0].Estimate.Device.Bytes, f.Choices[0].Estimate.Device.Bytes)
	require.Equal(t, 4, f.Choices[0].Case.Accumulate)
}

func TestEffectiveBatchIsSplitIntoFewMicroBatches(t *testing.T) {
	s := toySearch(700, steptest.Full(models.Case{}))
	s.Effective = 256
	f, err := Run(t.Context(), s)
	require.NoError(t, err)
	c := f.Choices[0]
	require.InEpsilon(t, 256, c.EffectiveBatch, 0.02)
	require.Equal(t, c.EffectiveBatch, c.Batch*c.Case.Accumulate)
	require.LessOrEqual(t, c.Batch, c.Largest)
	batch, n := planner.SplitBatch(256, c.Largest, 0)
	require.Equal(t, []int{batch, n}, []int{c.Batch, c.Case.Accumulate})

	s = toySearch(70000, steptest.Full(models.Case{}))
	s.Effective = 256
	f, err = Run(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, []int{256, 1}, []int{f.Choices[0].Batch, f.Choices[0].Case.Accumulate})
}

// The smallest batch that PyTorch does not refuse, two, needs 94 MiB.
func TestNothingFitsIsAResult(t *testing.T) {
	f, err := Run(t.Context(), toySearch(60, steptest.Full(models.Case{})))
	require.NoError(t, err)
	c := f.Choices[0]
	require.False(t, c.Fits())
	require.EqualValues(t, 94*steptest.MiB, c.Estimate.Allocated.Bytes)
	_, ok := f.Overall("sim:card")
	require.False(t, ok)
	require.Contains(t, f.Sheets()[0].Answer[0], "nothing fits: the smallest batch")
}

func TestRefusedConfigurationsStandAsideUnlessAllAre(t *testing.T) {
	bad := steptest.Full(models.Case{Settings: models.Settings{"seq-len": 3, "heads": 2}})
	f, err := Run(t.Context(), toySearch(1000, bad, steptest.Full(models.Case{})))
	require.NoError(t, err)
	require.Contains(t, f.Choices[1].Refused, "2 does not divide seq-len 3")
	require.True(t, f.Choices[0].Recommended)

	_, err = Run(t.Context(), toySearch(1000, bad))
	var impossible *models.CaseError
	require.ErrorAs(t, err, &impossible)
}

// Frozen takes fewer bytes than full; what is safe for both is full's batch.
func TestOverallIsSafeInEveryStage(t *testing.T) {
	s := toySearch(1000, steptest.Full(models.Case{}), models.Case{Stage: "frozen", Accumulate: 1})
	f, err := Run(t.Context(), s)
	require.NoError(t, err)
	require.Less(t, f.Choices[0].Batch, f.Choices[1].Batch)
	c, ok := f.Overall("sim:card")
	require.True(t, ok)
	require.Equal(t, "full", c.Case.Stage)
}

func TestCappedSearchSaysSo(t *testing.T) {
	s := toySearch(100000, steptest.Full(models.Case{}))
	s.MaxBatch = 10
	f, err := Run(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, 10, f.Choices[0].Batch)
	require.True(t, f.Choices[0].LargestIsCapped)
}

// What lets surveys record two micro-batches for any number of them, and extrapolate times from the recorded ones.
func TestMicroBatchesAfterTheSecondAllocateNoMoreAndTakeTheSameTime(t *testing.T) {
	sample.Alone(t)
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(t, err)
	for _, name := range []string{"redimnet-b0", "patch-vqvae-p8", "spectrogram-gan"} {
		m, err := all.Models().Lookup(name)
		require.NoError(t, err)
		var allocated [5]int64
		var seconds [5]float64
		for n := 1; n <= 4; n++ {
			c := m.Default
			c.Batch, c.Accumulate = 4, n
			setup, err := step.New(m, c, steptest.Exact())
			require.NoError(t, err)
			q, err := (&Search{Budget: planner.Budget{Margin: 1}}).batchSearch(setup, gpu)
			require.NoError(t, err)
			of, err := q.judgeSize(t.Context(), 4, n)
			require.NoError(t, err)
			allocated[n] = of.Loops[0].Allocated.Value
			seconds[n], err = q.stepSeconds(t.Context(), of)
			require.NoError(t, err)
		}
		require.InEpsilon(t, allocated[2], allocated[3], 1e-3, name)
		require.InEpsilon(t, allocated[2], allocated[4], 1e-3, name)
		micro := seconds[3] - seconds[2]
		require.InEpsilon(t, seconds[2]+micro, seconds[3], 1e-3, name)
		require.InEpsilon(t, seconds[2]+2*micro, seconds[4], 1e-3, name)
	}
}

func TestFitRanksByStageThenSpeed(t *testing.T) {
	m, err := all.Models().Lookup("patch-vqvae")
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	s := Search{
		Model: m, GPUs: []device.GPU{gpu}, Budget: planner.Budget{Margin: 0.85}, MaxBatch: 512,
		Evidence: steptest.Exact(),
	}
	for _, stage := range []string{"vq-only", "full"} {
		for _, amp := range []models.Autocast{models.NoAutocast, "fp16"} {
			s.Cases = append(s.Cases, models.Case{Stage: stage, AMP: amp, Accumulate: 1})
		}
	}
	f, err := Run(t.Context(), s)
	require.NoError(t, err)
	var got []string
	for _, c := range f.Choices {
		got = append(got, c.Case.Stage)
		require.Equal(t, c.Case.AMP == models.NoAutocast, c.IsAuthorsOwn)
	}
	require.Equal(t, []string{"full", "full", "vq-only", "vq-only"}, got)
	for _, i := range []int{0, 2} {
		require.True(t, f.Choices[i].Recommended)
		require.Greater(t, f.Choices[i].SamplesPerSecond, f.Choices[i+1].SamplesPerSecond)
		require.EqualValues(t, "fp16", f.Choices[i].Case.AMP)
	}
}

// The GPU holds what the budget of the search does not know of.
func TestProfileComesDownUntilTheDeviceHoldsIt(t *testing.T) {
	s := toySearch(1000, steptest.Full(models.Case{}))
	plain, err := Run(t.Context(), s)
	require.NoError(t, err)
	s.Device, err = sim.New(s.GPUs[0], 0)
	require.NoError(t, err)
	same, err := Run(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, plain.Choices[0].Batch, same.Choices[0].Batch)
	require.Equal(t, plain.Choices[0].Run.Device, same.Choices[0].Run.Device)

	s.Device, err = sim.New(steptest.Card(700), 0)
	require.NoError(t, err)
	less, err := Run(t.Context(), s)
	require.NoError(t, err)
	c := less.Choices[0]
	require.Less(t, c.Batch, plain.Choices[0].Batch)
	require.True(t, c.Run.Fits)
	require.True(t, c.Recommended)
	require.Equal(t, c.Batch, c.EffectiveBatch)

	s.Device, err = sim.New(steptest.Card(60), 0)
	require.NoError(t, err)
	none, err := Run(t.Context(), s)
	require.NoError(t, err)
	require.False(t, none.Choices[0].Fits())
}

var _ report.Document = (*report.Fit)(nil)

// notes writes down what a progress.Func is told.
func notes(to *[]string) progress.Func {
	return func(what string, done, total int) { *to = append(*to, fmt.Sprintf("%d/%d %s", done, total, what)) }
}

func TestLongWorkSaysHowFarItIs(t *testing.T) {
	var said []string
	s := toySearch(800, steptest.Full(models.Case{}))
	s.Progress = notes(&said)
	_, err := Run(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, []string{"0/1 configurations", "1/1 configurations"}, said)

	said = nil
	other := steptest.Card(500)
	other.Name, other.Capability = "other", 90
	s.GPUs = append(s.GPUs, other)
	_, err = Run(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, []string{"0/2 configurations", "1/2 configurations", "2/2 configurations"}, said)
}

// Batches are multiples where they are not smaller than one, and a given batch is the only one tried.
func TestBatchesAreMultiplesOrGiven(t *testing.T) {
	for _, c := range []struct{ batch, multiple, want int }{
		{81, 8, 80},
		{7, 8, 7},
		{80, 8, 80},
		{81, 0, 81},
		{81, 1, 81},
	} {
		require.Equal(t, c.want, roundDown(c.batch, c.multiple))
	}
	need := func(batch int) (int64, error) { return int64(batch), nil }
	setup := steptest.Toy(t, models.Case{}, "")
	q := batchSearch{setup: setup, judge: &judge.Judge{Budget: planner.Budget{Memory: 101, Margin: 1}}, max: 1000}
	n, err := q.search(&planner.BatchSearch{Start: planner.Start{Batch: 16}, Need: need})
	require.NoError(t, err)
	require.Equal(t, 100, n)
	for given, want := range map[int]int{48: 48, 101: 0} {
		q.fixedBatch = given
		n, err = q.search(&planner.BatchSearch{Start: planner.Start{Batch: 16}, Need: need})
		require.NoError(t, err)
		require.Equal(t, want, n)
		require.Equal(t, given, q.describedBatch(n))
	}
}

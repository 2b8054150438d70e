package calibration

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/calibrate"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

// hidden returns what nobody recorded: on top of what PyTorch reserved.
func hidden(reserved int64) int64 { return int64(1.3*(1<<30) + 1.03*float64(reserved)) }

// referenceRuns returns the committed reference runs by case, from ascending
// batches, with the hidden overhead as device bytes.
func referenceRuns(t *testing.T) map[string][]ObservedRun {
	paths, err := filepath.Glob("../../reference/data/*.jsonl")
	require.NoError(t, err)
	series := map[string][]ObservedRun{}
	for _, path := range paths {
		f, err := os.Open(path)
		require.NoError(t, err)
		runs, in, err := ReadObserved(f, filepath.Base(path))
		require.NoError(t, err)
		require.True(t, in.Simulated, "the committed data come from a simulated driver")
		for _, o := range runs {
			o.Device = hidden(o.Reserved)
			key := o.GPU + " " + in.File + " " + string(setupKey(o))
			series[key] = append(series[key], o)
		}
	}
	return series
}

// From batches 8 and 32 of a series, larger batches are predicted, whether the
// runs saw PyTorch's own figures or only what nvidia-smi shows.
func TestTwoBatchesPredictHiddenOverhead(t *testing.T) {
	sample.Whole(t)
	for name, onlyDevice := range map[string]bool{"all levels": false, "only device bytes": true} {
		t.Run(name, func(t *testing.T) {
			var errs []float64
			covered := 0
			for _, runs := range referenceRuns(t) {
				for _, p := range predictLarger(t, runs, onlyDevice) {
					errs = append(errs, p.err)
					if p.inside {
						covered++
					}
				}
			}
			slices.Sort(errs)
			n := len(errs)
			t.Logf("%d predictions: median %.5f, max %.5f; %d in their intervals", n, errs[n/2], errs[n-1], covered)
			require.GreaterOrEqual(t, n, 60)
			require.Less(t, errs[n/2], 0.01)
			require.Less(t, errs[n-1], 0.04)
			require.GreaterOrEqual(t, float64(covered), 0.9*float64(n))
		})
	}
}

// A prediction is how far the device bytes of a batch are off, and whether they are inside the interval.
type prediction struct {
	err    float64
	inside bool
}

func predictLarger(t *testing.T, runs []ObservedRun, onlyDevice bool) (out []prediction) {
	at := func(batch int) int {
		return slices.IndexFunc(runs, func(o ObservedRun) bool { return o.Case.Batch == batch })
	}
	if at(8) < 0 || at(32) < 0 || at(64) < 0 && at(128) < 0 {
		return nil
	}
	m, err := all.Models().Lookup(runs[0].Case.Model)
	require.NoError(t, err)
	setup, err := step.New(m, runs[0].Case, step.Evidence{Residuals: planner.Residuals})
	require.NoError(t, err)
	gpu, err := device.Lookup(runs[0].GPU)
	require.NoError(t, err)
	var seen []calibrate.Observation
	for _, batch := range []int{8, 32} {
		o := runs[at(batch)]
		s := sampled(t, setup, gpu, batch)
		if onlyDevice {
			o.Allocated, o.Reserved = 0, 0
		}
		seen = append(seen, calibrate.Observation{
			Label: o.Label, Sample: s, Allocated: o.Allocated,
			Reserved: o.Reserved, Device: o.Device,
		})
	}
	from, err := setup.Coefficients(gpu, false)
	require.NoError(t, err)
	fitted, err := calibrate.Fit(seen, from)
	require.NoError(t, err)
	for _, batch := range []int{64, 128} {
		if at(batch) < 0 {
			continue
		}
		curve, err := planner.NewCurve([]int{batch}, func(b int) (planner.Sample, error) {
			return sampled(t, setup, gpu, b), nil
		})
		require.NoError(t, err)
		e, err := (&planner.Planner{Curve: curve, Coefficients: fitted.Coefficients, Memory: gpu.Memory}).
			Estimate(batch)
		require.NoError(t, err)
		truth := runs[at(batch)].Device
		out = append(out, prediction{
			err:    math.Abs(float64(e.Device.Value-truth)) / float64(truth),
			inside: e.Device.Low <= truth && truth <= e.Device.High,
		})
	}
	return out
}

// sampled tries a batch size.
func sampled(t *testing.T, setup *step.Setup, gpu device.GPU, batch int) planner.Sample {
	r, err := setup.Try(t.Context(), setup.Trial(gpu, batch))
	require.NoError(t, err)
	return r.Sample()
}

// snapshotRun reads one of the pickles that bench/observe/snapshot has as a run of the toy.
func snapshotRun(t *testing.T, name string, batch int) (ObservedRun, coefficients.Input, error) {
	f, err := os.Open("../../observe/snapshot/testdata/" + name)
	require.NoError(t, err)
	defer f.Close()
	return ReadSnapshotRun(f, name, steptest.Full(models.Case{Model: "toy", Batch: batch}), "t4")
}

// testdata/README.md of bench/observe/snapshot says what the GPU behind them adds: 64 MiB,
// 5 % of tensors and 10 % of cache.
func TestSnapshotsTeachWhatLibrariesAndTheCacheTake(t *testing.T) {
	var runs []ObservedRun
	var inputs []coefficients.Input
	for name, batch := range map[string]int{"toy8.pickle": 8, "toy32.pickle": 32} {
		o, in, err := snapshotRun(t, name, batch)
		require.NoError(t, err)
		require.Equal(t, "snapshot", in.Kind)
		require.False(t, o.Simulated)
		runs, inputs = append(runs, o), append(inputs, in)
	}
	known := models.NewRegistry([]models.Model{toy.Model()})
	c := Calibration{Models: known, Residuals: steptest.Exactly, Runs: runs, Inputs: inputs, Force: true}
	r, entry, err := c.Run(t.Context())
	require.NoError(t, err)

	wire := &steptest.Wire{Models: known}
	c.Trials = wire
	there, same, err := c.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, r, there, "whoever runs the trials")
	require.Equal(t, entry, same)
	require.Equal(t, len(runs), wire.Trials())

	require.InEpsilon(t, 64*steptest.MiB, entry.Memory["library_workspace"].Value, 1e-3)
	require.InEpsilon(t, 0.05, entry.Memory["allocated_slack"].Value, 1e-3)
	require.InEpsilon(t, 0.10, entry.Memory["reserved_slack"].Value, 1e-3)
	require.NotContains(t, entry.Memory, "context", "a snapshot does not show what the driver adds")
	require.Less(t, r.Errors.After.Max, 1e-5)
	require.Greater(t, r.Errors.Before.Median, 0.1)
}

func TestSnapshotsThatShowNoStepTeachLittleOrNothing(t *testing.T) {
	o, _, err := snapshotRun(t, "untraced.pickle", 8)
	require.NoError(t, err)
	require.Zero(t, o.Allocated, "without events there is no peak")
	require.EqualValues(t, 400*steptest.MiB, o.Reserved)
	for name, want := range map[string]string{
		"oom.pickle":  "the recording has a failed allocation",
		"code.pickle": "nothing of this file was run",
	} {
		_, _, err := snapshotRun(t, name, 8)
		require.ErrorAs(t, err, new(*input.FormatError))
		require.ErrorContains(t, err, want)
	}
}

// Step times of records reach the calibration: 18 records of an H100 have one.
func TestStepTimesOfRecordsAreRead(t *testing.T) {
	f, err := os.Open("../../reference/data/h100/steps.jsonl")
	require.NoError(t, err)
	defer f.Close()
	runs, _, err := ReadObserved(f, "steps.jsonl")
	require.NoError(t, err)
	timed := 0
	for _, o := range runs {
		if o.StepSeconds > 0 {
			timed++
		}
	}
	require.Equal(t, 18, timed)
}

package calibration

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

// toyRuns returns runs of the toy whose tensors take factor times what they do.
func toyRuns(t *testing.T, factor float64) []ObservedRun {
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	setup := steptest.Toy(t, models.Case{}, "")
	var runs []ObservedRun
	for _, batch := range []int{32, 64, 96, 128, 160} {
		s := sampled(t, setup, gpu, batch)
		c := setup.Case()
		c.Batch = batch
		reserved := int64(factor * float64(s.Reserved))
		runs = append(runs, ObservedRun{
			Label: "run", Case: c, GPU: "t4",
			Allocated: int64(factor * float64(s.Allocated())), Reserved: reserved, Device: reserved + 300*steptest.MiB,
		})
	}
	return runs
}

func calibrationOf(runs []ObservedRun) *Calibration {
	return &Calibration{
		Models: models.NewRegistry([]models.Model{toy.Model()}), Residuals: steptest.Exactly, Runs: runs,
		Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

// Runs of another model teach nothing, unless somebody insists.
func TestRunsOfSomethingElseAreRefused(t *testing.T) {
	c := calibrationOf(toyRuns(t, 2.46))
	_, _, err := c.Run(t.Context())
	require.True(t, input.IsBadInput(err))
	require.ErrorContains(t, err, "--force")
	c.Force = true
	_, _, err = c.Run(t.Context())
	require.NoError(t, err)

	_, _, err = calibrationOf(toyRuns(t, 1.2)).Run(t.Context())
	require.NoError(t, err, "what libraries may hide is learned")

	// Runs of which no coefficients can be true.
	bent := toyRuns(t, 1)
	bent[0].Device = bent[1].Device
	_, _, err = calibrationOf(bent).Run(t.Context())
	require.ErrorContains(t, err, "even after calibration")
}

// Runs of vprof's kernels teach the bare context. Plans add to it what PyTorch's libraries take, with its error, and
// counters of vprof's own allocator teach nothing of PyTorch's tensors.
func TestSyntheticRunsTeachTheBareContext(t *testing.T) {
	runs := toyRuns(t, 1)
	_, ofTorch, err := calibrationOf(runs).Run(t.Context())
	require.NoError(t, err)
	require.False(t, ofTorch.Bare)
	for i := range runs {
		runs[i].Synthetic, runs[i].Bare = true, true
	}
	r, bare, err := calibrationOf(runs).Run(t.Context())
	require.NoError(t, err)
	require.True(t, bare.Bare)
	require.Equal(t, ofTorch.Memory["context"], bare.Memory["context"])
	require.Contains(t, strings.Join(r.Undetermined, "; "), "44.00 MiB ± 176.40 MiB for PyTorch's libraries")
	for _, name := range []string{"library_workspace", "allocated_slack", "reserved_slack"} {
		require.Contains(t, ofTorch.Memory, name)
		require.NotContains(t, bare.Memory, name)
	}

	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	learned, libraries := bare.Memory["context"], planner.LibrariesOf(gpu)
	planned := func(e *coefficients.Entry, gpu device.GPU) planner.Coefficients {
		c := planner.Coefficients{
			Context: planner.ContextOf(gpu), BareContext: gpu.HasBareContext,
			Libraries: planner.LibrariesOf(gpu),
		}
		e.Apply(toy.Model().Name, &c)
		return c
	}
	own := planned(bare, gpu.WithoutLibraries())
	require.Equal(t, []float64{learned.Value, learned.StdErr}, []float64{own.Context.Value, own.Context.StdErr})
	torch := planned(bare, gpu)
	require.InEpsilon(t, learned.Value+libraries.Value, torch.Context.Value, 1e-12)
	require.InEpsilon(t, math.Hypot(learned.StdErr, libraries.StdErr), torch.Context.StdErr, 1e-12)
	a, b := planner.ContextBytes, planner.DeviceSlack
	require.Less(t, math.Abs(torch.Correlation[a][b]), math.Abs(own.Correlation[a][b]))

	// Runs of PyTorch show the whole, and leave the context of vprof's own process as it was.
	require.InEpsilon(t, ofTorch.Memory["context"].Value, planned(ofTorch, gpu).Context.Value, 1e-12)
	alone := gpu.WithoutLibraries()
	require.EqualValues(t, alone.Context, planned(ofTorch, alone).Context.Value)

	runs[0].Synthetic, runs[0].Bare = false, false
	_, _, err = calibrationOf(runs).Run(t.Context())
	require.ErrorContains(t, err, "the runs have different processes: PyTorch's and vprof's own; calibrate each in a command of its own")
}

// Calibration needs three runs more than coefficients, so that each run can be held out and predicted by the others,
// and refuses values that no GPU can have, unless it is forced.
func TestTooFewRunsAndImpossibleCoefficientsAreRefused(t *testing.T) {
	runs := toyRuns(t, 1.05)
	for n := 2; n < len(runs); n++ {
		_, _, err := calibrationOf(runs[:n]).Run(t.Context())
		require.True(t, input.IsBadInput(err))
		require.ErrorContains(t, err, fmt.Sprintf("%d runs are too few for 2 coefficients", n))
	}
	r, _, err := calibrationOf(runs).Run(t.Context())
	require.NoError(t, err)
	require.NotNil(t, r.Errors.HeldOut)

	beside := toyRuns(t, 1)
	for i := range beside {
		beside[i].Device += beside[i].Reserved * 2
	}
	_, _, err = calibrationOf(beside).Run(t.Context())
	require.ErrorContains(t, err, "device_slack would be 200 %, more than the possible 25 %")
	for i := range beside {
		beside[i].Device = beside[i].Reserved + 5<<30
	}
	_, _, err = calibrationOf(beside).Run(t.Context())
	require.ErrorContains(t, err, "context would be 5.00 GiB, more than the possible 4.00 GiB")
}

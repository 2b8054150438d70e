package calibration

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/steptest"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/toy"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/calibrate"
)

// toyRuns returns runs of the toy whose tensors take factor times what they do.
func toyRuns(t *testing.T, factor float64) []Observed {
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	setup := steptest.Toy(t, models.Case{}, "")
	var runs []Observed
	for _, batch := range []int{32, 64, 96, 128, 160} {
		s := sampled(t, setup, gpu, batch)
		c := setup.Case()
		c.Batch = batch
		reserved := int64(factor * float64(s.Reserved))
		runs = append(runs, Observed{
			Label: "run", Case: c, GPU: "t4",
			Allocated: int64(factor * float64(s.Allocated())), Reserved: reserved, Device: reserved + 300*steptest.MiB,
		})
	}
	return runs
}

func calibrationOf(runs []Observed) *Calibration {
	return &Calibration{
		Models: models.NewRegistry([]models.Model{toy.Model()}), Residuals: steptest.Exactly, Runs: runs,
		Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

// Runs of another model teach nothing, unless somebody insists.
func TestRunsOfSomethingElseAreRefused(t *testing.T) {
	c := calibrationOf(toyRuns(t, 2.46))
	_, _, err := c.Run(t.Context())
	require.True(t, input.Bad(err))
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

// Kernels of vprof's own know nothing of what cuBLAS and cuDNN load.
func TestSyntheticRunsLeaveTheErrorOfTheContext(t *testing.T) {
	runs := toyRuns(t, 1)
	_, measured, err := calibrationOf(runs).Run(t.Context())
	require.NoError(t, err)
	for i := range runs {
		runs[i].Synthetic = true
	}
	_, synthetic, err := calibrationOf(runs).Run(t.Context())
	require.NoError(t, err)
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	libraries := planner.ContextOf(gpu).StdErr
	learned := measured.Memory["context"]
	require.Less(t, learned.StdErr, libraries)
	require.Equal(t, learned.Value, synthetic.Memory["context"].Value)
	require.InEpsilon(t, math.Hypot(learned.StdErr, libraries), synthetic.Memory["context"].StdErr, 1e-6)
	require.Contains(t, synthetic.Memory["context"].Source, "without the kernels")
	for i, k := range synthetic.Correlations {
		require.LessOrEqual(t, math.Abs(k.Value), math.Abs(measured.Correlations[i].Value))
	}
}

// Calibration needs three runs more than coefficients, so that each run can be held out and predicted by the others,
// and refuses values that no GPU can have, unless it is forced.
func TestTooFewRunsAndImpossibleCoefficientsAreRefused(t *testing.T) {
	runs := toyRuns(t, 1.05)
	for n := 2; n < len(runs); n++ {
		_, _, err := calibrationOf(runs[:n]).Run(t.Context())
		require.True(t, input.Bad(err))
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
	require.ErrorContains(t, err, "device_slack would be 200 %, and 25 % is the most that it can be")
	for i := range beside {
		beside[i].Device = beside[i].Reserved + 5<<30
	}
	_, _, err = calibrationOf(beside).Run(t.Context())
	require.ErrorContains(t, err, "context would be 5.00 GiB, and 4.00 GiB is the most that it can be")
}

// A bare context of an H100 takes 524 MiB, and with the libraries' kernels 764: what was learned of the one must not
// rule out the other.
func TestABareContextLeavesRoomForLibraries(t *testing.T) {
	r := &calibrate.Result{}
	r.Coefficients.Context = planner.Coefficient{Value: 524 << 20, StdErr: 1 << 20}
	keepLibraries(r, planner.Coefficient{Value: 764 << 20, StdErr: 90 << 20})
	learned := r.Coefficients.Context
	require.EqualValues(t, 524<<20, learned.Value)
	require.GreaterOrEqual(t, learned.Value+learned.StdErr, float64(764<<20))
}

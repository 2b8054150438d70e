package planner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
)

// The shares of every recorded model lie in the interval of its kind, with room below the least.
func TestCompiledIntervalsHoldTheRecords(t *testing.T) {
	for _, m := range compiledModels {
		var c Coefficients
		c.AdaptToCompile(m.text)
		for _, kind := range []struct {
			shares [2]float64
			r      Residual
		}{{m.allocated, c.Compiled.Allocated}, {m.reserved, c.Compiled.Reserved}} {
			require.Less(t, 1+kind.r.Low, kind.shares[0], m.model)
			require.GreaterOrEqual(t, 1+kind.r.High, kind.shares[1], m.model)
		}
	}
}

// No published pair needs more than the upper end, and one needs as much.
func TestCompiledIntervalsEndAboveThePublishedPairs(t *testing.T) {
	var c Coefficients
	c.AdaptToCompile(false)
	most := 0.0
	for _, p := range compiledPairs {
		most = max(most, p.compiled/p.eager)
	}
	require.InDelta(t, most, 1+c.Compiled.Reserved.High, 1e-9)
}

// A compiler changes nothing of weights, buffers, state and batch: a step of nothing else is as exact as the eager one.
func TestCompiledStepsKeepWhatIsHeld(t *testing.T) {
	var c Coefficients
	c.AdaptToCompile(true)
	held, half := Sample{Reserved: 100}, Sample{Reserved: 200}
	held.Classes[program.Weights], held.Classes[program.OptimizerState] = 40, 60
	half.Classes[program.Batch], half.Classes[program.Activations] = 100, 100
	allocated, reserved := c.Compiled.residualsFor(held)
	require.Zero(t, allocated.Low)
	require.Zero(t, reserved.High)
	allocated, _ = c.Compiled.residualsFor(half)
	require.InDelta(t, c.Compiled.Allocated.Low/2, allocated.Low, 1e-9)
}

// The lower end predicts one further model: below the least of shares that vary, and equal to shares that do not.
func TestPredictionOfOneMore(t *testing.T) {
	require.InDelta(t, 0.5, lowerPrediction([]float64{.5, .5, .5, .5, .5, .5}), 1e-6)
	require.Less(t, lowerPrediction([]float64{.5, .6, .7, .5, .6, .7}), .5)
}

// An eager step does not know of the coefficient; a compiled one keeps its value, and where its interval spans the
// GPU's memory only a recording would tell.
func TestCompiledStepsKeepTheEagerValue(t *testing.T) {
	c := Coefficients{Context: Coefficient{Value: 50}}
	work := func() *Planner {
		curve, err := NewCurve([]int{10}, func(batch int) (Sample, error) {
			s, err := linear(batch)
			s.Classes[program.Activations] += s.Classes[program.Weights]
			s.Classes[program.Weights] = 0
			return s, err
		})
		require.NoError(t, err)
		return &Planner{Curve: curve, Coefficients: c, Memory: 236}
	}
	eager, err := work().Estimate(10)
	require.NoError(t, err)
	c.AdaptToCompile(true)
	compiled, err := work().Estimate(10)
	require.NoError(t, err)
	require.Equal(t, eager.Device.Value, compiled.Device.Value)
	require.Less(t, compiled.Allocated.Low, eager.Allocated.Low)
	require.Greater(t, compiled.Reserved.High, eager.Reserved.High)
	require.Equal(t, Fits, eager.Verdict)
	require.Equal(t, StepNotRecorded, compiled.Verdict)
	require.Equal(t, "torch_compile", c.List()[1].Name)
}

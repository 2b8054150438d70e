package planner

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every published pair lies in the interval of its eager figure, and the interval is no
// wider than the pairs.
func TestCompiledIntervalsHoldThePublishedPairs(t *testing.T) {
	var c Coefficients
	c.Compile()
	var least, most bool
	for _, p := range compiledPairs {
		e := widen(int64(p.eager*1e6), c.Allocated.and(c.Compiled), 0)
		compiled := int64(p.compiled * 1e6)
		require.GreaterOrEqual(t, compiled, e.Low, p.of)
		require.LessOrEqual(t, compiled, e.High, p.of)
		least = least || compiled-e.Low < e.Value/100
		most = most || e.High-compiled < e.Value/100
	}
	require.True(t, least && most)
	listed := c.List()
	i := len(listed) - 3
	require.Equal(t, "torch_compile", listed[i].Name)
	require.Contains(t, listed[i].Source, "7 published pairs: pytorch/torchtitan")
}

// An eager step does not know of the coefficient; a compiled one keeps its value, and its
// verdict goes by the upper end.
func TestCompiledStepsKeepTheEagerValue(t *testing.T) {
	c := Coefficients{Context: Coefficient{Value: 50}}
	eager, err := plannerOver(t, 236, c, 10).Estimate(10)
	require.NoError(t, err)
	c.Compile()
	compiled, err := plannerOver(t, 236, c, 10).Estimate(10)
	require.NoError(t, err)
	require.Equal(t, eager.Device.Value, compiled.Device.Value)
	require.Less(t, compiled.Allocated.Low, eager.Allocated.Low)
	require.Greater(t, compiled.Reserved.High, eager.Reserved.High)
	require.Equal(t, Fits, eager.Verdict)
	require.Equal(t, Tight, compiled.Verdict)
}

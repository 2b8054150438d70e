package planner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// An estimate of 100 in [80, 120] has a standard error of 20/1.96; one in a
// hundred normal values lies 2.326 of them above: 123.7.
func TestRiskIsAQuantileOfTheInterval(t *testing.T) {
	e := Estimate{Device: Interval{Value: 100, Low: 80, High: 120}}
	require.EqualValues(t, 124, Budget{Memory: 1000, Risk: 0.01}.Need(e))
	require.EqualValues(t, 1000, Budget{Memory: 1000, Risk: 0.01}.Limit())
	require.EqualValues(t, 120, Budget{Memory: 1000, Risk: 0.025}.Need(e))
	require.EqualValues(t, 120, Budget{Memory: 1000, Margin: 0.85}.Need(e))
	require.EqualValues(t, 850, Budget{Memory: 1000, Margin: 0.85}.Limit())
}

func TestBudgetsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, b := range []Budget{
		{},
		{Memory: 1},
		{Memory: 1, Margin: 1.01},
		{Memory: 1, Margin: -1},
		{Memory: 1, Risk: 0.5},
		{Memory: 1, Risk: -0.1},
		{Memory: -1, Margin: 0.5},
	} {
		require.Error(t, b.Check(), "%+v", b)
	}
	require.NoError(t, Budget{Memory: 1, Margin: 1}.Check())
	require.NoError(t, Budget{Memory: 1, Risk: 0.01}.Check())
}

func TestSplitKeepsTheEffectiveBatch(t *testing.T) {
	for _, c := range []struct{ effective, largest, multiple, batch, accumulate int }{
		{256, 512, 0, 256, 1},
		{256, 46, 0, 32, 8},
		{256, 64, 1, 64, 4},
		{225, 7, 0, 5, 45},
		{225, 3, 0, 3, 75},
		{7, 2, 0, 2, 4}, // no batch but 1 divides 7: 8 is the nearest that is not below
		{7, 1, 0, 1, 7},
		{256, 60, 8, 32, 8},
		{250, 60, 8, 32, 8},
		{256, 5, 8, 4, 64},
	} {
		batch, accumulate := SplitBatch(c.effective, c.largest, c.multiple)
		require.Equal(t, []int{c.batch, c.accumulate}, []int{batch, accumulate}, "%+v", c)
	}
	rapid.Check(t, func(t *rapid.T) {
		effective, largest := rapid.IntRange(1, 4096).Draw(t, "effective"), rapid.IntRange(1, 4096).Draw(t, "largest")
		batch, accumulate := SplitBatch(effective, largest, 0)
		require.LessOrEqual(t, batch, largest)
		require.GreaterOrEqual(t, batch*accumulate, effective)
		require.Less(t, batch*accumulate, effective+batch)
		for b := 2; b <= min(largest, effective); b++ {
			require.False(t, effective%b == 0 && (batch*accumulate > effective || b > batch), "%d divides it", b)
		}
	})
}

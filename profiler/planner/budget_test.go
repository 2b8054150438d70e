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

func TestSplitComesNearTheEffectiveBatch(t *testing.T) {
	for _, c := range []struct{ effective, largest, batch, accumulate int }{
		{256, 512, 256, 1},
		{256, 46, 43, 6}, // 258 is 0.8 % off, and six is the fewest
		{256, 64, 64, 4},
		{7, 2, 1, 7}, // 4 x 2 is 14 % off
	} {
		batch, accumulate := Split(c.effective, c.largest)
		require.Equal(t, []int{c.batch, c.accumulate}, []int{batch, accumulate}, "%+v", c)
	}
	rapid.Check(t, func(t *rapid.T) {
		effective, largest := rapid.IntRange(1, 4096).Draw(t, "effective"), rapid.IntRange(1, 4096).Draw(t, "largest")
		batch, accumulate := Split(effective, largest)
		require.LessOrEqual(t, batch, largest)
		require.GreaterOrEqual(t, batch*accumulate, 1)
		require.LessOrEqual(t, batch*accumulate, 2*effective)
	})
}

package planner

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestLargestIsTheLastThatFitsWhereNeedGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(rapid.Int64Range(0, 100), 1, 300).Draw(t, "steps")
		var sum int64
		needs := make([]int64, len(steps)+1)
		for i, s := range steps {
			sum += s
			needs[i+1] = sum
		}
		limit := rapid.Int64Range(0, sum+10).Draw(t, "limit")
		want := 0
		for b := 1; b < len(needs); b++ {
			if needs[b] <= limit {
				want = b
			}
		}
		got, err := Largest(1, drawStart(t, 400), len(steps), limit, func(b int) (int64, error) { return needs[b], nil })
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// Slack makes the need jump; then the answer is still the edge of a range that
// fits.
func TestLargestFitsAndTheNextDoesNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := rapid.SliceOfN(rapid.Int64Range(0, 100), 1, 200).Draw(t, "needs")
		limit := rapid.Int64Range(0, 100).Draw(t, "limit")
		got, err := Largest(1, drawStart(t, 200), len(needs), limit, func(b int) (int64, error) { return needs[b-1], nil })
		require.NoError(t, err)
		if got > 0 {
			require.LessOrEqual(t, needs[got-1], limit)
		}
		if got < len(needs) {
			require.Greater(t, needs[got], limit)
		}
	})
}

// A step of 3 GiB and 215 MiB per sample with a jump of slack: a bisection of
// 2^20 sizes asks 20 times.
func TestLargestAsksForFewSizes(t *testing.T) {
	asked := 0
	got, err := Largest(1, Start{Batch: 64}, 1<<20, 80<<30, func(b int) (int64, error) {
		asked++
		return 3<<30 + int64(b)*(215<<20) + int64(b%7)*(20<<20), nil
	})
	require.NoError(t, err)
	require.InDelta(t, 366, got, 1)
	require.LessOrEqual(t, asked, 6)
}

func drawStart(t *rapid.T, to int) Start {
	return Start{rapid.IntRange(0, to).Draw(t, "begin"), rapid.Bool().Draw(t, "near")}
}

// A search that begins at the edge, or one off it, asks for it and its neighbor alone.
func TestLargestNearTheEdgeAsksForTheNeighbor(t *testing.T) {
	need := func(b int) int64 { return 3<<30 + int64(b)*(215<<20) }
	for begin, want := range map[int][]int{366: {366, 367}, 367: {367, 366}, 365: {365, 366, 367}} {
		var asked []int
		got, err := Largest(1, Start{begin, true}, 1<<20, need(366)+1, func(b int) (int64, error) {
			asked = append(asked, b)
			return need(b), nil
		})
		require.NoError(t, err)
		require.Equal(t, 366, got)
		require.Equal(t, want, asked)
	}
}

func TestLargestPassesErrorsOn(t *testing.T) {
	cause := errors.New("norm")
	_, err := Largest(1, Start{Batch: 1}, 8, 1, func(int) (int64, error) { return 0, cause })
	require.ErrorIs(t, err, cause)
	_, err = Largest(3, Start{Batch: 1}, 2, 1, nil)
	require.Error(t, err)
}

// An estimate of 100 in [80, 120] has a standard error of 20/1.96; one in a
// hundred normal values lies 2.326 of them above: 123.7.
func TestRiskIsAQuantileOfTheInterval(t *testing.T) {
	e := Estimate{Device: Interval{Value: 100, Low: 80, High: 120}}
	require.EqualValues(t, 124, Budget{Memory: 1000, Risk: 0.01}.Need(e))
	require.EqualValues(t, 1000, Budget{Memory: 1000, Risk: 0.01}.Limit())
	require.EqualValues(t, 120, Budget{Memory: 1000, Risk: 0.025}.Need(e))
	require.EqualValues(t, 100, Budget{Memory: 1000, Margin: 0.85}.Need(e))
	require.EqualValues(t, 850, Budget{Memory: 1000, Margin: 0.85}.Limit())
}

func TestBudgetsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, b := range []Budget{
		{}, {Memory: 1}, {Memory: 1, Margin: 1.01}, {Memory: 1, Margin: -1}, {Memory: 1, Risk: 0.5}, {Memory: 1, Risk: -0.1}, {Memory: -1, Margin: 0.5},
	} {
		require.Error(t, b.Check(), "%+v", b)
	}
	require.NoError(t, Budget{Memory: 1, Margin: 1}.Check())
	require.NoError(t, Budget{Memory: 1, Risk: 0.01}.Check())
}

func TestSplitComesNearTheEffectiveBatch(t *testing.T) {
	for _, c := range []struct{ effective, largest, gpus, batch, accumulate int }{
		{256, 512, 1, 256, 1},
		{256, 46, 1, 43, 6}, // 258 is 0.8 % off, and six is the fewest
		{256, 64, 1, 64, 4},
		{7, 2, 1, 1, 7},     // 4 x 2 is 14 % off
		{512, 64, 2, 64, 4}, // per board 256
		{1, 8, 4, 1, 1},     // four boards take four samples at least
	} {
		batch, accumulate := Split(c.effective, c.largest, c.gpus)
		require.Equal(t, []int{c.batch, c.accumulate}, []int{batch, accumulate}, "%+v", c)
	}
	rapid.Check(t, func(t *rapid.T) {
		effective, largest := rapid.IntRange(1, 4096).Draw(t, "effective"), rapid.IntRange(1, 4096).Draw(t, "largest")
		batch, accumulate := Split(effective, largest, 1)
		require.LessOrEqual(t, batch, largest)
		require.GreaterOrEqual(t, batch*accumulate, 1)
		require.LessOrEqual(t, batch*accumulate, 2*effective)
	})
}

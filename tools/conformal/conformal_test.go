package conformal

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// With 79 misses 0.000 ... 0.078, a margin excludes the largest; with 78 it excludes none.
func TestMarginsLeaveOutAFortiethOnEachSide(t *testing.T) {
	var misses []Miss
	for i := range int64(79) {
		misses = append(misses, MissOf(1000+i, 0, 1000, 1000, 1000))
	}
	require.InDelta(t, 0.077, Of(Middle95, [][]Miss{misses}).High, 1e-9)
	require.InDelta(t, 0.077, Of(Middle95, [][]Miss{misses[:78]}).High, 1e-9)
	require.InDelta(t, 0.076, Of(Middle95, [][]Miss{misses[:77]}).High, 1e-9)
}

// A value within its printed rounding is no miss.
func TestRoundingIsNoMiss(t *testing.T) {
	require.Equal(t, Miss{}, MissOf(95, 5, 100, 200, 300))
	require.Equal(t, Miss{Low: -.05}, MissOf(85, 5, 100, 200, 300))
	require.Equal(t, Miss{High: .1}, MissOf(325, 5, 100, 200, 300))
}

// A group that differs from all others lies outside their margin.
func TestHeldCountsGroupsThatAreLeftOut(t *testing.T) {
	m := Of(Middle95, [][]Miss{{{}, {}}, {{0, .5}, {0, .1}}, {{-.2, 0}}})
	require.Equal(t, Margin{Low: -.2, High: .5, Records: 5, Held: 2}, m)
}

// Groups of exchangeable misses are held at the promised rate on average.
func TestExchangeableMissesAreHeldAtThePromisedRate(t *testing.T) {
	held, of := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var groups [][]Miss
		for _, v := range rapid.SliceOfN(rapid.Float64Range(-1, 1), 80, 120).Draw(t, "misses") {
			groups = append(groups, []Miss{{min(0, v), max(0, v)}})
		}
		m := Of(Middle95, groups)
		held, of = held+m.Held, of+m.Records
	})
	require.GreaterOrEqual(t, float64(held), 0.94*float64(of))
}

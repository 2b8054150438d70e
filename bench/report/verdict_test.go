package report

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A run on the GPU itself decides; a simulated one that fits says nothing of the upper end of the estimate.
func TestRunsJudgeEstimates(t *testing.T) {
	for _, c := range []struct {
		run       Run
		estimated Verdict
		want      Verdict
	}{
		{Run{Simulated: true, Fits: true}, Fits, Fits},
		{Run{Simulated: true, Fits: true}, Tight, Tight},
		{Run{Simulated: true, Fits: true}, "", Fits},
		{Run{Simulated: true, Fits: true, Retries: 1}, Tight, Slow},
		{Run{Simulated: true}, Tight, DoesNotFit},
		{Run{Fits: true}, Tight, Fits},
		{Run{Fits: true}, DoesNotFit, Fits},
		{Run{Fits: true, Retries: 1}, Fits, Slow},
		{Run{}, Fits, DoesNotFit},
	} {
		p := Point{Estimate: &Estimate{Verdict: c.estimated}, Run: &c.run}
		require.Equal(t, c.want, p.Verdict(), "%+v", c)
	}
	require.Equal(t, Tight, Point{Estimate: &Estimate{Verdict: Tight}}.Verdict())
	require.Equal(t, Slow, Point{Run: &Run{Fits: true, Retries: 1}}.Verdict())
}

func TestTheWorseVerdictStays(t *testing.T) {
	require.Equal(t, Fits, Verdict("").Worse(Fits))
	require.Equal(t, Slow, Tight.Worse(Slow))
	require.Equal(t, DoesNotFit, DoesNotFit.Worse(Fits))
}

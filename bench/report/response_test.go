package report

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The plans of several releases or ranks are one answer, to which each of them matters.
func TestAResponseConcludesFromAllPlans(t *testing.T) {
	plan := func(v Verdict) *Report { return &Report{Points: []Point{{Batch: 8, Estimate: &Estimate{Verdict: v}}}} }
	for _, c := range []struct {
		plans []*Report
		fits  bool
		code  int
	}{
		{[]*Report{plan(Fits)}, true, 0},
		{[]*Report{plan(Fits), plan(DoesNotFit)}, false, 0},
		{[]*Report{plan(DoesNotFit), plan(Fits)}, false, 0},
		{[]*Report{plan(DoesNotFit), plan(Tight)}, false, 3},
		{nil, false, 3},
	} {
		var answer Response
		answer.FillFrom(c.plans...)
		require.Len(t, answer.Points, len(c.plans))
		require.Equal(t, c.fits, answer.Fits)
		require.Equal(t, c.code, answer.ExitCode)
	}
}

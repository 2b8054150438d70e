package step_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/steptest"
	"github.com/vprof/vprof/models/all"
)

// counting is an executor that counts the trials it is given.
type counting struct {
	step.Local
	trials *int
}

func (c counting) Try(ctx context.Context, t step.Trial) (*step.Result, error) {
	*c.trials++
	return c.Local.Try(ctx, t)
}

func TestASettledTrialIsTriedOnce(t *testing.T) {
	gpu := steptest.GPUs(t, "rtx-4090")[0]
	m, err := all.Models().Lookup("resnet18")
	require.NoError(t, err)
	trials := 0
	evidence := steptest.Exact()
	evidence.Trials = counting{trials: &trials}
	s, err := step.New(m, m.Default, evidence)
	require.NoError(t, err)

	_, first, err := s.Estimated(t.Context(), gpu, 8)
	require.NoError(t, err)
	once := trials
	first.Discard()
	c, err := s.Course(t.Context(), s.Trial(gpu, 8), 0)
	require.NoError(t, err)
	require.Equal(t, first.Run, c.Training.Run)
	require.Equal(t, first.Spread, c.Training.Spread)
	require.Equal(t, once+1, trials, "only the validation is tried anew")

	for batch := 9; batch <= 13; batch++ {
		_, _, err = s.Estimated(t.Context(), gpu, batch)
		require.NoError(t, err)
	}
	trials = 0
	_, _, err = s.Estimated(t.Context(), gpu, 8)
	require.NoError(t, err)
	require.NotZero(t, trials, "what was long ago is tried anew")
}

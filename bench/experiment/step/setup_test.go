package step_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

func TestImpossibleCaseMakesNoLab(t *testing.T) {
	_, err := step.New(toy.Model(), models.Case{Stage: "half"}, steptest.Exact())
	var wrong *models.CaseError
	require.ErrorAs(t, err, &wrong)
}

func TestEventsAreOfTheStepsAskedFor(t *testing.T) {
	p, err := steptest.Toy(t, models.Case{}, "").Events(t.Context(), steptest.Card(600), 8, 3)
	require.NoError(t, err)
	require.Equal(t, 2, p.Phases[len(p.Phases)-1].Step)
	_, err = steptest.Toy(t, models.Case{}, "").Events(t.Context(), steptest.Card(600), 1, 3)
	require.Error(t, err)
}

// A recording looks at its context as it goes.
func TestRecordingStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m, err := all.Models().Lookup("redimnet-b2")
	require.NoError(t, err)
	m.Default.Accumulate = 1024
	setup, err := step.New(m, m.Default, steptest.Exact())
	require.NoError(t, err)
	start := time.Now()
	_, err = setup.Events(ctx, steptest.Card(600), 8, 3)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(start), time.Minute)
}

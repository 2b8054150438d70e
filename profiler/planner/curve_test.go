package planner

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
)

// linear replays a step with 100 bytes of weights and 7 of activations per sample of the batch, and 10 % slack.
func linear(batch int) (Sample, error) {
	s := Sample{PeakPhase: "1:backward"}
	s.Classes[program.Weights] = 100
	s.Classes[program.Activations] = int64(7 * batch)
	s.Reserved = s.Allocated() + int64(batch)
	return s, nil
}

func TestCurveOfALinearStepIsExactEverywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batches := rapid.SliceOfNDistinct(rapid.IntRange(1, 500), 2, 6, rapid.ID).Draw(t, "batches")
		c, err := NewCurve(batches, linear)
		require.NoError(t, err)
		b := rapid.IntRange(1, 600).Draw(t, "batch")
		got, exact, err := c.Interpolate(b)
		require.NoError(t, err)
		require.Equal(t, slices.Contains(batches, b), exact)
		want, _ := linear(b)
		want.Batch = b
		require.Equal(t, want, got)
		require.Zero(t, c.held)
	})
}

func TestCurveGoesThroughItsSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 1<<40)
		seen := map[int]Sample{}
		batches := rapid.SliceOfNDistinct(rapid.IntRange(1, 1000), 1, 8, rapid.ID).Draw(t, "batches")
		c, err := NewCurve(batches, func(b int) (Sample, error) {
			s := Sample{Batch: b, PeakPhase: "0:forward"}
			for class := range s.Classes {
				s.Classes[class] = size.Draw(t, "class")
			}
			s.Reserved = s.Allocated() + size.Draw(t, "slack")
			seen[b] = s
			return s, nil
		})
		require.NoError(t, err)
		for b, want := range seen {
			got, exact, err := c.Interpolate(b)
			require.NoError(t, err)
			require.True(t, exact)
			require.Equal(t, want, got)
		}
	})
}

// Between 2 (50 bytes) and 4 (90 bytes) a straight line has 70 at 3.
func TestCurveIsStraightBetweenSamples(t *testing.T) {
	c, err := NewCurve([]int{2, 4}, func(b int) (Sample, error) {
		s := Sample{Reserved: 200, PeakPhase: map[int]string{2: "0:forward", 4: "1:backward"}[b]}
		s.Classes[program.Activations] = map[int]int64{2: 50, 4: 90}[b]
		return s, nil
	})
	require.NoError(t, err)
	s, exact, err := c.Interpolate(3)
	require.NoError(t, err)
	require.False(t, exact)
	require.EqualValues(t, 70, s.Allocated())
	require.EqualValues(t, 200, s.Reserved)
}

// Samples 100, 100, 200 at batches 1, 2, 3: without the middle one the line would say 150 there, half as much again.
func TestHeldOutErrorIsWhatTheCurveWouldBeOff(t *testing.T) {
	c, err := NewCurve([]int{1, 2, 3}, func(b int) (Sample, error) {
		var s Sample
		s.Classes[program.Temporaries] = map[int]int64{1: 100, 2: 100, 3: 200}[b]
		s.Reserved = s.Allocated()
		return s, nil
	})
	require.NoError(t, err)
	require.InDelta(t, 0.5, c.held.allocated, 1e-12)
	require.InDelta(t, 0.5, c.held.reserved, 1e-12)
}

func TestDrawStopsAtAFailedReplay(t *testing.T) {
	cause := errors.New("Expected more than 1 value per channel")
	_, err := NewCurve([]int{2, 1}, func(b int) (Sample, error) {
		if b == 1 {
			return Sample{}, cause
		}
		t.Fatal("batch 2 must not be replayed after batch 1 failed")
		return Sample{}, nil
	})
	require.ErrorIs(t, err, cause)
	_, err = NewCurve(nil, linear)
	require.Error(t, err)
}

func TestOneSampleKnowsOnlyItself(t *testing.T) {
	c, err := NewCurve([]int{8}, linear)
	require.NoError(t, err)
	_, _, err = c.Interpolate(9)
	require.ErrorContains(t, err, "only batch 8 was replayed")
}

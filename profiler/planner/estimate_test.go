package planner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
)

func plannerOver(t require.TestingT, memory int64, c Coefficients, batches ...int) *Planner {
	curve, err := NewCurve(batches, linear)
	require.NoError(t, err)
	return &Planner{Curve: curve, Coefficients: c, Memory: memory}
}

func TestComponentsSumToEveryTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := plannerOver(t, 1<<30,
			Coefficients{Context: Coefficient{Value: rapid.Float64Range(0, 1e9).Draw(t, "context")}}, 3, 9, 80)
		e, err := p.Estimate(rapid.IntRange(1, 200).Draw(t, "batch"))
		require.NoError(t, err)
		var classes, all int64
		for i, bytes := range e.Components {
			if i < program.NumClasses {
				classes += bytes
			}
			all += bytes
		}
		require.Equal(t, e.Allocated.Value, classes)
		require.Equal(t, e.Reserved.Value, classes+e.Components[SlackComponent])
		require.Equal(t, e.Device.Value, all)
	})
}

func TestIntervalsHoldTheirValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Float64Range(-0.5, 0.5)
		r := Residual{Low: share.Draw(t, "low"), High: share.Draw(t, "high")}
		c := Coefficients{
			Context:   Coefficient{Value: 1000, StdErr: rapid.Float64Range(0, 2000).Draw(t, "stderr")},
			Allocated: r, Reserved: r,
		}
		e, err := plannerOver(t, 1<<30, c, 3, 9, 80).Estimate(rapid.IntRange(1, 200).Draw(t, "batch"))
		require.NoError(t, err)
		for _, i := range []Interval{e.Allocated, e.Reserved, e.Device} {
			require.LessOrEqual(t, i.Low, i.Value)
			require.GreaterOrEqual(t, i.High, i.Value)
			require.GreaterOrEqual(t, i.Low, int64(0))
		}
	})
}

// Batch 10: 100 + 70 = 170 allocated, 180 reserved. Residuals of -10 % and +20 % widen 170 to 153..204; a context of 50
// with standard error 10 widens the device bytes by 19.6 more.
func TestIntervalWidthIsResidualsAndContext(t *testing.T) {
	c := Coefficients{
		Context:   Coefficient{Value: 50, StdErr: 10},
		Allocated: Residual{Low: -0.1, High: 0.2},
		Reserved:  Residual{Low: 0.05, High: 0.1},
	}
	e, err := plannerOver(t, 1000, c, 10).Estimate(10)
	require.NoError(t, err)
	require.Equal(t, Interval{170, 153, 204}, e.Allocated)
	require.Equal(t, Interval{180, 180, 198}, e.Reserved)
	require.Equal(t, Interval{230, 180 + 30, 198 + 70}, e.Device)
}

// A kink at batch 2 makes the interval of an interpolated batch wider, and only of an interpolated one.
func TestInterpolationWidensTheInterval(t *testing.T) {
	curve, err := NewCurve([]int{1, 2, 4}, func(b int) (Sample, error) {
		s := Sample{Reserved: 1000}
		s.Classes[program.Activations] = map[int]int64{1: 100, 2: 400, 4: 400}[b]
		return s, nil
	})
	require.NoError(t, err)
	p := &Planner{Curve: curve, Memory: 1 << 30}
	exact, err := p.Estimate(2)
	require.NoError(t, err)
	require.Equal(t, Interval{400, 400, 400}, exact.Allocated)
	guessed, err := p.Estimate(3)
	require.NoError(t, err)
	require.True(t, guessed.Interpolated)
	require.Equal(t, Interval{400, 200, 600}, guessed.Allocated) // the line 1 to 4 says 200 at 2
}

func TestVerdictComparesBothEndsWithTheMemory(t *testing.T) {
	c := Coefficients{Context: Coefficient{Value: 50}, Reserved: Residual{High: 0.5}}
	// Batch 10: 170 allocated, 180 reserved, at most 270; with context 220, 230, 320.
	for memory, want := range map[int64]Verdict{
		320: Fits, 319: TightFit, 230: TightFit, 220: TightFit,
		219: DoesNotFit,
	} {
		e, err := plannerOver(t, memory, c, 10).Estimate(10)
		require.NoError(t, err)
		require.Equal(t, want, e.Verdict, "memory %d", memory)
	}
}

func TestComponentNamesAreTheClassesThenWhatIsNoTensor(t *testing.T) {
	var names []string
	for c := range Component(NumComponents) {
		names = append(names, c.String())
	}
	require.Equal(t, []string{
		"weights", "buffers", "gradients", "optimizer state", "activations", "batch data",
		"temporaries", "workspace", "graph pools", "allocator slack", "context", "paged state", "communication",
	}, names)
}

// Managed memory is on the GPU as far as there is room, and no verdict goes by it.
func TestPagedStateTakesTheRoomThatIsLeft(t *testing.T) {
	sample := Sample{Batch: 1, Reserved: 600, ManagedBytes: 300}
	sample.Classes[0] = 600
	for memory, want := range map[int64]int64{2000: 300, 700: 100, 600: 0, 500: 0} {
		curve, err := NewCurve([]int{1}, func(int) (Sample, error) { return sample, nil })
		require.NoError(t, err)
		e, err := (&Planner{Curve: curve, Memory: memory}).Estimate(1)
		require.NoError(t, err)
		require.Equal(t, want, e.Components[Paged])
		require.Equal(t, 600+want, e.Device.Value)
		require.Equal(t, memory >= 600, e.Verdict == Fits)
	}
}

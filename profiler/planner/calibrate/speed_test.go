package calibrate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/profiler/program"
)

func load(products, others float64, launches int) steptime.Load {
	l := steptime.Load{Launches: launches}
	l.Seconds[program.Convolution], l.Seconds[program.Elementwise] = products, others
	l.Expected = l.Seconds
	return l
}

// slow returns efficiencies of a GPU twice as slow at products as expected, half as slow at the rest.
func slow() steptime.Efficiency {
	e := steptime.DefaultEfficiency()
	for w := range e.Share {
		switch program.Work(w) {
		case program.Matmul, program.Convolution, program.Attention:
			e.Share[w].Value /= 2
		default:
			e.Share[w].Value *= 1.2
		}
	}
	e.Launch.Value *= 3
	return e
}

func TestTimesTellAsManyGroupsAsTheyDetermine(t *testing.T) {
	truth := slow()
	loads := []steptime.Load{load(1, .1, 1000), load(.1, 1, 1000), load(.1, .5, 50000), load(1, 1, 1000)}
	for n, source := range map[int]string{4: "4 steps, in 3 groups", 1: "1 step, in 1 group"} {
		var seen []TimedStep
		for _, l := range loads[:n] {
			require.False(t, steptime.DefaultEfficiency().HostBound(l))
			seen = append(seen, TimedStep{l, truth.Time(l).Seconds})
		}
		got, err := FitSpeed(seen, steptime.DefaultEfficiency())
		require.NoError(t, err)
		require.Contains(t, got.Launch.Source, source)
		for _, s := range seen {
			require.InEpsilon(t, s.Seconds, got.Time(s.Load).Seconds, 1e-6)
		}
		if n == 4 {
			require.InEpsilon(t, truth.Share[program.Matmul].Value, got.Share[program.Matmul].Value, 1e-6)
			require.InEpsilon(t, truth.Launch.Value, got.Launch.Value, 1e-6)
		}
	}
}

// Steps that the host holds up correct the host, and the others the kernels.
func TestStepsThatTheHostHoldsUpCorrectTheHost(t *testing.T) {
	truth := slow()
	truth.Dispatch.Value *= 1.5
	truth.Module.Value *= 1.5
	small, large := load(.001, .001, 10000), load(1, .1, 1000)
	small.Modules = 5000
	got, err := FitSpeed([]TimedStep{{small, truth.Time(small).Seconds}, {large, truth.Time(large).Seconds}},
		steptime.DefaultEfficiency())
	require.NoError(t, err)
	require.InEpsilon(t, truth.Dispatch.Value, got.Dispatch.Value, 1e-9)
	require.InEpsilon(t, truth.Module.Value, got.Module.Value, 1e-9)
	require.InEpsilon(t, truth.Time(large).Seconds, got.Time(large).Seconds, 1e-9)
	only, err := FitSpeed([]TimedStep{{small, truth.Time(small).Seconds}}, steptime.DefaultEfficiency())
	require.NoError(t, err)
	require.Equal(t, steptime.DefaultEfficiency().Share, only.Share)
	require.Equal(t, planner.Coefficient{}.StdErr, only.Launch.StdErr)
}

func TestTimesThatAreNoneAreRefused(t *testing.T) {
	_, err := FitSpeed(nil, steptime.DefaultEfficiency())
	require.ErrorContains(t, err, "at least one timed step")
	_, err = FitSpeed([]TimedStep{{load(1, 1, 1), 0}}, steptime.DefaultEfficiency())
	require.ErrorContains(t, err, "need a positive time")
	_, err = FitSpeed([]TimedStep{{steptime.Load{}, 1}}, steptime.DefaultEfficiency())
	require.ErrorContains(t, err, "need a positive time")
}

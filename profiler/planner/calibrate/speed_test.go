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
	e := steptime.Assumed()
	for w := range e.Share {
		switch program.Work(w) {
		case program.Matmul, program.Convolution, program.Attention:
			e.Share[w].Value /= 2
		default:
			e.Share[w].Value *= 1.2
		}
	}
	e.Launch.Value *= 3
	e.Dispatch, e.Module = planner.Coefficient{}, planner.Coefficient{} // in the time of a launch
	return e
}

func TestTimesTellAsManyGroupsAsTheyDetermine(t *testing.T) {
	truth := slow()
	loads := []steptime.Load{load(1, .1, 1000), load(.1, 1, 1000), load(.1, .1, 100000), load(1, 1, 1000)}
	for n, source := range map[int]string{4: "4 steps, in 3 groups", 1: "1 steps, in 1 groups"} {
		var seen []Timed
		for _, l := range loads[:n] {
			seen = append(seen, Timed{l, truth.Time(l).Seconds})
		}
		got, err := FitSpeed(seen, steptime.Assumed())
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

func TestTimesThatAreNoneAreRefused(t *testing.T) {
	_, err := FitSpeed(nil, steptime.Assumed())
	require.ErrorContains(t, err, "no times")
	_, err = FitSpeed([]Timed{{load(1, 1, 1), 0}}, steptime.Assumed())
	require.ErrorContains(t, err, "is none")
	_, err = FitSpeed([]Timed{{steptime.Load{}, 1}}, steptime.Assumed())
	require.ErrorContains(t, err, "is none")
}

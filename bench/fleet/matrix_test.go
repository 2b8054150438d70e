package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/toy"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

func exactly(planner.Subject) (allocated, reserved planner.Residual, err error) { return }

// many is a fleet of the toy in so many cases.
func many(t testing.TB, cases int) []Unit {
	var text strings.Builder
	text.WriteString("models: [toy]\nboards: [t4]\nbatches: 8..64x2\ncases:\n")
	for i := range cases {
		fmt.Fprintf(&text, "  - {accumulate: %d, settings: {seq-len: %d}}\n", 1+i%160, 1+i/160)
	}
	c, err := Read(strings.NewReader(text.String()), "f.yaml")
	require.NoError(t, err)
	units, err := c.Units("f.yaml", models.NewRegistry([]models.Model{toy.Model()}))
	require.NoError(t, err)
	return units
}

// A cell is what a plan of that board and batch says, but for what the line between two
// batch sizes is off; the largest batch fits and the next does not.
func TestCellsAreWhatPlansSay(t *testing.T) {
	t4, err := device.Lookup("t4")
	require.NoError(t, err)
	units := many(t, 60)
	e := step.Evidence{Residuals: exactly}
	m, err := Matrix(t.Context(), units, []device.GPU{t4}, e, nil)
	require.NoError(t, err)
	require.Len(t, m.Rows, 60)
	for i, cell := range m.Rows {
		if i%20 != 0 {
			continue
		}
		u := units[i]
		setup, err := step.New(u.Model, u.Case, e)
		require.NoError(t, err)
		exact, _, err := setup.Estimated(t.Context(), t4, cell.Batch)
		require.NoError(t, err)
		require.Equal(t, 64, cell.Batch)
		require.InEpsilon(t, exact.Device.Value, cell.Needs.Bytes, 0.02)
		require.Greater(t, cell.Largest, 64)
	}
}

// BenchmarkMatrix is 10,000 cases on 20 boards, which should take at most 60 s.
func BenchmarkMatrix(b *testing.B) {
	units, gpus := many(b, 10_000), device.Catalog()[:20]
	b.ReportAllocs()
	for b.Loop() {
		_, err := Matrix(b.Context(), units, gpus, step.Evidence{Residuals: exactly}, nil)
		require.NoError(b, err)
	}
}

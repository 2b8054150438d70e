package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

func exactly(planner.ResidualSubject) (allocated, reserved planner.Residual, err error) { return }

// many returns a fleet of the toy in so many cases.
func many(t testing.TB, cases int) []ModelCase {
	var text strings.Builder
	text.WriteString("models: [toy]\nboards: [t4]\nbatches: 8..64x2\ncases:\n")
	for i := range cases {
		fmt.Fprintf(&text, "  - {accumulate: %d, settings: {seq-len: %d}}\n", 1+i%160, 1+i/160)
	}
	c, err := Read(strings.NewReader(text.String()), "f.yaml")
	require.NoError(t, err)
	units, err := c.Units("f.yaml", models.NewRegistry([]models.Model{toy.Model()}), nil)
	require.NoError(t, err)
	return units
}

// A cell of a small fleet is what a plan of that GPU and batch says, to the byte; of a large one but for what the line
// between two batch sizes is off, which is said. The largest batch fits and the next does not.
func TestCellsAreWhatPlansSay(t *testing.T) {
	var gpus []device.GPU
	for _, name := range []string{"t4", "rtx-2080-ti"} { // of one architecture
		gpu, err := device.Lookup(name)
		require.NoError(t, err)
		gpus = append(gpus, gpu)
	}
	e := step.Evidence{Residuals: exactly}
	for cases, tolerance := range map[int]float64{60: 0, 320: 0.02} {
		units := many(t, cases)
		m, err := Matrix(t.Context(), units, gpus, e, nil)
		require.NoError(t, err)
		require.Len(t, m.Rows, cases*len(gpus))
		require.Len(t, m.Notes, 1)
		require.Equal(t, tolerance > 0, strings.Contains(m.Notes[0], "up to 3 % off"))
		for i, cell := range m.Rows {
			if i%37 != 0 {
				continue
			}
			u := units[i/len(gpus)]
			setup, err := step.New(u.Model, u.Case, e)
			require.NoError(t, err)
			exact, err := judge.JudgeBatch(t.Context(), setup, gpus[i%len(gpus)], cell.Batch)
			require.NoError(t, err)
			require.Equal(t, 64, cell.Batch)
			require.InDelta(t, exact.Loops[0].Device.Value, cell.Need.Bytes,
				tolerance*float64(exact.Loops[0].Device.Value))
			require.Greater(t, cell.Largest, 64)
		}
	}
}

// What the line says of an edge is corrected by recordings at it, upwards and downwards.
func TestCellsAreCorrectedAtTheEdge(t *testing.T) {
	u := many(t, 1)[0]
	u.Batches = []int{2, 4, 8, 16, 32, 64}
	e := step.Evidence{Residuals: exactly}
	setup, err := step.New(u.Model, u.Case, e)
	require.NoError(t, err)
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	exact, err := judge.JudgeBatch(t.Context(), setup, gpu, 8)
	require.NoError(t, err)
	gpu.Memory = int64(float64(exact.Need)/planner.DefaultMargin) + 1 // 8 is safe to the byte
	for _, said := range []int{2, 8, 64} {
		cell := report.MatrixCell{Batch: said, Largest: said}
		require.NoError(t, u.fillCellExactly(t.Context(), &cell, setup, gpu))
		largest, err := judge.Default(setup, gpu, 0).Largest(t.Context(), planner.Start{Batch: 1}, 64)
		require.NoError(t, err)
		require.Equal(t, largest, cell.Largest, "the line said %d", said)
		require.LessOrEqual(t, cell.Batch, largest)
		require.Greater(t, 2*cell.Batch, largest)
		require.Equal(t, report.Fits, cell.Fits)
		need, err := judge.JudgeBatch(t.Context(), setup, gpu, cell.Batch)
		require.NoError(t, err)
		require.Equal(t, need.Loops[0].Device.Value, cell.Need.Bytes)
	}
	gpu.Memory = gpu.Context + 1
	cell := report.MatrixCell{Batch: 4, Largest: 9}
	require.NoError(t, u.fillCellExactly(t.Context(), &cell, setup, gpu))
	require.Equal(t, 2, cell.Batch)
	require.Equal(t, report.DoesNotFit, cell.Fits)
	require.Less(t, cell.Largest, 2)
}

// BenchmarkMatrix is 10,000 cases on 20 GPUs, which should take at most 60 s.
func BenchmarkMatrix(b *testing.B) {
	units, gpus := many(b, 10_000), device.Catalog()[:20]
	b.ReportAllocs()
	for b.Loop() {
		_, err := Matrix(b.Context(), units, gpus, step.Evidence{Residuals: exactly}, nil)
		require.NoError(b, err)
	}
}

// Workspaces of convolutions differ between GPUs of one major compute capability.
func TestGPUsOfAKindHaveOneComputeCapability(t *testing.T) {
	gpus := steptest.GPUs(t, "a30", "l4", "h100", "rtx-4090", "rtx-3060")
	require.Equal(t, [][]int{{0}, {1, 3}, {2}, {4}}, groupGPUs(gpus, 1))
	require.Equal(t, [][]int{{0, 1, 3, 2, 4}}, groupGPUs(gpus, maxRecordedCases))
}

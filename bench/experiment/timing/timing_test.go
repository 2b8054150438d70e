package timing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

// The guide of the recipe says that checkpointing takes about 30 % longer and
// saves about 40 % of the memory: a second forward is a third of a step.
func TestCheckpointingCostsASecondForward(t *testing.T) {
	m, err := all.Models().Lookup("redimnet-b2")
	require.NoError(t, err)
	var stages []Stage
	for _, on := range []bool{false, true} {
		setup, err := step.New(m, models.Case{Stage: "full", Checkpointing: on},
			step.Evidence{Residuals: planner.Residuals})
		require.NoError(t, err)
		stages = append(stages, Stage{Name: "full", Epochs: 2, Setup: setup})
	}
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(t, err)
	table := Table{
		Stages: stages, Batch: 16, Dataset: 1000, Budget: planner.Budget{Margin: planner.DefaultMargin},
	}
	r, err := table.Run(t.Context(), []device.GPU{gpu})
	require.NoError(t, err)
	row, recomputed := r.Rows[0], r.Rows[1]
	require.InDelta(t, 1.3, recomputed.Step.Seconds/row.Step.Seconds, 0.1)
	require.Less(t, recomputed.Memory, row.Memory*2/3)
	// 1000 samples are 63 steps of 16.
	require.InEpsilon(t, 63*row.Step.Seconds, row.Epoch.Seconds, 1e-9)
	require.InEpsilon(t, 126*row.Step.Seconds, row.Total.Seconds, 1e-9)
	require.Greater(t, row.Step.Low, 0.99*row.Roofline)
}

// A table plans trials and reads results: whoever runs them, it is the same.
func TestTrialsOfATableCanRunElsewhere(t *testing.T) {
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	wire := &steptest.Wire{Models: models.NewRegistry([]models.Model{toy.Model()})}
	var tables []*report.Times
	for _, trials := range []step.Executor{nil, wire} {
		evidence := steptest.Exact()
		evidence.Trials = trials
		setup, err := step.New(toy.Model(), models.Case{}, evidence)
		require.NoError(t, err)
		full := Stage{Name: "full", Epochs: 2, Setup: setup}
		table := Table{Stages: []Stage{full}, Dataset: 1000, Budget: planner.Budget{Margin: 1}}
		r, err := table.Run(t.Context(), []device.GPU{gpu})
		require.NoError(t, err)
		tables = append(tables, r)
	}
	require.Equal(t, tables[0], tables[1])
	require.Positive(t, wire.Trials())
}

// The largest batch is safe, the next size of the search is not.
func TestLargestBatchIsTheLastThatIsSafe(t *testing.T) {
	setup := steptest.Toy(t, models.Case{}, "")
	gpu := steptest.Card(800)
	row := func(batch int) report.TimeRow {
		table := Table{Stages: []Stage{{Setup: setup}}, Batch: batch, Budget: planner.Budget{Margin: 1}}
		row, err := table.row(t.Context(), gpu, table.Stages[0], steptime.DefaultEfficiency())
		require.NoError(t, err)
		return row
	}
	largest := row(0)
	require.Empty(t, largest.Unsafe)
	require.NotEmpty(t, row(largest.Batch+1).Unsafe)
}

// A step that was measured takes what was measured, one of twice the batch about twice as long, within a narrower
// interval. A GPU of unknown speed is refused.
func TestMeasuredStepsCorrectTheEstimates(t *testing.T) {
	m, err := all.Models().Lookup("redimnet-b2")
	require.NoError(t, err)
	setup, err := step.New(m, models.Case{}, step.Evidence{Residuals: planner.Residuals})
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-3090")
	require.NoError(t, err)
	row := func(batch int, measured Measured, gpu device.GPU) (report.TimeRow, error) {
		table := Table{
			Stages: []Stage{{Name: "full", Setup: setup}}, Batch: batch, Measured: measured,
			Budget: planner.Budget{Margin: planner.DefaultMargin},
		}
		r, err := table.Run(t.Context(), []device.GPU{gpu})
		if err != nil {
			return report.TimeRow{}, err
		}
		return r.Rows[0], nil
	}
	width := func(s *report.Seconds) float64 { return (s.High - s.Low) / s.Seconds }
	plain, err := row(64, Measured{}, gpu)
	require.NoError(t, err)
	same, err := row(64, Measured{0.9, 64}, gpu)
	require.NoError(t, err)
	require.InDelta(t, 0.9, same.Step.Seconds, 1e-6)
	require.Less(t, width(same.Step), width(plain.Step)/2)
	twice, err := row(128, Measured{0.9, 64}, gpu)
	require.NoError(t, err)
	require.InDelta(t, 1.8, twice.Step.Seconds, 0.25)
	fast, err := row(64, Measured{plain.Roofline * 0.8, 64}, gpu)
	require.NoError(t, err)
	require.LessOrEqual(t, fast.Step.Low, fast.Step.Seconds)
	_, err = row(64, Measured{plain.Roofline * 0.4, 64}, gpu)
	require.ErrorContains(t, err, "less than half of what rtx-3090 takes at its peak rates")
	unknown := gpu
	unknown.Bandwidth = 0
	_, err = row(64, Measured{0.9, 64}, unknown)
	require.ErrorContains(t, err, "--measured: the speed of rtx-3090 is unknown, so a measured step cannot correct its estimates; leave out --measured, or use a listed GPU")
}

// What torch.backends allows to compute in TF32 changes the time: products of a language model, and convolutions. Steps
// without optimizer are faster, those without output layer faster still.
func TestChoicesOfACaseChangeItsTime(t *testing.T) {
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	seconds := func(name string, change func(c *models.Case)) float64 {
		m, err := all.Models().Lookup(name)
		require.NoError(t, err)
		c := models.Case{Batch: 8}
		change(&c)
		setup, err := step.New(m, c, step.Evidence{Residuals: planner.Residuals})
		require.NoError(t, err)
		s, err := timeStep(t.Context(), judge.Default(setup, gpu, 0), 8, steptime.DefaultEfficiency())
		require.NoError(t, err)
		return s.time.Seconds
	}
	tf32 := func(which string) func(*models.Case) { return func(c *models.Case) { c.TF32 = which } }
	for model, slow := range map[string]string{"gpt2": "convolutions", "unet": "none"} {
		require.Greater(t, seconds(model, tf32(slow)), 1.5*seconds(model, tf32("all")), model)
	}
	const bert = "hf:../../reference/data/times/bert_large.json"
	whole := seconds(bert, func(c *models.Case) { c.Task = "masked-lm" })
	passes := seconds(bert, func(c *models.Case) { c.Task, c.Optimizer = "masked-lm", "none" })
	layers := seconds(bert, func(c *models.Case) {
		c.Task, c.Optimizer, c.Settings = "masked-lm", "none", models.Settings{"head": 0}
	})
	require.Less(t, passes, whole)
	require.Less(t, layers, 0.95*passes)
}

// A chain of pointwise operators after a layer is one kernel under torch.compile, which reads and writes a tensor once.
// Its step was recorded by vprof capture chain.py:Chain --compile --batch 4096,8192 --amp none (PyTorch 2.15). A
// release that was not recorded has the kernels of the eager step, and its interval begins at the layer's products
// alone.
func TestCompiledStepsHaveFusedKernels(t *testing.T) {
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	registry := all.Models()
	row := func(c models.Case) report.TimeRow {
		m, err := registry.Lookup("pt2:testdata/chain.pt2")
		require.NoError(t, err)
		c.Optimizer = "none"
		m, c, err = registry.Complete(m, c)
		require.NoError(t, err)
		setup, err := step.New(m, c, steptest.Exact())
		require.NoError(t, err)
		table := Table{Stages: []Stage{{Setup: setup}}, Batch: c.Batch, Budget: planner.Budget{Margin: 1}}
		row, err := table.row(t.Context(), gpu, table.Stages[0], steptime.DefaultEfficiency())
		require.NoError(t, err)
		return row
	}
	at := func(batch int, compile bool) models.Case {
		return models.Case{Batch: batch, Torch: "2.15", MemoryOptions: models.MemoryOptions{Compile: compile}}
	}
	eager, compiled := row(at(8192, false)), row(at(8192, true))
	require.Less(t, compiled.Step.Seconds, eager.Step.Seconds/2)
	require.Less(t, compiled.Roofline, eager.Roofline/2)
	require.Empty(t, compiled.EagerKernels)
	half, between := row(at(4096, true)), row(at(6144, true))
	require.InEpsilon(t, (half.Roofline+compiled.Roofline)/2, between.Roofline, 1e-6)
	require.InDelta(t, compiled.Launches, between.Launches, 1)
	accumulated := at(8192, true)
	accumulated.Accumulate = 2
	require.InEpsilon(t, 2*compiled.Roofline, row(accumulated).Roofline, 0.01)
	older := row(models.Case{Batch: 8192, Torch: "2.14", MemoryOptions: models.MemoryOptions{Compile: true}})
	require.Contains(t, older.EagerKernels, "another release compiles otherwise")
	require.Less(t, older.Step.Low, compiled.Step.Low)
	require.Greater(t, older.Step.High, compiled.Step.High)
}

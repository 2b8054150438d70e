package smoke

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/fit"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

func toySmoke(free int64, c models.Case) Test {
	return Test{
		Model: toy.Model(), Case: steptest.Full(c), GPU: steptest.Card(free), Budget: planner.Budget{Margin: 1},
		Evidence: steptest.Exact(),
	}
}

func byName(s *report.Smoke) map[string]report.Check {
	found := map[string]report.Check{}
	for _, c := range s.Checks {
		found[c.Name] = c
	}
	return found
}

// Weights 16 MiB; with a batch of 8, of 8 MiB, 80 of activations; backward adds
// 16 of gradients and 32 of temporaries, and after the first step 32 of state.
func TestSmokeAddsUpTheMomentsOfTraining(t *testing.T) {
	s, err := Run(t.Context(), toySmoke(1000, models.Case{Batch: 8}))
	require.NoError(t, err)
	require.True(t, s.Safe)
	for name, want := range map[string]int64{
		"model size": 16, "forward": 16 + 8 + 80, "training step": 64 + 15*8,
		"validation, batch 8": 16 + 32 + 2*8 + 4*8, "checkpoint save": 16 + 8 + 32,
		"stage frozen": 16 + 15*8,
	} {
		c, ok := byName(s)[name]
		require.True(t, ok, name)
		require.EqualValues(t, want*steptest.MiB, c.Allocated, name)
		require.Equal(t, c.Reserved+100*steptest.MiB, c.Device, name)
	}
	require.Contains(t, s.Verdict(), "SAFE: toy, batch 8 on card: training step may need")
}

// Smoke plans trials and reads results: whoever runs them, the answer is the same.
func TestTrialsOfASmokeTestCanRunElsewhere(t *testing.T) {
	test := toySmoke(1000, models.Case{Batch: 200})
	test.LongestInputs = models.Settings{"seq-len": 2}
	here, err := Run(t.Context(), test)
	require.NoError(t, err)
	wire := &steptest.Wire{Models: models.NewRegistry([]models.Model{toy.Model()})}
	test.Trials = wire
	there, err := Run(t.Context(), test)
	require.NoError(t, err)
	require.Equal(t, here, there)
	require.Positive(t, wire.Trials())
}

func TestSmokeNamesTheLargestSafeBatch(t *testing.T) {
	s, err := Run(t.Context(), toySmoke(1000, models.Case{Batch: 200}))
	require.NoError(t, err)
	require.False(t, s.Safe)
	f, err := fit.Run(t.Context(), fit.Search{
		Model: toy.Model(), Cases: []models.Case{steptest.Full(models.Case{})}, GPUs: []device.GPU{steptest.Card(1000)},
		Budget: planner.Budget{Margin: 1}, MaxBatch: 4096, Evidence: steptest.Exact(),
	})
	require.NoError(t, err)
	require.Equal(t, f.Choices[0].Batch, s.LargestBatch)
	require.Contains(t, s.Verdict(), "NOT SAFE")
}

// The batch of validation is another than that of training, 1 + 4 MiB a sample
// beside weights, state and the training's batch: only that is too large.
func TestSmokeTakesValidationAtItsOwnBatch(t *testing.T) {
	test := toySmoke(1000, models.Case{Batch: 8})
	test.Validation = 64
	s, err := Run(t.Context(), test)
	require.NoError(t, err)
	require.EqualValues(t, (16+32+8+5*64)*steptest.MiB, byName(s)["validation, batch 64"].Allocated)
	require.True(t, s.Safe)
	test.Validation = 400
	s, err = Run(t.Context(), test)
	require.NoError(t, err)
	require.False(t, s.Safe)
	require.True(t, byName(s)["training step"].Safe)
	require.Equal(t, "validation, batch 400", s.WorstCheck().Name)
	require.Contains(t, s.Verdict(), "no batch of training is safe with that")
	test = toySmoke(60, models.Case{Batch: 8})
	test.Validation = 400
	s, err = Run(t.Context(), test)
	require.NoError(t, err)
	require.NotNil(t, s.WorstCheck().OOM)
	require.Contains(t, s.Verdict(), "training may need "+bytesize.Format(byName(s)["training step"].Need))
}

// Learned coefficients correct every moment: 50 MiB of workspaces, and a tenth
// of what is reserved outside the allocator.
func TestSmokeUsesWhatWasLearned(t *testing.T) {
	plain, err := Run(t.Context(), toySmoke(1000, models.Case{Batch: 8}))
	require.NoError(t, err)
	test := toySmoke(1000, models.Case{Batch: 8})
	test.Calibrated = &coefficients.Selection{Entries: []coefficients.Entry{{
		GPU: "card", Models: []string{"toy"}, Memory: map[string]coefficients.Number{
			planner.LibraryWorkspace.String(): {Value: 50 * steptest.MiB},
			planner.DeviceSlack.String():      {Value: 0.1},
		},
	}}}
	s, err := Run(t.Context(), test)
	require.NoError(t, err)
	for i, c := range s.Checks {
		was := plain.Checks[i]
		require.EqualValues(t, was.Allocated+50*steptest.MiB, c.Allocated, c.Name)
		require.EqualValues(t, was.Reserved+50*steptest.MiB, c.Reserved, c.Name)
		require.InDelta(t, float64(was.Device+50*steptest.MiB)+0.1*float64(was.Reserved), float64(c.Device), 1, c.Name)
	}
}

// With a risk, the upper end of the estimate must fit and not the estimate.
func TestSmokeKeepsToTheRisk(t *testing.T) {
	test := toySmoke(500, models.Case{Batch: 24})
	s, err := Run(t.Context(), test)
	require.NoError(t, err)
	require.True(t, s.Safe)
	test.Budget = planner.Budget{Risk: 0.01}
	test.Residuals = func(planner.ResidualSubject) (a, r planner.Residual, err error) {
		wide := planner.Residual{Low: -0.2, High: 0.2}
		return wide, wide, nil
	}
	s, err = Run(t.Context(), test)
	require.NoError(t, err)
	require.False(t, s.Safe)
	require.True(t, s.WorstCheck().Fits)
	require.Greater(t, s.WorstCheck().Need, s.WorstCheck().Device)
	require.Contains(t, s.Verdict(), "training step may need")
	require.Less(t, s.LargestBatch, 24)
	require.Positive(t, s.LargestBatch)
}

// Frozen fits with a batch of 60, but the stage after it does not.
func TestSmokeLooksAtTheStagesToCome(t *testing.T) {
	test := toySmoke(980, models.Case{Batch: 60})
	test.Case.Stage = "frozen"
	s, err := Run(t.Context(), test)
	require.NoError(t, err)
	require.True(t, byName(s)["training step"].Safe)
	require.False(t, byName(s)["stage full"].Safe)
	require.False(t, s.Safe)
	require.Less(t, s.LargestBatch, 60)
	test.SingleGPU = true
	s, err = Run(t.Context(), test)
	require.NoError(t, err)
	require.True(t, s.Safe)
	require.True(t, byName(s)["stage full"].NotInVerdict)
	require.Equal(t, "training step", s.WorstCheck().Name)
}

func TestSmokeLooksAtTheLongestSample(t *testing.T) {
	test := toySmoke(1000, models.Case{Batch: 8})
	test.LongestInputs = models.Settings{"seq-len": 16}
	s, err := Run(t.Context(), test)
	require.NoError(t, err)
	require.EqualValues(t, (64+15*8*16)*steptest.MiB, byName(s)["longest sample"].Allocated)
	require.False(t, s.Safe)
	test.LongestInputs = models.Settings{"seq-len": 1000}
	_, err = Run(t.Context(), test)
	var impossible *models.CaseError
	require.ErrorAs(t, err, &impossible)
}

// On a device with as much memory as the search believes, every check is what it is without; on a smaller one they end
// where memory does: 64 + 15 * 40 MiB are too much for 300.
func TestSmokeOnADeviceCountsWhatTheDeviceSees(t *testing.T) {
	test := toySmoke(1000, models.Case{Batch: 40})
	plain, err := Run(t.Context(), test)
	require.NoError(t, err)
	test.Device, err = sim.New(test.GPU, 0)
	require.NoError(t, err)
	same, err := Run(t.Context(), test)
	require.NoError(t, err)
	for i := range plain.Checks { // what was measured has no interval
		plain.Checks[i].Need, plain.Checks[i].Source = plain.Checks[i].Device, ""
	}
	require.NotEmpty(t, plain.Intervals)
	plain.Intervals = ""
	require.Equal(t, plain, same)

	test.Device, err = sim.New(steptest.Card(300), 0)
	require.NoError(t, err)
	s, err := Run(t.Context(), test)
	require.NoError(t, err)
	require.False(t, s.Safe)
	require.True(t, byName(s)["model size"].Safe)
	for _, name := range []string{
		"forward", "first optimizer step", "training step", "validation, batch 40",
		"checkpoint save", "stage frozen",
	} {
		c := byName(s)[name]
		require.NotNil(t, c.OOM, name)
		require.False(t, c.Safe || c.Fits, name)
	}
	require.Equal(t, "forward", s.WorstCheck().Name)
	require.Contains(t, s.Verdict(), "NOT SAFE: toy, batch 40 on card: forward runs out of memory")

	// The largest batch is one that the device has held.
	held := test
	held.Case = steptest.Full(models.Case{Batch: s.LargestBatch})
	ok, err := Run(t.Context(), held)
	require.NoError(t, err)
	require.True(t, ok.Safe)
	held.Case.Batch++
	more, err := Run(t.Context(), held)
	require.NoError(t, err)
	require.False(t, more.Safe)
}

func TestGrowthIsNamedByComponent(t *testing.T) {
	before, err := Run(t.Context(), toySmoke(1000, models.Case{Batch: 8}))
	require.NoError(t, err)
	same, err := Run(t.Context(), toySmoke(1000, models.Case{Batch: 8}))
	require.NoError(t, err)
	require.NoError(t, same.Compare(before, "base.json", 0))
	require.Empty(t, same.Baseline.Grown)
	more, err := Run(t.Context(), toySmoke(1000, models.Case{Batch: 9}))
	require.NoError(t, err)
	require.NoError(t, more.Compare(before, "base.json", 0.01))
	require.Contains(t, more.Baseline.Grown,
		report.Growth{Name: "activations", Before: 80 * steptest.MiB, Now: 90 * steptest.MiB})
	require.Equal(t, []string{"batch 8 -> 9"}, more.Baseline.Changed)
	require.NoError(t, more.Compare(before, "base.json", 0.5))
	require.Empty(t, more.Baseline.Grown)
	require.ErrorContains(t, before.Compare(more, "base.json", 0), "it tests batch 9, larger than batch 8")
}

var _ report.Document = (*report.Smoke)(nil)

// A smoke test of each system as its authors train it, on a GPU that is too
// small for some of them. None should take more than a second.
func BenchmarkSmoke(b *testing.B) {
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(b, err)
	for _, name := range []string{
		"redimnet-b2", "patch-vqvae", "spectrogram-gan", "vit-b16-224", "bdslw-spoter",
		"naics-embedder", "naics-embedder-stage01",
	} {
		m, err := all.Models().Lookup(name)
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, err := Run(b.Context(), Test{
					Model: m, Case: m.Default, GPU: gpu, Budget: planner.Budget{Margin: 0.85},
					Evidence: step.Evidence{Residuals: planner.Residuals},
				})
				require.NoError(b, err)
			}
		})
	}
}

// An exported model is evaluated by the graph of its training. The peaks come from PyTorch
// 2.11: three steps of AdamW at batch 4, then model.eval(), torch.no_grad() and the loss.
func TestExportedModelsAreValidated(t *testing.T) {
	a100, err := device.Lookup("a100-80")
	require.NoError(t, err)
	registry := all.Models()
	for _, want := range []struct {
		file      string
		amp       models.Autocast
		loss      string
		batch     int
		allocated float64
	}{
		{"hf-gpt2", models.NoAutocast, "", 4, 1944889856},
		{"hf-gpt2", "bf16", "", 16, 3851485184},
		{"hf-qwen3-tiny", models.NoAutocast, "", 4, 981893632},
		{"hf-opt-125m", models.NoAutocast, "", 4, 1942476288},
		{"own-gpt-8x768", models.NoAutocast, "token-cross-entropy", 4, 1266904064},
	} {
		m, err := registry.Lookup("../../../models/pt2/testdata/" + want.file + ".pt2")
		require.NoError(t, err)
		c := models.Case{Model: m.Name, Batch: 4, AMP: want.amp, Loss: want.loss, Torch: "2.11"}
		c.Loop = models.LoopFunction
		s, err := Run(t.Context(), Test{
			Model: m, Case: c,
			GPU: a100, Validation: want.batch,
			Budget: planner.Budget{Margin: 1}, Evidence: steptest.Exact(),
		})
		require.NoError(t, err)
		require.InEpsilon(t, want.allocated, byName(s)[fmt.Sprintf("validation, batch %d", want.batch)].Allocated,
			0.001, "%s %s", want.file, want.amp)
	}
}

// A stage without an optimizer is looked at without one, whatever the case trains with.
func TestOtherStagesMayHaveNoOptimizer(t *testing.T) {
	m, err := all.Models().Lookup("bdslw-spoter")
	require.NoError(t, err)
	s, err := Run(t.Context(), Test{
		Model: m, Case: models.Case{Batch: 4, Stage: "full", Optimizer: "sgd"},
		GPU: steptest.GPUs(t, "t4")[0], Budget: planner.Budget{Margin: 1}, Evidence: steptest.Exact(),
	})
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(s.Checks, func(c report.Check) bool { return c.Name == "stage inference" }))
}

// GaLore has nothing to project where the output layer alone trains.
func TestAStageThatIsRefusedIsNotChecked(t *testing.T) {
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	for _, memory := range []int64{16 << 30, 1200 << 20} {
		gpu := steptest.GPUs(t, "t4")[0]
		gpu.Memory = memory
		s, err := Run(t.Context(), Test{
			Model: m, Case: models.Case{Batch: 4, Stage: "full", Optimizer: "galore-adamw"},
			GPU: gpu, Budget: planner.Budget{Margin: 1}, Evidence: steptest.Exact(),
		})
		require.NoError(t, err)
		require.Equal(t, memory > 2<<30, s.Safe)
		require.Contains(t, fmt.Sprint(s.Warnings), "stage head is not checked: ")
	}
}

// The interval of a compiled step that was not recorded is wide, and no wider for moments that hold less.
func TestNoMomentNeedsMoreThanALargerOne(t *testing.T) {
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	s, err := Run(t.Context(), Test{
		Model: m, Case: models.Case{Batch: 64, Stage: "head", MemoryOptions: models.MemoryOptions{Compile: true}},
		GPU: steptest.GPUs(t, "t4")[0], Budget: planner.Budget{Margin: 1}, Evidence: steptest.Exact(),
	})
	require.NoError(t, err)
	training := byName(s)["training step"]
	require.Greater(t, training.Need, training.Device)
	for _, c := range s.Checks {
		if !strings.HasPrefix(c.Name, "stage ") && c.Device <= training.Device {
			require.LessOrEqual(t, c.Need, training.Need, c.Name)
		}
	}
}

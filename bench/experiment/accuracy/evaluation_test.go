package accuracy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
)

// TestEvaluationNeedsWhatPyTorchAllocates has the peaks of the evaluation after the second step of transformers'
// Trainer (5.24, PyTorch 2.15, allocated and reserved bytes of its own allocator): two rows of 256 tokens in training,
// eight in evaluation. Scores are kept where compute_metrics is given: of 32 rows, or of two batches
// (eval_accumulation_steps). Labels, which are kept with them, are not counted.
func TestEvaluationNeedsWhatPyTorchAllocates(t *testing.T) {
	m, err := all.Models().Lookup("hf:testdata/evaluation.json")
	require.NoError(t, err)
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	for _, k := range []struct {
		evaluation          string
		amp                 models.Autocast
		weights             models.WeightType
		checkpointing       bool
		allocated, reserved int64
	}{
		{"batch=8", models.NoAutocast, "", false, 1921201664, 2527068160},
		{"batch=8", "bf16", "", false, 2214016512, 2556428288},
		{"batch=8", "bf16", "", true, 2217162240, 2527068160},
		{"batch=8", models.NoAutocast, "bf16", false, 1342332416, 1696595968},
		{"batch=8,scores=4", "bf16", "", false, 3482545664, 5177868288},
		{"batch=8,scores=2", "bf16", "", false, 2476176384, 3342860288},
	} {
		e, err := models.ParseEvaluation(k.evaluation)
		require.NoError(t, err)
		setup, err := step.New(m, models.Case{
			Batch: 2, AMP: k.amp, Weights: k.weights, Checkpointing: k.checkpointing, Optimizer: "adamw-fused", Torch: "2.15",
			Settings: models.Settings{"seq-len": 256}, Levers: models.Levers{Loop: models.LoopTrainer, Evaluate: e},
		}, step.Evidence{})
		require.NoError(t, err)
		course, err := setup.Course(t.Context(), setup.Trial(gpu, 2), 0)
		require.NoError(t, err)
		require.Equal(t, 8, course.Validation)
		peak := course.With.Run.PeakOf(course.With.ValidationStep, "")
		require.InDelta(t, k.allocated, peak.Allocated, 64<<10, "%+v", k)
		require.Equal(t, k.reserved, peak.Reserved, "%+v", k)
	}
}

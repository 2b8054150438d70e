package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/sample"
)

// TestPlansOfTorchtunesFilesAreWhatItsRecipesNeed plans example files of torchtune's repository with small models, and
// compares the allocated bytes with the steps of its own recipes: to 3 %. torchtune keeps fp32 copies of its rotary
// positions; the plan has the copies of transformers. "make torchtune-files" records the steps
// (tools/record/torchtune_files.py).
func TestPlansOfTorchtunesFilesAreWhatItsRecipesNeed(t *testing.T) {
	sample.Alone(t)
	steps := recordedSteps[fileStep](t, "testdata/torchtune.jsonl.gz")
	require.Len(t, steps, 4)
	for _, s := range steps {
		file, config := s.write(t, "config.json")
		planned := allocatedOfPlan(t, []string{
			"plan", file, "--model", "hf:" + config, "--gpu", "a100-40", "--torch", s.Stack["torch"], "--format", "json",
		})
		require.InEpsilon(t, s.Allocated, planned, 0.03, s.File)
	}
}

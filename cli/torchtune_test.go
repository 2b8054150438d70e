package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/sample"
)

// TestPlansOfTorchtunesFilesAreWhatItsRecipesNeed plans example files of torchtune's repository with small models, and
// compares the allocated bytes with the steps of its own recipes: to 1.6 %, and to 3 % where activations are offloaded,
// of which torchtune keeps the last five for a while. "make torchtune-files" records the steps
// (tools/record/torchtune_files.py).
func TestPlansOfTorchtunesFilesAreWhatItsRecipesNeed(t *testing.T) {
	sample.Alone(t)
	steps := recordedSteps[fileStep](t, "testdata/torchtune.jsonl.gz")
	require.Len(t, steps, 18)
	for _, s := range steps {
		file, config := s.write(t, "config.json")
		planned := allocatedOfPlan(t, []string{
			"plan", file, "--model", "hf:" + config, "--gpu", "a100-40", "--torch", s.Stack["torch"], "--format=json",
		})
		off := 0.016
		if strings.Contains(s.Text, "enable_activation_offloading: True") {
			off = 0.03
		}
		require.InEpsilon(t, s.Allocated, planned, off, s.File)
	}
}

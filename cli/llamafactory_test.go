package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/sample"
)

// TestPlansOfLLaMAFactorysFilesAreWhatItsCodeNeeds plans example files of LLaMA-Factory's repository with small models,
// and compares the allocated bytes with the steps of its own code: to 1.1 %. In the recorded files, micro-batches and
// lengths of rows may be smaller than in the repository, and DeepSpeed is left out. "make llamafactory-files" records
// them (tools/record/llamafactory_files.py).
func TestPlansOfLLaMAFactorysFilesAreWhatItsCodeNeeds(t *testing.T) {
	sample.Alone(t)
	steps := recordedSteps[fileStep](t, "testdata/llamafactory.jsonl.gz")
	require.Len(t, steps, 9)
	for _, s := range steps {
		file, _ := s.write(t, "model/config.json")
		planned := allocatedOfPlan(t, []string{
			"plan", file, "--gpu", "a100-40", "--torch", s.Stack["torch"], "--stack",
			"transformers=" + s.Stack["transformers"], "--format", "json",
		})
		require.InEpsilon(t, s.Allocated, planned, 0.011, s.File)
	}
}

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// llamaFactoryStep is the second or third step of an example file of LLaMA-Factory with a small model, as its code ran
// it on a simulated A100 (tools/record/llamafactory_files.py; "make llamafactory-files").
type llamaFactoryStep struct {
	File, Text string
	Stack      map[string]string
	Config     json.RawMessage
	Allocated  int64
}

// TestPlansOfLLaMAFactorysFilesAreWhatItsCodeNeeds plans example files of LLaMA-Factory's repository with small models,
// and compares the allocated bytes with the steps of its own code: to 1.1 %. In the recorded files, micro-batches and
// lengths of rows may be smaller than in the repository, and DeepSpeed is left out.
func TestPlansOfLLaMAFactorysFilesAreWhatItsCodeNeeds(t *testing.T) {
	steps := recordedSteps[llamaFactoryStep](t, "testdata/llamafactory.jsonl.gz")
	require.Len(t, steps, 9)
	for _, s := range steps {
		folder := t.TempDir()
		file := filepath.Join(folder, "train.yaml")
		require.NoError(t, os.Mkdir(filepath.Join(folder, "model"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "model", "config.json"), s.Config, 0o600))
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(s.Text, "{folder}", folder)), 0o600))
		planned := allocatedOfPlan(t, []string{
			"plan", file, "--gpu", "a100-40", "--torch", s.Stack["torch"], "--stack",
			"transformers=" + s.Stack["transformers"], "--format", "json",
		})
		require.InEpsilon(t, s.Allocated, planned, 0.011, s.File)
	}
}

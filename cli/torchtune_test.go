package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// torchtuneStep is the third step of an example file of torchtune with a small model, as its recipe ran it on a
// simulated A100 (tools/record/torchtune_files.py; "make torchtune-files").
type torchtuneStep struct {
	File, Text string
	Stack      map[string]string
	Config     json.RawMessage
	Allocated  int64
}

// TestPlansOfTorchtunesFilesAreWhatItsRecipesNeed plans example files of torchtune's repository with small models, and
// compares the allocated bytes with the steps of its own recipes: to 3 %. torchtune keeps fp32 copies of its rotary
// positions; the plan has the copies of transformers.
func TestPlansOfTorchtunesFilesAreWhatItsRecipesNeed(t *testing.T) {
	steps := recordedSteps[torchtuneStep](t, "testdata/torchtune.jsonl.gz")
	require.Len(t, steps, 4)
	for _, s := range steps {
		folder := t.TempDir()
		config, file := filepath.Join(folder, "config.json"), filepath.Join(folder, "train.yaml")
		require.NoError(t, os.WriteFile(config, s.Config, 0o600))
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(s.Text, "{folder}", folder)), 0o600))
		planned := allocatedOfPlan(t, []string{
			"plan", file, "--model", "hf:" + config, "--gpu", "a100-40", "--torch", s.Stack["torch"], "--format", "json",
		})
		require.InEpsilon(t, s.Allocated, planned, 0.03, s.File)
	}
}

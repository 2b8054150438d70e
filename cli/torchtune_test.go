package cli

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models/all"
)

// TestPlansOfTorchtunesFilesAreWhatItsRecipesNeed plans example files of torchtune's repository with small models, and
// compares the allocated bytes with the third step of its own recipes ("make torchtune-files"): to 3 %. torchtune keeps
// fp32 copies of its rotary positions; the plan has the copies of transformers.
func TestPlansOfTorchtunesFilesAreWhatItsRecipesNeed(t *testing.T) {
	f, err := os.Open("testdata/torchtune.jsonl.gz")
	require.NoError(t, err)
	defer f.Close()
	lines, err := gzip.NewReader(f)
	require.NoError(t, err)
	n := 0
	for s := bufio.NewScanner(lines); s.Scan(); n++ {
		var r struct {
			File, Text string
			Stack      map[string]string
			Config     json.RawMessage
			Allocated  int64
		}
		require.NoError(t, json.Unmarshal(s.Bytes(), &r))
		folder := t.TempDir()
		config, file := filepath.Join(folder, "config.json"), filepath.Join(folder, "train.yaml")
		require.NoError(t, os.WriteFile(config, r.Config, 0o600))
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(r.Text, "{folder}", folder)), 0o600))
		a, stdout, stderr := desk()
		a.models = sync.OnceValue(all.Models)
		require.Equal(t, exitFine, run(t.Context(), a, []string{
			"plan", file, "--model", "hf:" + config, "--gpu", "a100-40", "--torch", r.Stack["torch"], "--format", "json",
		}), "%s: %s", r.File, stderr)
		var have report.Report
		require.NoError(t, json.Unmarshal(stdout.Bytes(), &have))
		require.InEpsilon(t, r.Allocated, have.Points[0].Estimate.Allocated.Bytes, 0.03, r.File)
	}
	require.Equal(t, 4, n)
}

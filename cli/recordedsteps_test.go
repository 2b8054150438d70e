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

// fileStep is a step of an example file of a trainer with a small model, as the trainer's own code ran it on a simulated
// A100.
type fileStep struct {
	File, Text string
	Stack      map[string]string
	Config     json.RawMessage
	Allocated  int64
}

// write writes the file, and below its folder the model's configuration under a name; it returns their paths.
func (s fileStep) write(t *testing.T, name string) (file, config string) {
	t.Helper()
	folder := t.TempDir()
	file, config = filepath.Join(folder, "train.yaml"), filepath.Join(folder, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(config), 0o700))
	require.NoError(t, os.WriteFile(config, s.Config, 0o600))
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(s.Text, "{folder}", folder)), 0o600))
	return file, config
}

// recordedSteps returns the lines of a compressed file of steps that trainers' own code ran.
func recordedSteps[T any](t *testing.T, file string) (steps []T) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	text, err := gzip.NewReader(f)
	require.NoError(t, err)
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		var s T
		require.NoError(t, json.Unmarshal(lines.Bytes(), &s))
		steps = append(steps, s)
	}
	require.NoError(t, lines.Err())
	return steps
}

// allocatedOfPlan returns the allocated bytes that a plan with JSON as its output estimates for its first batch.
func allocatedOfPlan(t *testing.T, args []string) int64 {
	t.Helper()
	a, stdout, stderr := desk()
	a.models = sync.OnceValue(all.Models)
	require.Equal(t, exitFine, run(t.Context(), a, args), stderr)
	var have report.Report
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &have))
	return have.Points[0].Estimate.Allocated.Bytes
}

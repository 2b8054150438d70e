package cli

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models/all"
)

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

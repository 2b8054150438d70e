package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkPlanProcess is what a user waits for: the process of a plan, which
// should take at most 30 ms and 64 MiB.
func BenchmarkPlanProcess(b *testing.B) {
	binary := filepath.Join(b.TempDir(), "vprof")
	out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(b, err, string(out))
	var memory int64
	for b.Loop() {
		cmd := exec.Command(binary, "plan", "--model", "redimnet-b2", "--stage", "full")
		require.NoError(b, cmd.Run())
		memory = max(memory, peakMemory(cmd.ProcessState))
	}
	if memory > 0 {
		b.ReportMetric(float64(memory)/(1<<20), "MiB")
	}
}

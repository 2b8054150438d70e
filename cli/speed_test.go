package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkProcess is what a user waits for: a process from start to end, built as by make build. A plan should take at
// most 30 ms and 64 MiB; version shows what of it is the start.
func BenchmarkProcess(b *testing.B) {
	binary := filepath.Join(b.TempDir(), "vprof")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(b, err, string(out))
	for _, line := range []string{
		"version",
		"plan --model redimnet-b2",
		"plan --model redimnet-b2 --stage full",
	} {
		b.Run(line, func(b *testing.B) {
			var memory int64
			var busy time.Duration
			for b.Loop() {
				cmd := exec.Command(binary, strings.Fields(line)...)
				require.NoError(b, cmd.Run())
				memory = max(memory, peakMemory(cmd.ProcessState))
				busy += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			}
			b.ReportMetric(float64(busy.Nanoseconds())/float64(b.N), "cpu-ns/op")
			if memory > 0 {
				b.ReportMetric(float64(memory)/(1<<20), "MiB")
			}
		})
	}
}

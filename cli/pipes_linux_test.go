package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models/all"
)

// A pipe may never come to its end: while any file of a command line is read, a signal ends the process.
func TestEveryFileThatIsReadCountsAsInput(t *testing.T) {
	for _, line := range []string{
		"report FIFO.json", "diagnose FIFO.json", "compare FIFO.json FIFO.json", "accuracy FIFO.json",
		"accuracy --share x.jsonl FIFO.json",
		"calibrate FIFO.json", "calibrate show FIFO.json",
		"fleet plan FIFO.yaml", "fleet status FIFO.yaml", "plan FIFO.yaml",
		"plan --json-request FIFO.json", "plan --model hf:FIFO.json", "plan --model FIFO.pt2",
		"plan --model gpt2 --gpu-spec FIFO.json", "plan --model gpt2 --coefficients FIFO.json",
		"plan --model gpt2 --batch 1 --lengths FIFO.csv", "smoke --model gpt2 --batch 1 --watch-baseline FIFO.json",
		"smoke --model gpt2 --config-path FIFO.yaml --map batch=a", "sweep --model gpt2 --batch 1 --resume FIFO.json",
		"fit --model gpt2 --apply --config-path FIFO.yaml --map batch=a",
	} {
		pipe := filepath.Join(t.TempDir(), "FIFO")
		for _, suffix := range []string{".json", ".yaml", ".csv", ".pt2"} {
			require.NoError(t, syscall.Mkfifo(pipe+suffix, 0o600))
		}
		t.Chdir(t.TempDir())
		line = strings.ReplaceAll(line, "FIFO", pipe)
		a, _, stderr := desk()
		a.models = all.Models
		ended := make(chan exitCode)
		go func() { ended <- run(t.Context(), a, strings.Fields(line)) }()
		require.Eventually(t, input.IsReading, 5*time.Minute, time.Millisecond, "%s\n%s", line, stderr)
		for open := true; open; { // all that are opened for reading come to their end
			for _, suffix := range []string{".json", ".yaml", ".csv", ".pt2"} {
				if w, err := os.OpenFile(pipe+suffix, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
					require.NoError(t, w.Close())
				}
			}
			select {
			case <-ended:
				open = false
			case <-time.After(time.Millisecond):
			}
		}
		require.False(t, input.IsReading(), line)
	}
}

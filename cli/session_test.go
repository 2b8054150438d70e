//go:build cuda && linux && cgo

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/fakecuda"
	"github.com/vprof/vprof/tools/sample"
)

// The six commands of docs/gpu.md run as they are written. What make does besides is tested
// where it is: here it only has to know the targets.
func TestTheFirstSessionRunsAsWritten(t *testing.T) {
	page, err := os.ReadFile("../docs/gpu.md")
	require.NoError(t, err)
	_, session, found := strings.Cut(string(page), "## The first session")
	require.True(t, found)
	commands := strings.Split(strings.TrimSpace(strings.Split(session, "```")[1]), "\n")
	require.Len(t, commands, 6)
	unknown := device.GPU{
		Product: "NVIDIA Future X1", Capability: 121, SMs: 48, ThreadsPerSM: 1536, BoostMHz: 3000,
		Memory: 16 << 30, Context: 300 * mib,
	}
	for _, gpu := range []device.GPU{catalogGPU(t, "rtx-4060"), catalogGPU(t, "rtx-4090"), unknown} {
		if !sample.All() && gpu.Product != unknown.Product {
			continue
		}
		setup := fakecuda.Genuine(gpu)
		setup.Quiet = true
		setup.GPUs[0].Module = 8 * mib
		driver := setup.Driver(t)
		dir := t.TempDir()
		for _, line := range commands {
			words := strings.Fields(line)
			if words[0] == "make" {
				out, err := exec.Command("make", append([]string{"-C", "..", "-n"},
					words[1:]...)...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				continue
			}
			require.Equal(t, "./vprof", words[0])
			cmd := vprof(t, driver, words[1:]...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s on %s: %s", line, gpu.Product, out)
			require.NotContains(t, string(out), "simulated "+gpu.Product, line)
			if words[1] == "sweep" {
				require.Regexp(t,
					`device within ±5 % of the estimate at (\d+) of \d+; largest batch predicted \d+, found \d+\.`,
					string(out))
			}
		}
		require.FileExists(t, filepath.Join(dir, "coefficients.yaml"))
		requireBalanced(t, driver)
	}
}

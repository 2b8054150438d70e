//go:build cuda && linux && cgo

package cuda_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/vprof/vprof/profiler/device/nvml"
)

// A program with this package asks the dynamic loader for nothing of NVIDIA's:
// a forgotten jump would show here, and nowhere else until it is called.
func TestNothingOfNVIDIAIsLinked(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	binary, err := elf.Open(self)
	require.NoError(t, err)
	defer binary.Close()
	symbols, err := binary.ImportedSymbols()
	require.NoError(t, err)
	require.NotEmpty(t, symbols)
	for _, s := range symbols {
		require.False(t, strings.HasPrefix(s.Name, "cu") && s.Name[2] >= 'A' && s.Name[2] <= 'Z', s.Name)
		require.False(t, strings.HasPrefix(s.Name, "nvml"), s.Name)
	}
	libraries, err := binary.ImportedLibraries()
	require.NoError(t, err)
	for _, l := range libraries {
		require.NotContains(t, l, "cuda")
		require.NotContains(t, l, "nvidia")
	}
}

// So it starts where symbols are bound at once, and where there is no driver.
func TestItStartsEverywhere(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = []string{"LD_BIND_NOW=1", "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

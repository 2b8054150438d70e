package cli

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
)

// The result says why the default GPU is simulated, also if a command's own flag names another.
func TestTheDefaultGPUIsNamedWithItsReason(t *testing.T) {
	gpu, err := device.Lookup(defaultGPU)
	require.NoError(t, err)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"no --gpu given", []string{"--", "python", "x.py", "--gpus", "2"}},
		{"the command's own; write it before --", []string{"--", "python", "x.py", "--gpu", "h100"}},
		{"the command's own; write it before --", []string{"--", "python", "x.py", "--gpu=h100"}},
		{"", []string{"--gpu", "t4", "--", "python", "x.py", "--gpu", "h100"}},
	} {
		cmd, f := &cobra.Command{}, gpuFlags{}
		f.register(cmd, "GPU")
		require.NoError(t, cmd.ParseFlags(c.args))
		got := f.defaultGPU([]device.GPU{gpu})
		require.Contains(t, got, c.want)
		require.Equal(t, c.want == "", got == "", got)
	}
}

package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/device"
)

// plan --auto is about this machine's GPU, less what other processes hold of it.
func TestPlanForTheGPUOfThisMachine(t *testing.T) {
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	for others, want := range map[int64]exitCode{0: exitFine, bytesize.GiB: exitFine, gpu.Memory: exitNegative} {
		var out, errors bytes.Buffer
		a := newSystemApp()
		a.stdout, a.stderr = &out, &errors
		a.detect = func(int) (localGPU, error) { return localGPU{gpu, others}, nil }
		require.Equal(t, want, run(t.Context(), a,
			[]string{"plan", "--model", "redimnet-b2", "--batch", "4", "--auto"}), errors.String())
		require.NotContains(t, out.String(), "judged on")
		if want == exitFine {
			require.Contains(t, out.String(), bytesize.Format(gpu.Memory-others))
		}
	}
	a := newSystemApp()
	a.stderr = new(bytes.Buffer)
	require.Equal(t, exitUsage, run(t.Context(), a,
		[]string{"plan", "--model", "redimnet-b2", "--auto", "--gpu", "t4"}))
}

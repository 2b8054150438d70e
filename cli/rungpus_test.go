package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
)

// told is a command that tells what the hook would: the GPU is seen to be used a MiB more at
// the end than PyTorch holds and the driver takes.
const told = `cat > $VPROF_HOOK/trace-1 <<END
{"program": {
"Instructions": [{"Kind": "alloc"}, {"Kind": "mark"}, {"Kind": "free"}], "Buffers": [{"Bytes": 2097152, "Class": "temporaries"}],
"Phases": [{"Step": 0, "Name": "forward"}], "Sites": [{"Where": "train.py:7:main"}]}}
END
cat > $VPROF_HOOK/events.jsonl <<END
{"event": "torch", "pid": 1, "version": "2.15.0", "cuda": "13.2", "available": true, "python": ""}
{"event": "mark", "pid": 1, "at": 20, "phase": "forward", "peak_allocated": 2097152, "reserved": 2097152, "used": 106954752}
{"event": "end", "pid": 1, "reason": "steps", "steps": [1], "trace": "$VPROF_HOOK/trace-1", "allocated": 2097152, "reserved": 2097152, "requested": 2097152}
END
echo "on $CUDA_VISIBLE_DEVICES, stubs $VPROF_STUBS"
`

// --both simulates the GPU of this machine, uses it, and says in a line how far apart they are.
func TestRunOnTheGPUOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("stubs are for Linux")
	}
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "train.sh")
	require.NoError(t, os.WriteFile(script, []byte(told), 0o600))
	t.Setenv("CUDA_VISIBLE_DEVICES", "4,7")
	t.Setenv("COLUMNS", "1000")
	a, stdout, stderr := desk()
	asked := -1
	a.detect = func(index int) (localGPU, error) { asked = index; return localGPU{gpu, 1 << 20}, nil }
	both := []string{"run", "--both", "--device", "cuda:1", "--", "sh", script}
	require.Equal(t, exitFine, run(t.Context(), a, both), stderr)
	require.Equal(t, 1, asked)
	require.Regexp(t, "on , stubs .*stubs-", stdout, "the GPU of the simulation is the only one")
	require.Contains(t, stdout.String(), "on 7, stubs \n")
	require.Contains(t, stdout.String(),
		"NVIDIA GeForce RTX 3060, PyTorch 2.15.0: allocated 2.00 MiB simulated, 2.00 MiB measured (+0.00 %); reserved")
	require.Regexp(t, `device \d+.00 MiB simulated, 101.00 MiB measured`, stdout)

	for _, args := range [][]string{
		{"--device", "cuda:1", "--gpu", "t4"},
		{"--both", "--gpu-memory", "8GiB"},
		{"--both", "--device", "sim:t4"},
		{"--device", "cuda", "--gpus", "2"},
		{"--device", "cuda:-1"},
		{"--gpu", "all"},
		{"--gpus", "2", "--rank", "2"},
		{"--rank", "first"},
		{"--gpu", "t4,h100", "--record", "x.vprof"},
	} {
		require.Equal(t, exitUsage, run(t.Context(), a,
			append(append([]string{"run"}, args...), "--", "sh", script)), args)
	}
	a.detect = func(int) (localGPU, error) { return localGPU{}, noGPUError{"no driver", instead} }
	require.Equal(t, exitNoGPU, run(t.Context(), a, []string{"run", "--device", "cuda:0", "--", "true"}))
	require.Contains(t, stderr.String(), "no usable GPU: no driver")
}

// Several GPUs and ranks are rows of one table.
func TestRunsOfSeveralGPUsAndRanks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("stubs are for Linux")
	}
	script := filepath.Join(t.TempDir(), "train.sh")
	require.NoError(t, os.WriteFile(script, []byte(told), 0o600))
	a, stdout, stderr := desk()
	all := []string{"run", "--gpu", "t4,h100", "--gpus", "2", "--rank", "all", "-q", "--", "sh", script}
	require.Equal(t, exitFine, run(t.Context(), a, all), stderr)
	require.Regexp(t, `(?s)t4, simulated +0 .*t4, simulated +1 .*h100, simulated +0 .*h100, simulated +1 `, stdout)
	require.NotContains(t, stdout.String(), "measured")
}

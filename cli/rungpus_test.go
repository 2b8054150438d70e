package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner/steptime"
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
{"event": "mark", "pid": 1, "at": 20, "phase": "forward", "peak_allocated": 2097152, "reserved": 2097152, "peak_reserved": 2097152, "used": 106954752}
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
	a.detect = func(int) (localGPU, error) { return localGPU{}, noGPUError{"no driver", simulateHint} }
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

// A step that "vprof run --device" timed on a GPU corrects what "vprof time" says of it, through a coefficients file.
func TestATimedScriptCorrectsTheTimesOfItsGPU(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the hook is for Linux")
	}
	t.Chdir(t.TempDir())
	const timed = `{"event": "timed", "pid": 1, "times": [9, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.5], "loading": [0.25]}`
	require.NoError(t, os.WriteFile("train.sh", []byte(told+"echo '"+timed+"' >> $VPROF_HOOK/events.jsonl\n"), 0o600))
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	a, stdout, stderr := desk()
	a.models = sync.OnceValue(all.Models)
	a.detect = func(int) (localGPU, error) { return localGPU{gpu, 1 << 20}, nil }
	vprof := func(args ...string) string {
		stdout.Reset()
		require.Equal(t, exitFine, run(t.Context(), a, args), stderr)
		return stdout.String()
	}
	said := vprof("run", "--device", "cuda:0", "--export", "run.json", "--", "sh", "train.sh")
	require.Contains(t, said, "a step took 700 ms (median of ten or more, 500 to 9000; measured), and 250 ms more")

	said = vprof("calibrate", "8=run.json", "--model", "bdslw-spoter")
	require.Contains(t, said, "fitted to the times of 1 step that")
	require.Contains(t, said, "not determined: memory: batch 8 alone cannot tell")
	estimate := []string{"time", "--model", "bdslw-spoter", "--gpu", "rtx-3060", "--batch", "8", "--format", "csv"}
	require.NotContains(t, vprof(estimate...), ",0.7,")
	require.Contains(t, vprof(slices.Concat(estimate, []string{"--coefficients", "coefficients.yaml"})...), ",0.7,")

	for file, reason := range map[string]string{
		"run.json":   "does not name a model; give the batch size as BATCH=run.json",
		"8=run.json": "the run is of rtx-3060, not of t4; leave out --gpu",
	} {
		args := []string{"calibrate", file, "--model", "bdslw-spoter", "--gpu", "t4"}
		require.Equal(t, exitUsage, run(t.Context(), a, args), file)
		require.Contains(t, stderr.String(), reason)
	}
}

// The host of this machine is measured by a Python that trains under the stubs, and scales what launches take.
func TestCalibrateHost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("stubs are for Linux")
	}
	t.Chdir(t.TempDir())
	const steps = "for s in 9 9 9 9 .046 .046 .046 .046 .04703 .04703 .05 .05 .05 .05; do echo $s; done\n"
	require.NoError(t, os.WriteFile("python", []byte("#!/bin/sh\n"+told+steps), 0o700))
	a, stdout, stderr := desk()
	a.models = sync.OnceValue(all.Models)
	require.Equal(t, exitFine, run(t.Context(), a, []string{"calibrate", "--host", "--python", "./python"}), stderr)
	require.Regexp(t, `host +2\.00 times +± 0\.\d+ times +ResNet-50 on this machine: 47\.0 ms of processor time`,
		stdout)
	require.Contains(t, stdout.String(), "written to coefficients.yaml")
	stdout.Reset()
	require.Equal(t, exitFine, run(t.Context(), a, []string{
		"time", "--model", "llama-tiny", "--gpu", "h100", "--batch", "1", "--format", "json",
		"--coefficients", "coefficients.yaml",
	}), stderr)
	require.Empty(t, stderr.String(), "nothing is missed of a file of the host alone")
	dispatch := steptime.DefaultEfficiency().Dispatch.Value
	require.Regexp(t, fmt.Sprintf(`"speed:dispatch",\s+"value": %.8f`, 2*dispatch), stdout, "twice the table's")

	for reason, args := range map[string][]string{
		"there is no Python interpreter ./nowhere; name yours with --python": {"--python", "./nowhere"},
		"leave out run.json": {"run.json"},
		"true cannot train on the simulated GPU (no cuda); name a Python that has PyTorch": {"--python", "true"},
	} {
		require.Equal(t, exitUsage, run(t.Context(), a, append([]string{"calibrate", "--host"}, args...)), reason)
		require.Contains(t, stderr.String(), reason)
	}
}

//go:build cuda && linux && cgo

package cli

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/tools/fakecuda"
	"github.com/vprof/vprof/tools/sample"
)

// requireSentence checks that an output is one line of vprof's and not an error of Go's runtime or a bare code.
func requireSentence(t *testing.T, stderr string, of ...any) {
	t.Helper()
	require.Regexp(t, `^vprof: [^\n]+\n$`, stderr, of...)
	for _, bare := range []string{"internal error", "runtime error", "%!"} {
		require.NotContains(t, stderr, bare, of...)
	}
}

// Whichever call of the driver fails, with a refusal, without memory, with a lost device or with a code that nobody
// knows: the command says it in a sentence, and nothing is left on the GPU.
func TestWhicheverCallFailsTheCommandSaysSo(t *testing.T) {
	gpu := catalogGPU(t, "rtx-5060-ti")
	args := []string{"sweep", "--model", "toy", "--batch", "8,16", "--device", "cuda:0", "--warm-up", "0", "--repeat", "1"}
	driver := fakecuda.Simulated(gpu).Restart(t)
	require.Equal(t, exitFine, command(t, args...).code)
	calls := driver.Calls(t)
	every := max(1, len(calls)/40)
	if sample.All() {
		every = max(1, len(calls)/100)
	}
	for _, result := range []int{1, 2, 214, 999, 12345} {
		for i := result % every; i < len(calls); i += every {
			setup := fakecuda.Simulated(gpu)
			setup.Fail = []string{fakecuda.FailNth(i+1, result)}
			driver := setup.Restart(t)
			got := command(t, args...)
			what := fmt.Sprintf("call %d, %s, returns %d: %s", i+1, calls[i], result, got.stderr)
			require.Contains(t, []exitCode{exitFine, exitFailure, exitNoGPU}, got.code, what)
			if got.code != exitFine {
				requireSentence(t, got.stderr, what)
			}
			s := driver.Stats(t)
			require.Zero(t, s.NVML, what)
			if calls[i] != "cuDevicePrimaryCtxRelease" { // which only the end of the process takes back
				require.Zero(t, s.Alive(), what)
				require.Zero(t, s.Used, what)
			}
		}
	}
}

// A call that does not return is named, and ends the process in the end.
func TestACallThatHangsIsNamedAndEndsTheProcess(t *testing.T) {
	t.Setenv("VPROF_TEST_PATIENCE", "400ms")
	for _, name := range []string{"cuInit", "cuMemAlloc", "cuStreamSynchronize", "nvmlDeviceGetMemoryInfo_v2"} {
		setup := fakecuda.Simulated(catalogGPU(t, "rtx-5060-ti"))
		setup.Hang = name + ":1"
		cmd := vprof(t, setup.Driver(t), "sweep", "--model", "toy", "--batch", "8", "--device", "cuda:0")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		var ended *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &ended, name)
		require.Equal(t, int(exitFailure), ended.ExitCode())
		lines := slices.Collect(strings.Lines(stderr.String()))
		require.Len(t, lines, 2, stderr.String())
		require.Contains(t, lines[0], name+" has not returned for 200ms: the GPU is busy, or it or its driver hangs")
		require.Contains(t, lines[1], name+" has not returned for 400ms: the GPU or its driver hangs; the kernel log")
	}
}

// Memory that another process takes in the middle of a run is told from the run's own, whether or not the run ends
// there.
func TestMemoryTakenInTheMiddleIsTheOthers(t *testing.T) {
	gpu := sized(catalogGPU(t, "rtx-5060-ti"), 4096*mib)
	args := []string{"sweep", "--model", "toy", "--batch", "64", "--device", "cuda:0", "--warm-up", "0", "--repeat", "1"}
	driver := fakecuda.Genuine(gpu).Restart(t)
	require.Equal(t, exitFine, command(t, args...).code)
	calls := driver.Calls(t)
	opened := slices.Index(calls, "cuEventRecord")
	for taken, left := range map[int64]string{100 * mib: "", 4000 * mib: "with 0 B left"} {
		setup := fakecuda.Genuine(gpu)
		setup.Take = &fakecuda.Taking{After: opened + 20, Bytes: taken}
		driver := setup.Restart(t)
		got := command(t, args...)
		require.Equal(t, exitFine, got.code, got.stderr)
		require.Contains(t, got.stdout, left)
		require.Contains(t, got.stdout, "cuda:0 is also used by python3 (9999), which holds")
		requireBalanced(t, driver)
	}

	// Whenever all is taken before the first batch, too.
	for after := 10; after < opened; after += 20 {
		setup := fakecuda.Genuine(gpu)
		setup.Take = &fakecuda.Taking{After: after, Bytes: gpu.Memory}
		driver := setup.Restart(t)
		got := command(t, args...)
		if got.code != exitFine {
			requireSentence(t, got.stderr, after)
			require.Contains(t, got.stderr, "other processes fill it", after)
		}
		requireBalanced(t, driver)
	}
}

// Values of NVML that no GPU has are left out and named; what it says of memory is then not believed.
func TestWhatNVMLCannotMeanIsNotBelieved(t *testing.T) {
	setup := fakecuda.Genuine(catalogGPU(t, "rtx-5060-ti"))
	setup.GPUs[0].Others = []fakecuda.Process{{PID: 5, Name: "python3", Used: 100 * mib}}
	setup.Lies = "sensors"
	setup.Restart(t)
	samples, stderr := watchDriver(t, exitFine, "--once")
	require.Nil(t, samples[0].Celsius)
	require.Nil(t, samples[0].Watts)
	require.Nil(t, samples[0].GPUPercent)
	require.Nil(t, samples[0].SMMHz)
	require.EqualValues(t, 100*mib, samples[0].Used)
	requireSentence(t, stderr)
	require.Contains(t, stderr, "gpu 0: nvmlDeviceGetUtilizationRates reports 4000000000, ")
	require.Contains(t, stderr, "nvmlDeviceGetTemperature reports 4294967291")
	require.Contains(t, stderr, ", which no GPU has; such values are left out\n")

	for lie, says := range map[string]string{
		"total": "nvmlDeviceGetMemoryInfo_v2 reports impossible memory: 0 bytes in use and 0 reserved of 0",
		"count": "NVML (nvmlDeviceGetCount) reports the impossible number of 4000000000 GPUs",
	} {
		setup.Lies = lie
		setup.Restart(t)
		require.Contains(t, command(t, "monitor", "--once").stderr, says)
		swept(t, "--model", "toy", "--batch", "8", "--device", "cuda:0")
	}

	setup.Lies = "memory"
	driver := setup.Restart(t)
	samples, stderr = watchDriver(t, exitFine, "--interval", "20ms", "--for", "50ms")
	require.Contains(t, stderr, "gpu 0 is lost: nvmlDeviceGetMemoryInfo_v2 reports ")
	require.True(t, slices.ContainsFunc(samples, func(s monitor.Sample) bool { return s.Error != "" }))
	r := swept(t, "--model", "toy", "--batch", "8", "--device", "cuda:0")
	require.True(t, r.Points[0].Run.OthersAssumed)
	require.Zero(t, r.Points[0].Run.Process)
	requireBalanced(t, driver)
}

//go:build cuda && linux && cgo

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/tools/fakecuda"
)

// decoded returns the JSON that a command line ends with, which must have the code.
func decoded[T any](t testing.TB, code exitCode, args ...string) *T {
	t.Helper()
	got := command(t, append(args, "--format", "json")...)
	require.Equal(t, code, got.code, got.stderr)
	var v T
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &v))
	return &v
}

// Each check of a smoke test is run on the GPU, and is there what it is when
// simulated, but for what only a GPU knows: 8 MiB of kernels.
func TestASmokeTestRunsOnTheGPU(t *testing.T) {
	setup := fakecuda.Genuine(sized(catalogGPU(t, "rtx-5060-ti"), 1024*mib))
	setup.GPUs[0].Module = 8 * mib
	args := []string{"smoke", "--model", "toy", "--batch", "8", "--longest", "seq-len=2"}
	driver := setup.Restart(t)
	measured := decoded[report.Smoke](t, exitFine, append(args, "--device", "cuda:0")...)
	requireBalanced(t, driver)
	require.Greater(t, driver.Stats(t).Peak, uint64(setup.GPUs[0].Context+300*mib),
		"it all was there: 64 + 15 * 8 * 2 MiB and the context")
	simulated := decoded[report.Smoke](t, exitFine,
		append(args, "--device", "sim:rtx-5060-ti", "--gpu-memory", "1GiB")...)
	require.Equal(t, "cuda:0", measured.Device.Name)
	require.False(t, measured.Device.Simulated)
	require.Len(t, measured.Checks, len(simulated.Checks))
	for i, c := range measured.Checks {
		require.False(t, c.Simulated, c.Name)
		want := simulated.Checks[i]
		want.Simulated, want.Device = false, want.Device+8*mib
		want.Need = want.Device // what was measured has no upper end
		require.Equal(t, want, c)
	}

	// The same is what --profile does, and the table says nothing of simulated.
	setup.Restart(t)
	table := command(t, append(args, "--profile")...)
	require.Equal(t, exitFine, table.code)
	require.NotContains(t, table.stdout, "simulated NVIDIA")
}

// 64 + 15 MiB a sample, the context and the kernels must fit beside 400 MiB of
// another process, within 85 % of what it leaves.
func TestASmokeTestSeesWhoElseUsesTheGPU(t *testing.T) {
	setup := fakecuda.Genuine(sized(catalogGPU(t, "rtx-5060-ti"), 1024*mib))
	setup.GPUs[0].Others = []fakecuda.Process{{PID: 4321, Name: "python3", Used: 400 * mib}}
	driver := setup.Restart(t)
	s := decoded[report.Smoke](t, exitNegative, "smoke", "--model", "toy", "--batch", "30", "--device", "cuda:0")
	requireBalanced(t, driver)
	require.EqualValues(t, 400*mib, s.Budget.OtherProcessBytes)
	require.InDelta(t, 0.85*624*mib, s.Limit, 1)
	require.Equal(t, []report.Warning{{
		What: "cuda:0 is also used by python3 (4321), which holds 400.00 MiB",
		Hint: "what fits depends on it; end it and try again to be sure",
	}}, s.Warnings)
	require.Positive(t, s.LargestBatch)

	setup.Restart(t)
	smaller := decoded[report.Smoke](t, exitFine, "smoke", "--model", "toy", "--batch", jsonNumber(s.LargestBatch),
		"--device", "cuda:0")
	require.True(t, smaller.Safe)
	setup.GPUs[0].Others = nil
	setup.Restart(t)
	require.True(t, decoded[report.Smoke](t, exitFine, "smoke", "--model", "toy", "--batch", "30", "--device",
		"cuda:0").Safe)
}

func jsonNumber(n int) string {
	raw, _ := json.Marshal(n)
	return string(raw)
}

// Estimates know nothing of 600 MiB of kernels. What is recommended for a stage and for all of them was run on the GPU
// all the same, and is the largest that it holds.
func TestFitRecommendsOnlyWhatWasMeasured(t *testing.T) {
	gpu := sized(catalogGPU(t, "rtx-5060-ti"), 4096*mib)
	setup := fakecuda.Genuine(gpu)
	setup.GPUs[0].Module = 600 * mib
	driver := setup.Restart(t)
	f := decoded[report.Fit](t, exitFine, "fit", "--model", "toy", "--profile")
	requireBalanced(t, driver)
	require.Equal(t, "cuda:0", f.Devices[0].Name)
	estimated := decoded[report.Fit](t, exitFine, "fit", "--model", "toy", "--gpu", gpu.Name, "--gpu-memory", "4GiB")

	limit := int64(0.85 * float64(gpu.Memory))
	overall, ok := f.Overall("cuda:0")
	require.True(t, ok)
	recommended := 0
	for _, c := range f.Choices {
		if c.Recommended {
			recommended++
		}
		if !c.Recommended && !c.SameConfiguration(overall) {
			continue
		}
		require.NotNil(t, c.Run, c.Case.String())
		require.False(t, c.Run.Simulated)
		require.True(t, c.Run.Fits)
		require.LessOrEqual(t, c.Run.Device, limit)
		// The next size that the search looks at is over the limit: up to 16 samples more, of 15 MiB,
		// of 10 with half activations, of 7 with checkpointing.
		require.Greater(t, c.Run.Device+16*15*mib, limit, c.Case.String())
		for _, e := range estimated.Choices {
			if e.Case.String() == c.Case.String() {
				require.Less(t, c.Batch, e.Batch)
			}
		}
	}
	require.Equal(t, 2, recommended, "one of each stage")

	// A choice of GPUs: the second is another one.
	setup.GPUs = append(setup.GPUs, fakecuda.GPU{GPU: catalogGPU(t, "t4")})
	setup.Restart(t)
	second := decoded[report.Fit](t, exitFine, "fit", "--model", "toy", "--stage", "full", "--amp", "none",
		"--checkpointing=false", "--device", "cuda:1")
	require.Equal(t, "t4", second.Devices[0].GPU)
	require.Len(t, second.Choices, 1)
	require.False(t, second.Choices[0].Run.Simulated)
}

// Nothing is recommended that a GPU full of others does not hold.
func TestFitOnAGPUThatHoldsNothing(t *testing.T) {
	setup := fakecuda.Genuine(sized(catalogGPU(t, "rtx-5060-ti"), 512*mib))
	setup.GPUs[0].Module = 200 * mib
	driver := setup.Restart(t)
	f := decoded[report.Fit](t, exitNegative, "fit", "--model", "toy", "--stage", "full", "--profile")
	requireBalanced(t, driver)
	for _, c := range f.Choices {
		require.False(t, c.Recommended)
		require.Zero(t, c.Batch)
	}
}

// Whatever fails while fit and smoke measure: a code that says so, nothing left.
func TestFitAndSmokeGiveTheGPUBack(t *testing.T) {
	setup := fakecuda.Genuine(sized(catalogGPU(t, "rtx-5060-ti"), 1024*mib))
	for _, verb := range []string{"fit", "smoke"} {
		args := []string{verb, "--model", "toy", "--stage", "frozen", "--amp", "none", "--device", "cuda:0"}
		setup.Fail = nil
		driver := setup.Restart(t)
		require.Equal(t, exitFine, command(t, args...).code)
		calls := len(driver.Calls(t))
		require.Greater(t, calls, 100)
		for n := 1; n <= calls; n += 1 + calls/20 {
			setup.Fail = []string{fakecuda.FailNth(n, 719)}
			driver := setup.Restart(t)
			got := command(t, args...)
			require.Contains(t, []exitCode{exitFine, exitFailure, exitNoGPU}, got.code, got.stderr)
			require.NotContains(t, got.stderr, "internal error")
			require.Empty(t, driver.Violations(t))
			if s := driver.Stats(t); driver.Calls(t)[n-1] != "cuDevicePrimaryCtxRelease" {
				require.Zero(t, s.Alive())
				require.Zero(t, s.Used)
			}
		}
	}
	fakecuda.Setup{}.Restart(t)
	for _, verb := range []string{"fit", "smoke"} {
		got := command(t, verb, "--model", "toy", "--device", "cuda:0")
		require.Equal(t, exitNoGPU, got.code)
		require.Contains(t, got.stderr, "the driver shows no GPU")
		for _, wrong := range [][]string{
			{"--device", "cuda:x"},
			{"--device", "tpu:0"},
			{"--device", "cuda:0", "--gpu", "t4"},
			{"--device", "sim:t4", "--gpu", "t4"},
			{"--device", "sim:t4", "--auto"},
			{"--device", "sim:nobody"},
		} {
			require.Equal(t, exitUsage, command(t, append([]string{verb, "--model", "toy"}, wrong...)...).code, wrong)
		}
	}
}

// An interrupt while fit and smoke measure gives the GPU back, too.
func TestAnInterruptOfFitAndSmokeLeavesNothing(t *testing.T) {
	for _, verb := range []string{"fit", "smoke"} {
		driver := fakecuda.Genuine(catalogGPU(t, "rtx-5060-ti")).Driver(t)
		cmd := vprof(t, driver, verb, "--model", "redimnet-b2", "--stage", "full", "--device", "cuda:0")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return driver.Stats(t).Segments > 0 }, 5*time.Minute, time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		var ended *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &ended)
		require.Equal(t, int(exitInterrupted), ended.ExitCode(), stderr.String())
		require.Equal(t, "vprof: interrupted\n", stderr.String())
		requireBalanced(t, driver)
	}
}

// What ran on a driver that is none teaches nothing of a GPU, although it was measured as on one.
func TestMeasuredOnASimulatedDriverIsNoCalibration(t *testing.T) {
	fakecuda.Simulated(catalogGPU(t, "t4")).Restart(t)
	file, learned := filepath.Join(t.TempDir(), "sweep.json"), filepath.Join(t.TempDir(), "coefficients.yaml")
	r := swept(t, "--model", "toy", "--batch", "8,16,32,48,64", "--device", "cuda:0", "--export", file)
	require.Equal(t, "580.65.06 (simulated driver)", r.Devices[0].Driver)
	require.Equal(t, "13.0", r.Devices[0].CUDA)
	require.Equal(t, "GPU-fa000000-0000-0000-0000-000000000000", r.Devices[0].UUID)
	require.NotEmpty(t, r.Devices[0].Host)
	require.False(t, r.Points[0].Run.At.IsZero())
	got := command(t, "calibrate", file, "--output", learned)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "a simulated GPU, and shows nothing of a real one")
	require.NoFileExists(t, learned)
	c := decoded[report.Calibration](t, exitFine, "calibrate", file, "--output", learned, "--allow-simulated")
	require.True(t, c.Simulated)
	require.Contains(t, c.Stack, "driver-580.65.06")
	require.Less(t, c.Errors.After.Max, 1e-3)

	// Nor does a sweep go on with another driver.
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.ReplaceAll(raw, []byte("580.65.06"), []byte("570.10")), 0o600))
	got = command(t, "sweep", "--model", "toy", "--batch", "8,32,64", "--device", "cuda:0", "--resume", file)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, `its driver is "570.10 (simulated driver)", not "580.65.06 (simulated driver)"`)

	// Nor on another GPU of the kind.
	other := fakecuda.Simulated(catalogGPU(t, "t4"))
	other.GPUs[0].ID = 7
	other.Restart(t)
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	got = command(t, "sweep", "--model", "toy", "--batch", "8,32,64", "--device", "cuda:0", "--resume", file)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr,
		"its cuda:0 is the GPU GPU-fa000000-0000-0000-0000-000000000000, not "+
			"GPU-fa000000-0000-0000-0000-000000000700")
}

// Sweeps of cuda:0 on several machines stay apart, however they are put together.
func TestGPUsOfSeveralMachinesStayApart(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for i, gpu := range []string{"t4", "h100", "t4"} {
		setup := fakecuda.Simulated(catalogGPU(t, gpu))
		setup.GPUs[0].ID = i + 1
		setup.Restart(t)
		t.Setenv("VPROF_NODE", fmt.Sprintf("n%d", i+1))
		file := filepath.Join(dir, fmt.Sprintf("%d.json", i))
		swept(t, "--model", "toy", "--batch", "8,4096", "--device", "cuda:0", "--export", file)
		files = append(files, file)
	}
	names := []string{"n1/cuda:0", "n2/cuda:0", "n3/cuda:0"}
	for _, to := range []string{"csv", "json", "jsonl", "markdown"} {
		got := command(t, append([]string{"report", "--to", to}, files...)...)
		require.Equal(t, exitFine, got.code, got.stderr)
		for i, name := range names {
			want := map[string]string{
				"markdown": "cuda:0 of n" + fmt.Sprint(i+1),
			}[to]
			require.Contains(t, got.stdout, cmp.Or(want, name), to)
		}
	}
	html := filepath.Join(dir, "report.html")
	got := command(t, append([]string{"report", "-o", html, "--step=false"}, files...)...)
	require.Equal(t, exitFine, got.code, got.stderr)
	text, err := os.ReadFile(html)
	require.NoError(t, err)
	for _, want := range []string{
		"Tesla T4 with 14.74 GiB, cuda:0 of n1",
		"NVIDIA H100 80GB HBM3 with 79.19 GiB, cuda:0 of n2", "cuda:0 of n3",
	} {
		require.True(t, strings.Contains(string(text), want), want)
	}
	got = command(t, "calibrate", files[0], files[1], "--allow-simulated", "--dry-run")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "the runs have different GPUs: ")
	require.Contains(t, got.stderr, "cuda:0 of n1")
}

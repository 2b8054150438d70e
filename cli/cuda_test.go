//go:build cuda && linux && cgo

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/fakecuda"
	"github.com/vprof/vprof/tools/sample"
)

const mib = 1 << 20

// outcome is what a command line came to.
type outcome struct {
	code           exitCode
	stdout, stderr string
}

// command runs a command line in this process.
func command(t testing.TB, args ...string) outcome { return commandOn(t, os.DevNull, args...) }

// commandOn runs vprof with a folder of device files.
func commandOn(t testing.TB, dev string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	t.Setenv("COLUMNS", "1000") // lines are matched whole
	a := withToy(newSystemApp())
	a.stdin, a.stdout, a.stderr, a.deviceFolder = strings.NewReader(""), &stdout, &stderr, dev
	code := run(t.Context(), a, args)
	return outcome{code, stdout.String(), stderr.String()}
}

func catalogGPU(t testing.TB, name string) device.GPU {
	gpu, err := device.Lookup(name)
	require.NoError(t, err)
	return gpu
}

// sized returns a GPU with another amount of memory.
func sized(gpu device.GPU, memory int64) device.GPU {
	gpu.Memory = memory
	return gpu
}

// requireBalanced says that the driver has everything back and that no rule was broken.
func requireBalanced(t testing.TB, driver *fakecuda.Driver) {
	t.Helper()
	s := driver.Stats(t)
	require.Empty(t, driver.Violations(t))
	require.Zero(t, s.Alive(), "%+v", s)
	require.Zero(t, s.Used)
	require.Zero(t, s.Reclaimed)
	require.Zero(t, s.NVML)
}

// swept returns the report of a sweep that must end well.
func swept(t testing.TB, args ...string) *report.Report {
	t.Helper()
	got := command(t, append([]string{"sweep", "--format", "json"}, args...)...)
	require.Equal(t, exitFine, got.code, got.stderr)
	var r report.Report
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
	return &r
}

// plainly returns a report without what differs between a real and a simulated GPU: names, and how long things took.
func plainly(r *report.Report) *report.Report {
	for i := range r.Devices {
		d := &r.Devices[i]
		d.Name, d.Simulated, d.Driver, d.CUDA, d.UUID, d.MIG, d.Host = "device", false, "", "", "", false, ""
		d.Capability, d.SMs, d.ThreadsPerSM, d.MHz = "", 0, 0, 0
	}
	r.Agreement = nil
	if r.Largest != nil {
		r.Largest.Predicted = 0
	}
	for i := range r.Points {
		r.Points[i].Device = "device"
		u := r.Points[i].Run
		u.Simulated, u.Step, u.Process, u.At, u.WarmUp, u.Repeat = false, nil, 0, time.Time{}, 0, 0
		for j := range u.Phases {
			u.Phases[j].Seconds = 0
		}
	}
	return r
}

// What a sweep measures on the fake driver is what it simulates, to the byte: estimates, allocated, reserved and device
// bytes, classes, phases, and the allocation that fails. Of these GPUs the catalog has the bare context alone.
func TestMeasuredIsSimulatedToTheByte(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1793858400")
	for _, tt := range []struct {
		gpu  string
		args []string
	}{
		{"rtx-2080-ti", []string{"--model", "toy", "--batch", "4..1024x2"}},
		{"rtx-2080-ti", []string{"--model", "resnet18", "--stage", "head", "--batch", "8,64"}},
		{"a100-40", []string{"--model", "toy", "--batch", "4..4096x4", "--alloc-conf", "expandable_segments:True"}},
		{"rtx-5060-ti", []string{"--model", "redimnet-b2", "--stage", "full", "--batch", "16,64,128"}},
		{"rtx-3060", []string{
			"--model", "llama-tiny", "--amp", "bf16", "--batch", "2,16", "--alloc-conf",
			"max_split_size_mb:128,roundup_power2_divisions:4",
		}},
		{"h100-pcie", []string{"--model", "redimnet-b0", "--batch", "64", "--alloc-conf", "expandable_segments:True"}},
		{"v100-16", []string{
			"--model", "toy", "--batch", "16..1024x2", "--alloc-conf",
			"garbage_collection_threshold:0.6,per_process_memory_fraction:0.8",
		}},
	} {
		t.Run(tt.gpu+" "+strings.Join(tt.args[1:], " "), func(t *testing.T) {
			if !sample.All() && tt.args[1] != "toy" {
				t.Skip("a model that takes its time")
			}
			driver := fakecuda.Genuine(catalogGPU(t, tt.gpu)).Restart(t)
			measured := swept(t, append(tt.args, "--device", "cuda:0")...)
			requireBalanced(t, driver)
			require.False(t, measured.Devices[0].Simulated)
			for _, p := range measured.Points {
				require.False(t, p.Run.Simulated)
				if p.Run.Fits && len(tt.args[3]) > 0 && p.Run.Retries == 0 {
					// Segments are whole granules, so there is nothing else.
					require.Equal(t, p.Run.Reserved+p.Run.Context+p.Run.Kernels, p.Run.Device)
					require.Positive(t, p.Run.Process)
				}
			}
			simulated := swept(t, append(tt.args, "--device", "sim:"+tt.gpu)...)
			require.Equal(t, plainly(simulated), plainly(measured))
		})
	}
}

// The largest batch is the same on a GPU that is simulated and one that is
// measured, whatever its size; kernels and other processes take their part.
func TestTheLargestBatchIsTheSame(t *testing.T) {
	gpu := catalogGPU(t, "rtx-5060-ti")
	for _, conf := range []string{"expandable_segments:False", "expandable_segments:True"} {
		for _, memory := range []int64{1024 * mib, 1500 * mib, 3000*mib + 12345, 6 << 30, gpu.Memory} {
			driver := fakecuda.Genuine(sized(gpu, memory)).Restart(t)
			args := []string{"--model", "toy", "--batch", "4", "--find-max", "--alloc-conf", conf}
			measured := swept(t, append(args, "--device", "cuda:0")...)
			requireBalanced(t, driver)
			simulated := swept(t, append(args, "--device", "sim:"+gpu.Name, "--gpu-memory",
				strconv.FormatInt(memory, 10))...)
			require.InDelta(t, measured.Largest.Batch, measured.Largest.Predicted, 0)
			require.Equal(t, plainly(simulated).Largest, plainly(measured).Largest)
			require.Equal(t, measured.Largest.Batch+1, measured.Largest.FirstFailing, "neighbors, and both tried")
			tried := map[int]bool{}
			for _, p := range measured.Points {
				tried[p.Batch] = p.Run.Fits
			}
			require.True(t, tried[measured.Largest.Batch])
			require.Contains(t, tried, measured.Largest.FirstFailing)
		}
	}
}

// 900 MiB of another process and 50 of kernels are as if the GPU were smaller.
func TestOthersMakeTheGPUSmaller(t *testing.T) {
	gpu := catalogGPU(t, "rtx-5060-ti")
	setup := fakecuda.Genuine(sized(gpu, 3000*mib))
	setup.GPUs[0].Others = []fakecuda.Process{{PID: 4321, Name: "python3", Used: 900 * mib}}
	setup.GPUs[0].Module = 50 * mib
	driver := setup.Restart(t)
	args := []string{"--model", "toy", "--batch", "16", "--find-max"}
	measured := swept(t, append(args, "--device", "cuda:0", "--leave", "0")...)
	requireBalanced(t, driver)
	simulated := swept(t, append(args, "--device", "sim:"+gpu.Name, "--gpu-memory", "2050MiB")...)
	require.Equal(t, measured.Largest.Batch, measured.Largest.Predicted, "beside them and the kernels")
	measured.Largest.Predicted = 0
	require.Equal(t, simulated.Largest, measured.Largest)

	require.Contains(t, measured.Warnings, report.Warning{
		What: "cuda:0 is also used by python3 (4321), which holds 900.00 MiB",
		Hint: "what fits depends on it; end it and try again to be sure",
	})
	run := measured.Points[0].Run
	require.True(t, run.Shared)
	require.EqualValues(t, 900*mib, run.OtherProcessBytes)
	require.EqualValues(t, 50*mib, run.Kernels)
	require.Equal(t, run.Reserved+run.Context+50*mib, run.Device, "without the others")
	table := command(t, append([]string{"sweep", "--device", "cuda:0", "--leave", "0"}, args...)...)
	for _, want := range []string{
		"yes, beside others", "no, beside others", "measured GiB", "warning: cuda:0 is also used by python3 (4321)",
		"device: besides the reserved bytes the GPU shows 190.00 MiB of context and 50.00 MiB of synthetic " +
			"kernels, which the error leaves out; the 900.00 MiB of other processes are not included; NVML reports up to ",
	} {
		require.Contains(t, table.stdout, want)
	}
	errs, known := measured.Points[0].Error()
	require.True(t, known)
	require.InDelta(t, 0, errs, 1e-9, "estimates know nothing of the kernels")
}

// failure is a call of the driver, counted from zero, and the result with which it fails.
type failure struct{ n, result int }

// failuresOf returns failures of all calls with one result, and of every seventh call with each of four others.
func failuresOf(calls []string) (failures []failure) {
	for _, result := range []int{1, 2, 214, 719, 999} {
		for n := range calls {
			if result == 719 || n%7 == result%7 {
				failures = append(failures, failure{n, result})
			}
		}
	}
	return failures
}

// Whichever call of the driver fails, and with whatever: an exit code that says so, one sentence, nothing left.
func TestEveryDriverCallMayFail(t *testing.T) {
	setup := fakecuda.Genuine(sized(catalogGPU(t, "rtx-5060-ti"), 1024*mib))
	args := []string{
		"sweep", "--model", "toy", "--batch", "4,64", "--device", "cuda:0", "--warm-up", "0",
		"--repeat", "1",
	}
	for _, conf := range []string{"expandable_segments:False", "expandable_segments:True"} {
		args := append(args, "--alloc-conf", conf)
		driver := setup.Restart(t)
		require.Equal(t, exitFine, command(t, args...).code)
		requireBalanced(t, driver)
		calls := driver.Calls(t)
		require.Subset(t, calls, []string{
			"cuInit", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuStreamCreate",
			"cuModuleLoadDataEx",
			"cuModuleGetFunction", "cuMemGetInfo", "cuMemAlloc", "cuMemFree", "cuMemsetD8Async", "cuLaunchKernel",
			"cuStreamSynchronize",
			"cuMemcpyHtoD", "cuMemcpyDtoH", "cuEventCreate", "cuEventRecord", "cuEventSynchronize",
			"cuEventElapsedTime", "cuEventDestroy",
			"cuModuleUnload", "cuStreamDestroy", "cuDevicePrimaryCtxRelease",
		})
		if conf == "expandable_segments:True" {
			require.Subset(t, calls, []string{
				"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess",
				"cuMemRelease", "cuMemUnmap", "cuMemAddressFree",
			})
		}
		for _, f := range sample.OfSlow(failuresOf(calls)) {
			setup.Fail = []string{fakecuda.FailNth(f.n+1, f.result)}
			driver := setup.Restart(t)
			got := command(t, args...)
			call := calls[f.n]
			about := fmt.Sprintf("%s at %d fails with %d: exit %d, %s", call, f.n, f.result, got.code, got.stderr)
			require.Contains(t, []exitCode{exitFine, exitFailure, exitNoGPU}, got.code, about)
			require.NotContains(t, got.stderr, "internal error", about)
			if got.code != exitFine {
				require.Equal(t, 1, strings.Count(got.stderr, "vprof: "), about)
				require.Contains(t, got.stderr, "cu", about)
			}
			s := driver.Stats(t)
			require.Equal(t, uint64(1), s.Injected, about)
			require.Empty(t, driver.Violations(t), about)
			require.Zero(t, s.NVML, about)
			if call != "cuDevicePrimaryCtxRelease" {
				require.Zero(t, s.Alive(), about)
				require.Zero(t, s.Used, about)
			}
		}
		setup.Fail = nil
	}
}

// A launch may fail as well, wherever it is.
func TestEveryLaunchMayFail(t *testing.T) {
	setup := fakecuda.Genuine(catalogGPU(t, "t4"))
	args := []string{"sweep", "--model", "resnet18", "--stage", "head", "--batch", "2", "--device", "cuda:0"}
	driver := setup.Restart(t)
	require.Equal(t, exitFine, command(t, args...).code)
	launches := int(driver.Stats(t).Launches)
	require.Greater(t, launches, 100)
	for _, n := range []int{1, 2, launches / 2, launches} {
		setup.Fail = []string{fakecuda.FailCall("cuLaunchKernel", n, 700)}
		driver := setup.Restart(t)
		got := command(t, args...)
		require.Equal(t, exitFailure, got.code)
		require.Contains(t, got.stderr,
			"cuLaunchKernel: a kernel touched memory that is not its own (CUDA_ERROR_ILLEGAL_ADDRESS)")
		s := driver.Stats(t)
		require.Zero(t, s.Alive())
		require.Zero(t, s.Used)
	}
}

// vprof returns a process of its own with the fake driver.
func vprof(t *testing.T, driver *fakecuda.Driver, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "vprof") // as which the test binary is vprof
	require.NoError(t, os.Symlink(self, link))
	cmd := exec.Command(link, args...)
	cmd.Env = append(os.Environ(), driver.Env...)
	return cmd
}

// An interrupt ends a sweep with what there is, wherever it comes: exit 130, the
// points so far, nothing left on the GPU.
func TestAnInterruptLeavesNothing(t *testing.T) {
	// What is under way when the signal is sent, by the driver's counts.
	moments := map[string]func(fakecuda.Stats) bool{
		"opening":   func(s fakecuda.Stats) bool { return s.Calls > 0 },
		"memory":    func(s fakecuda.Stats) bool { return s.Segments+s.Mappings > 0 },
		"replaying": func(s fakecuda.Stats) bool { return s.Calls > 2000 },
	}
	for name, reached := range moments {
		for _, conf := range []string{"expandable_segments:False", "expandable_segments:True"} {
			t.Run(name+" "+conf, func(t *testing.T) {
				driver := fakecuda.Genuine(catalogGPU(t, "rtx-5060-ti")).Driver(t)
				file := filepath.Join(t.TempDir(), "run.json")
				cmd := vprof(t, driver, "sweep", "--model", "toy", "--batch", "4,8", "--device", "cuda:0",
					"--warm-up", "1000", "--repeat", "1000", "--alloc-conf", conf, "--export", file)
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				require.NoError(t, cmd.Start())
				require.Eventually(t, func() bool { return reached(driver.Stats(t)) }, 5*time.Minute, time.Millisecond)
				require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
				err := cmd.Wait()
				var ended *exec.ExitError
				require.ErrorAs(t, err, &ended)
				require.Equal(t, int(exitInterrupted), ended.ExitCode(), stderr.String())
				requireBalanced(t, driver)
				if name == "opening" {
					return // there is nothing to show yet
				}
				require.Contains(t, stdout.String(), "(interrupted)")
				raw, err := os.ReadFile(file)
				require.NoError(t, err)
				require.Contains(t, string(raw), `"reason": "interrupted"`)
			})
		}
	}
}

// A sweep whose GPU fails at the third batch size goes on from its file, and comes to what an unbroken one comes to.
func TestABrokenSweepGoesOn(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1793858400")
	setup := fakecuda.Genuine(sized(catalogGPU(t, "rtx-5060-ti"), 4096*mib))
	args := []string{
		"--model", "toy", "--batch", "4,8,16,512", "--find-max", "--device", "cuda:0", "--warm-up", "0",
		"--repeat", "1",
	}
	setup.Restart(t)
	whole := swept(t, args...)

	for _, name := range []string{"run.json", "run.jsonl"} {
		file := filepath.Join(t.TempDir(), name)
		args := append(args, "--resume", file)
		setup.Fail = []string{fakecuda.FailCall("cuEventRecord", 60, 214)}
		driver := setup.Restart(t)
		broken := command(t, append([]string{"sweep"}, args...)...)
		require.Equal(t, exitFailure, broken.code)
		require.Contains(t, broken.stderr, "uncorrectable memory error")
		require.Contains(t, broken.stdout, "not run: batch", "it shows what it has")
		require.Zero(t, driver.Stats(t).Alive())

		setup.Fail = nil
		driver = setup.Restart(t)
		rest := swept(t, args...)
		require.Equal(t, whole, rest)
		ran := driver.Stats(t).Calls
		driver = setup.Restart(t)
		require.Equal(t, whole, swept(t, args...), "and once more, without running anything")
		require.Less(t, driver.Stats(t).Calls, ran)
		require.EqualValues(t, 4*mib, driver.Stats(t).Peak-uint64(catalogGPU(t, "rtx-5060-ti").Context),
			"only the context and what a device is tried with")

		for flag, value := range map[string]string{"--stage": "frozen", "--device": "sim:t4"} {
			got := command(t, append(append([]string{"sweep"}, args...), flag, value)...)
			require.Equal(t, exitUsage, got.code)
			require.Contains(t, got.stderr, "the report cannot be continued")
		}
	}
}

// With memory behind it and kernels that run, every buffer's pattern is found again.
func TestVerifyTriesRealMemory(t *testing.T) {
	setup := fakecuda.Simulated(catalogGPU(t, "a100-40"))
	setup.Backed = true
	driver := setup.Restart(t)
	r := swept(t, "--model", "toy", "--stage", "frozen", "--batch", "2", "--device", "cuda:0", "--verify")
	// Weights and batch data; activations and temporaries of two steps.
	require.Equal(t, 2+2*2, r.Points[0].Run.Verified)
	requireBalanced(t, driver)
	setup.Restart(t)
	table := command(t, "sweep", "--model", "toy", "--stage", "frozen", "--batch", "2", "--device",
		"cuda:0", "--verify")
	require.Contains(t, table.stdout, "verified: the pattern of each tensor was read back, 6 at batch 2.")

	got := command(t, "sweep", "--model", "toy", "--device", "sim:t4", "--verify")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "sim:t4 is simulated and has no memory to write to")
}

// A driver that runs no kernels is simulated in every output, and has nothing to verify; one whose products are wrong
// is a failure, not a missing GPU. What software shares the GPU is said of it and with every result.
func TestASharedGPUSaysSo(t *testing.T) {
	setup := fakecuda.Simulated(catalogGPU(t, "t4"))
	setup.GPUs[0].MPS = true
	setup.Restart(t)
	for _, args := range [][]string{
		{"doctor"},
		{"sweep", "--model", "toy", "--batch", "8", "--device", "cuda:0"},
		{"smoke", "--model", "toy", "--batch", "8", "--device", "cuda:0"},
		{"fit", "--model", "toy", "--max-batch", "16", "--device", "cuda:0"},
	} {
		got := command(t, args...)
		require.Contains(t, got.stdout+got.stderr, "cuda:0 is shared through MPS", args)
	}
}

func TestADriverWithoutKernelsAndASickGPUAreNamed(t *testing.T) {
	fakecuda.Simulated(catalogGPU(t, "t4")).Restart(t)
	r := swept(t, "--model", "toy", "--batch", "8", "--device", "cuda:0")
	require.True(t, r.Devices[0].Simulated)
	require.True(t, r.Points[0].Run.Simulated)
	require.Contains(t, command(t, "sweep", "--model", "toy", "--batch", "8", "--device", "cuda:0").stdout,
		"simulated Tesla T4")
	got := command(t, "sweep", "--model", "toy", "--batch", "8", "--device", "cuda:0", "--verify")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "cuda:0: the driver cannot run kernels, so memory contents cannot be verified")
	require.Contains(t, command(t, "doctor").stdout,
		"cuda:0 is simulated: its driver runs no kernels")
	require.Contains(t, command(t, "doctor", "--format", "json").stdout, `"simulated": true`)

	fakecuda.Genuine(catalogGPU(t, "t4")).Restart(t)
	table := command(t, "sweep", "--model", "resnet18", "--stage", "head", "--batch", "2", "--device", "cuda:0").stdout
	require.Contains(t, table, "synthetic ms/step")
	require.Contains(t, table, "the median of 5 after 1 to warm up; clocks of cuda:0 down to 1500 MHz.")

	setup := fakecuda.Simulated(catalogGPU(t, "t4"))
	setup.Backed, setup.Sick = true, "gemm"
	driver := setup.Restart(t)
	got = command(t, "sweep", "--model", "toy", "--device", "cuda:0")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr,
		"cuda:0: the GPU gives wrong results: 1 of 2304 elements of a product in f32 are wrong; look for memory errors")
	requireBalanced(t, driver)
}

// A GPU on which other processes compute is used only if it is named, and 1 GiB of it stays free by default.
// Processes that only draw do not count.
func TestASweepLeavesRoomForOthers(t *testing.T) {
	gpu := sized(catalogGPU(t, "rtx-5060-ti"), 10000*mib)
	setup := fakecuda.Genuine(gpu)
	setup.GPUs[0].Others = []fakecuda.Process{{PID: 4321, Name: "python3", Used: 500 * mib}}
	driver := setup.Restart(t)
	args := []string{"--model", "toy", "--batch", "16", "--find-max"}
	got := command(t, append([]string{"sweep"}, args...)...)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr,
		"cuda:0 is used by python3 (4321), which holds 500.00 MiB; choose the GPU with --device cuda:0 to run next to that process (--leave sets the memory to keep free, default 1GiB), or simulate one with --device sim:NAME")
	requireBalanced(t, driver)

	filled := func(leave ...string) int64 {
		driver := setup.Restart(t)
		r := swept(t, append(append(args, "--device", "cuda:0"), leave...)...)
		require.Positive(t, r.Largest.Batch)
		return gpu.Memory - 500*mib - int64(driver.Stats(t).Peak)
	}
	require.GreaterOrEqual(t, filled(), int64(1024*mib))
	require.GreaterOrEqual(t, filled("--leave", "2GiB"), int64(2048*mib))
	require.Less(t, filled("--leave", "0"), int64(100*mib))
	require.Equal(t, exitUsage, command(t, append([]string{"sweep", "--leave", "some"}, args...)...).code)
	setup.GPUs[0].Others = nil
	setup.Restart(t)
	require.Equal(t, "cuda:0", swept(t, args...).Devices[0].Name, "nobody is there")
}

// In a container NVML lists nobody, and shows what they hold: a GPU is as occupied as by a
// process that is listed, for smoke and fit, too.
func TestOthersThatAreNotListedAreLeftAlone(t *testing.T) {
	setup := fakecuda.Genuine(sized(catalogGPU(t, "rtx-5060-ti"), 10000*mib))
	setup.GPUs[0].Others = []fakecuda.Process{{PID: 4321, Name: "python3", Used: 500 * mib}}
	setup.GPUs[0].Unlisted = true
	setup.Restart(t)
	got := command(t, "sweep", "--model", "toy", "--batch", "16")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "cuda:0 is used by processes that are not listed, as those outside a "+
		"container, which hold about 500.00 MiB; choose the GPU")
	for _, args := range [][]string{
		{"sweep", "--batch", "16", "--find-max"},
		{"fit", "--stage", "full"},
		{"smoke", "--batch", "64"},
	} {
		driver := setup.Restart(t)
		got := command(t, append(args, "--model", "toy", "--device", "cuda:0")...)
		require.Contains(t, []exitCode{exitFine, exitNegative}, got.code, got.stderr)
		require.Contains(t, got.stdout, "cuda:0 is also used by processes that are not listed")
		require.GreaterOrEqual(t, 9500*mib-int64(driver.Stats(t).Peak), int64(1024*mib), args[0])
		requireBalanced(t, driver)
	}
}

// Without NVML what others hold is assumed: the report says so, and nothing is learned from it.
func TestWithoutNVMLNothingIsLearned(t *testing.T) {
	setup := fakecuda.Genuine(catalogGPU(t, "rtx-5060-ti"))
	setup.NVML = 9
	setup.GPUs[0].Others = []fakecuda.Process{{PID: 4321, Name: "python3", Used: 2000 * mib}}
	setup.Restart(t)
	file := filepath.Join(t.TempDir(), "sweep.json")
	r := swept(t, "--model", "toy", "--batch", "8,32", "--device", "cuda:0", "--export", file)
	run := r.Points[0].Run
	require.True(t, run.OthersAssumed)
	require.EqualValues(t, 2000*mib, run.OtherProcessBytes)
	require.EqualValues(t, 190*mib, run.Context, "what the catalog says")
	require.Contains(t, r.Warnings[0].What, "what other processes hold of cuda:0 is not known, since NVML does not "+
		"tell")
	got := command(t, "calibrate", file, "--dry-run")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "batch 8: other processes may have used the GPU")
}

// A GPU that nobody has heard of is swept, and learned from by what its driver said.
func TestAGPUThatTheCatalogDoesNotKnowIsCalibrated(t *testing.T) {
	gpu := device.GPU{
		Product: "NVIDIA Future X1", Capability: 121, SMs: 48, ThreadsPerSM: 1536, BoostMHz: 3000,
		Memory: 24 << 30, Context: 333 * mib,
	}
	fakecuda.Genuine(gpu).Restart(t)
	dir := t.TempDir()
	file, learned := filepath.Join(dir, "sweep.json"), filepath.Join(dir, "coefficients.yaml")
	r := swept(t, "--model", "toy", "--batch", "8,16,32,48,64", "--export", file)
	d := r.Devices[0]
	require.Equal(t, []any{"future-x1", "12.1", 48, 1536, 3000}, []any{
		d.GPU, d.Capability, d.SMs, d.ThreadsPerSM,
		d.MHz,
	})
	c := decoded[report.Calibration](t, exitFine, "calibrate", file, "--output", learned)
	require.Equal(t, "future-x1", c.GPU)
	require.Less(t, c.Errors.After.Max, 1e-3)
	for _, k := range c.Coefficients {
		require.False(t, strings.HasPrefix(k.Name, "speed:"), "kernels of vprof's own say nothing of "+
			"PyTorch's: %s", k.Name)
	}
	again := swept(t, "--model", "toy", "--batch", "16", "--coefficients", learned)
	require.True(t, slices.ContainsFunc(again.Coefficients,
		func(k report.Coefficient) bool { return strings.Contains(k.Source, "future-x1/") }))
}

// A sweep on a GPU ends with how near the estimates were. The driver adds 3 MiB to each segment
// there, which nobody has learned yet.
func TestASweepOnAGPUEndsWithAVerdict(t *testing.T) {
	setup := fakecuda.Genuine(sized(catalogGPU(t, "rtx-5060-ti"), 4000*mib))
	setup.Restart(t)
	args := []string{"sweep", "--model", "toy", "--batch", "8,16", "--find-max", "--device", "cuda:0"}
	got := command(t, append(args, "--tolerance", "1%")...)
	require.Equal(t, exitFine, got.code, got.stderr)
	r := swept(t, args[1:]...)
	require.Equal(t, r.Largest.Batch, r.Agreement.Found)
	require.Equal(t, r.Largest.Batch, r.Agreement.Predicted)
	require.Contains(t, got.stdout, fmt.Sprintf("device within ±1 %% of the estimate at %d of %[1]d; largest batch "+
		"predicted %d, found %d.", r.Agreement.Total, r.Agreement.Predicted, r.Agreement.Found))
	require.Contains(t, got.stdout, "replayed GiB")
	require.Contains(t, got.stdout, "measured GiB")

	setup.GPUs[0].Adds = 3 * mib
	setup.Restart(t)
	got = command(t, "sweep", "--model", "toy", "--batch", "8,16", "--device", "cuda:0", "--tolerance", "0.1%")
	require.Equal(t, exitNegative, got.code)
	require.Contains(t, got.stderr, "measurements differ from the estimates by more than 0.1% (--tolerance): device within ±0.1 % of "+
		"the estimate at 0 of 2")
	require.Regexp(t, `batch 16: [\d.]+ MiB added by the driver to segments, 0 B unexplained`, got.stdout)
	setup.Restart(t)
	require.Equal(t, exitFine, command(t, "sweep", "--model", "toy", "--batch", "8,16", "--device", "cuda:0").code)

	simulated := command(t, "sweep", "--model", "toy", "--batch", "8", "--gpu", "t4").stdout
	require.NotContains(t, simulated, "error")
	require.NotContains(t, simulated, "replayed")
}

// The GPU that CUDA shows first is the one that is described and asked, whatever its number in NVML.
func TestTheVisibleGPUIsTheOneAskedFor(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "1")
	setup := fakecuda.Setup{Genuine: true, GPUs: []fakecuda.GPU{{GPU: catalogGPU(t, "t4")}, {GPU: catalogGPU(t, "a100-40")}}}
	setup.GPUs[0].Others = []fakecuda.Process{{PID: 5, Name: "python3", Used: 5000 * mib}}
	setup.Restart(t)
	r := swept(t, "--model", "toy", "--batch", "8")
	require.Equal(t, "a100-40", r.Devices[0].GPU)
	require.Equal(t, "GPU-fa000000-0000-0000-0000-000000000001", r.Devices[0].UUID)
	require.Zero(t, r.Points[0].Run.OtherProcessBytes, "they use the other GPU")
	found, err := detectByNVML(0)
	require.NoError(t, err)
	require.Equal(t, "a100-40", found.GPU.Name, "by NVML alone")
	require.Zero(t, found.OtherProcessBytes)
}

// The smallest batch that is tried may be too large for a GPU.
func TestOutOfMemoryAtTheSmallestBatchIsAResult(t *testing.T) {
	driver := fakecuda.Genuine(sized(catalogGPU(t, "rtx-5060-ti"), 512*mib)).Restart(t)
	got := command(t, "sweep", "--model", "toy", "--batch", "64,128", "--device", "cuda:0")
	require.Equal(t, exitFine, got.code, got.stderr)
	require.Contains(t, got.stdout, "batch 64 is out of memory (measured)")
	require.Contains(t, got.stdout, "not run: batch 128 (out of memory at batch 64).")
	requireBalanced(t, driver)
}

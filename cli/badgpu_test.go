//go:build cuda && linux && cgo

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/fakecuda"
)

// Each machine that has something wrong with it is told in one sentence, with its exit code, and nothing is left on it.
func TestWhatIsWrongWithAMachineIsSaidInASentence(t *testing.T) {
	gpu := catalogGPU(t, "rtx-5060-ti")
	one := func(change func(*fakecuda.Setup)) fakecuda.Setup {
		s := fakecuda.Genuine(gpu)
		change(&s)
		return s
	}
	fails := func(call string, result int) fakecuda.Setup {
		return one(func(s *fakecuda.Setup) { s.Fail = []string{fakecuda.FailCall(call, 1, result)} })
	}
	// The driver does not take the kernels as they were assembled, and fails to compile them.
	compiling := func(result int) fakecuda.Setup {
		return one(func(s *fakecuda.Setup) {
			s.Fail = []string{
				fakecuda.FailCall("cuModuleLoadDataEx", 1, 209),
				fakecuda.FailCall("cuModuleLoadDataEx", 2, result),
			}
		})
	}
	for _, tt := range []struct {
		name  string
		setup fakecuda.Setup
		// device is what is asked for, cuda:0 if it is empty.
		device string
		code   exitCode
		says   string
	}{
		{
			"no GPU",
			fakecuda.Setup{},
			"", exitNoGPU,
			"cuda: the driver shows no GPU; see nvidia-smi, and whether CUDA_VISIBLE_DEVICES hides it; a GPU in " +
				"MIG mode needs slices (nvidia-smi mig -cgi)",
		},
		{
			"no such GPU",
			fakecuda.Setup{GPUs: []fakecuda.GPU{{GPU: gpu}, {GPU: catalogGPU(t, "t4")}}},
			"cuda:2", exitNoGPU,
			"cuda:2: there is no such GPU; there are cuda:0 (NVIDIA GeForce RTX 5060 Ti), cuda:1 (Tesla T4)",
		},
		{
			"old driver", one(func(s *fakecuda.Setup) { s.Version = 11040 }), "", exitNoGPU,
			"cuda: the driver is too old: it speaks CUDA 11.4, the kernels need 11.8; install driver 520.61 or newer",
		},
		{
			"old GPU", fakecuda.Genuine(catalogGPU(t, "gtx-1080")), "", exitNoGPU,
			"cuda:0: NVIDIA GeForce GTX 1080 is too old: it has compute capability 6.1, the kernels need 7.0; " +
				"simulate it with --device sim:gtx-1080",
		},
		{
			"prohibited mode", one(func(s *fakecuda.Setup) { s.GPUs[0].Mode = 2 }), "", exitNoGPU,
			"cuda:0: the GPU is in prohibited mode; allow contexts with nvidia-smi -c DEFAULT",
		},
		{
			"exclusive mode", one(func(s *fakecuda.Setup) {
				s.GPUs[0].Mode, s.GPUs[0].Others = 3, []fakecuda.Process{{PID: 5, Name: "python3", Used: mib}}
			}), "", exitNoGPU,
			"cuda:0: the GPU is in exclusive mode and another process uses it; wait for that process, or share " +
				"the GPU with nvidia-smi -c DEFAULT",
		},
		{
			"full GPU", one(func(s *fakecuda.Setup) {
				s.GPUs[0].Others = []fakecuda.Process{{PID: 5, Name: "python3", Used: gpu.Memory - 100*mib}}
			}), "", exitNoGPU,
			"cuda:0: the GPU has no room for a context; other processes fill it (see nvidia-smi)",
		},
		{
			"GPU full but for a context", one(func(s *fakecuda.Setup) {
				s.GPUs[0].Module = 8 * mib
				s.GPUs[0].Others = []fakecuda.Process{{PID: 5, Name: "python3", Used: gpu.Memory - gpu.Context - mib}}
			}), "", exitNoGPU,
			"cuda:0: the GPU has no room for the kernels; other processes fill it (see nvidia-smi)",
		},
		{
			"no host memory", fails("cuInit", 2), "", exitNoGPU,
			"cuda: there is not enough host memory for the driver (cuInit: out of memory " +
				"(CUDA_ERROR_OUT_OF_MEMORY)); raise the memory limit of this process or container",
		},
		{
			"no permission", fails("cuInit", 800), "", exitNoGPU,
			"cuda: no permission to use the GPU (cuInit: not permitted (CUDA_ERROR_NOT_PERMITTED)); see whether " +
				"this user can read and write /dev/nvidia*",
		},
		{
			"mixed driver", fails("cuInit", 803), "", exitNoGPU,
			"cuda: the driver does not start (cuInit: the driver library and the kernel module differ in version " +
				"(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH); restart the machine, or load the kernel module that belongs " +
				"to the library)",
		},
		{
			"no compiler", compiling(221), "", exitNoGPU,
			`cuda:0: the driver's PTX compiler is missing (CUDA_ERROR_JIT_COMPILER_NOT_FOUND); install its libnvidia-ptxjitcompiler.so.1; containers need the capability "compute"`,
		},
		{
			"compiler turned off", compiling(223), "", exitNoGPU,
			"cuda:0: compiling kernels is turned off (CUDA_ERROR_JIT_COMPILATION_DISABLED); unset CUDA_DISABLE_PTX_JIT",
		},
		{
			"compiler too old", compiling(222), "", exitNoGPU,
			"cuda:0: the driver is too old for the kernels (CUDA_ERROR_UNSUPPORTED_PTX_VERSION); install driver " +
				"520.61 or newer",
		},
		{
			"GPU too new for the compiler", compiling(209), "", exitNoGPU,
			"cuda:0: the driver does not compile the kernels for this GPU (CUDA_ERROR_NO_BINARY_FOR_GPU); install " +
				"the newest driver, and unset CUDA_DISABLE_PTX_JIT",
		},
		{
			"damaged kernels", compiling(218), "", exitFailure,
			"cuModuleLoadDataEx: the driver's compiler refuses the kernels (CUDA_ERROR_INVALID_PTX); this is a bug " +
				"of vprof, please report it",
		},
		{
			"memory error", fails("cuEventRecord", 214), "", exitFailure,
			"batch 8: cuEventRecord: uncorrectable memory error (CUDA_ERROR_ECC_UNCORRECTABLE); the kernel log has " +
				"the cause as an Xid (dmesg | grep -i xid); reset the GPU (nvidia-smi --gpu-reset) or restart the " +
				"machine",
		},
		{
			"fallen off the bus", one(func(s *fakecuda.Setup) {
				s.Fail = []string{fakecuda.FailCall("cuMemAlloc", 4, 999)}
			}), "", exitFailure,
			"batch 8: replay of the step stopped at instruction 0: malloc of 16777216 bytes: get a segment of " +
				"16777216 bytes: cuMemAlloc of 16.00 MiB: unknown error (CUDA_ERROR_UNKNOWN); the kernel log has the " +
				"cause as an Xid (dmesg | grep -i xid)",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			driver := tt.setup.Restart(t)
			on := tt.device
			if on == "" {
				on = "cuda:0"
			}
			got := command(t, "sweep", "--model", "toy", "--device", on)
			require.Equal(t, tt.code, got.code)
			require.Equal(t, "vprof: "+tt.says+"\n", got.stderr)
			require.Empty(t, got.stdout)
			s := driver.Stats(t)
			require.Zero(t, s.Alive())
			require.Zero(t, s.Used)
			require.Empty(t, driver.Violations(t))

			if tt.code == exitNoGPU && tt.device == "" {
				tt.setup.Restart(t)
				doctor := command(t, "doctor")
				require.Equal(t, exitNoGPU, doctor.code)
				require.Equal(t, "vprof: "+tt.says+"\n", doctor.stderr, "the doctor says the same")
				reason, _, _ := strings.Cut(tt.says, ";")
				require.Contains(t, doctor.stdout, reason)

				// Nobody asked for the GPU: a GPU is simulated in its place, and that is said.
				tt.setup.Restart(t)
				dev := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(dev, "nvidiactl"), nil, 0o600))
				instead := commandOn(t, dev, "sweep", "--model", "toy", "--batch", "8")
				require.Equal(t, exitFine, instead.code, instead.stderr)
				require.Equal(t, "vprof: this machine's GPU was not used: "+
					""+strings.TrimPrefix(strings.TrimPrefix(tt.says, "cuda: "), "cuda:0: ")+"\n", instead.stderr)
				require.Contains(t, instead.stdout, "simulated "+catalogGPU(t, defaultGPU).Product)
			}
		})
	}
}

// A slice of a GPU is a GPU of its own size, and the GPU is not there without slices.
func TestASliceIsAGPUAndAMachineOfNoneHasNoGPU(t *testing.T) {
	whole := fakecuda.GPU{GPU: catalogGPU(t, "a100-40"), MIG: fakecuda.Sliced}
	slice := fakecuda.GPU{GPU: sized(whole.GPU, 4864*mib), MIG: fakecuda.Slice}
	slice.Product += " MIG 1g.5gb"
	setup := fakecuda.Setup{GPUs: []fakecuda.GPU{whole, slice, slice}}
	driver := setup.Restart(t)
	for _, name := range []string{"cuda:0", "cuda:1"} {
		r := swept(t, "--model", "toy", "--batch", "8", "--device", name)
		require.Equal(t, slice.Product, r.Devices[0].Title)
		require.EqualValues(t, 4864*mib, r.Devices[0].Memory)
		require.Positive(t, r.Points[0].Run.Process, "NVML knows it by its own name")
		require.True(t, r.Devices[0].MIG)
		require.Equal(t, "MIG-fa000000-0000-0000-0000-00000000000"+map[string]string{
			"cuda:0": "1",
			"cuda:1": "2",
		}[name], r.Devices[0].UUID)
	}
	got := command(t, "sweep", "--model", "toy", "--device", "cuda:2")
	require.Equal(t, exitNoGPU, got.code)
	require.Contains(t, got.stderr, "there is no such GPU")
	requireBalanced(t, driver)
	doctor := command(t, "doctor")
	require.Equal(t, exitFine, doctor.code)
	require.NotContains(t, doctor.stdout, "has no slices")

	fakecuda.Setup{GPUs: []fakecuda.GPU{whole}}.Restart(t)
	got = command(t, "sweep", "--model", "toy", "--device", "cuda:0")
	require.Equal(t, exitNoGPU, got.code)
	require.Contains(t, got.stderr,
		"the driver shows no GPU; see nvidia-smi, and whether CUDA_VISIBLE_DEVICES hides it; a GPU in MIG mode "+
			"needs slices")
	doctor = command(t, "doctor")
	require.Equal(t, exitNoGPU, doctor.code)
	require.Contains(t, doctor.stdout,
		"GPU 0 is in MIG mode and has no slices; make one (nvidia-smi mig -i 0 -cgi 0 -C) or turn the mode off "+
			"(nvidia-smi -i 0 -mig 0)")
}

// Libraries that are no driver: none, one that cannot be loaded, one that is too old to have what is called. Each needs
// a process of its own, since a library is loaded once.
func TestLibrariesThatAreNoDriver(t *testing.T) {
	dir := t.TempDir()
	garbage, old := filepath.Join(dir, "garbage.so"), filepath.Join(dir, "old.so")
	require.NoError(t, os.WriteFile(garbage, []byte("not a library"), 0o600))
	source := filepath.Join(dir, "old.c")
	require.NoError(t, os.WriteFile(source,
		[]byte("int cuInit(unsigned f) { return f; }\nint cuDriverGetVersion(int *v) { *v = 12040; return 0; }\n"),
		0o600))
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", old, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for library, says := range map[string]string{
		filepath.Join(dir, "none.so"): "cuda: no NVIDIA driver (load ",
		garbage:                       "cuda: the driver library is damaged or for another processor (load ",
		old:                           "cuda: the driver is too old: it lacks cuDevicePrimaryCtxRetain, cuMemAlloc_v2",
	} {
		driver := &fakecuda.Driver{Env: []string{"VPROF_LIBCUDA=" + library, "VPROF_LIBNVML=" + library}}
		for _, args := range [][]string{{"doctor"}, {"sweep", "--model", "toy", "--device", "cuda:0"}} {
			cmd := vprof(t, driver, args...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			var ended *exec.ExitError
			require.ErrorAs(t, cmd.Run(), &ended)
			require.Equal(t, int(exitNoGPU), ended.ExitCode())
			require.Contains(t, stderr.String(), says)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"))
		}
		// Everything else works.
		stdout, err := vprof(t, driver, "sweep", "--model", "toy", "--batch", "8").Output()
		require.NoError(t, err)
		require.Contains(t, string(stdout), "simulated")
	}
}

// Without --device the first GPU is taken, and a simulated GPU where there is none or where one is named.
func TestTheFirstGPUIsTheDefault(t *testing.T) {
	fakecuda.Genuine(catalogGPU(t, "t4")).Restart(t)
	r := swept(t, "--model", "toy", "--batch", "8")
	require.Equal(t, "cuda:0", r.Devices[0].Name)
	require.Equal(t, "t4", r.Devices[0].GPU)
	require.Equal(t, "sim:t4", swept(t, "--model", "toy", "--batch", "8", "--gpu", "t4").Devices[0].Name)
	require.Equal(t, "sim:"+defaultGPU,
		swept(t, "--model", "toy", "--batch", "8", "--gpu-memory", "8GiB").Devices[0].Name)
	fakecuda.Setup{}.Restart(t)
	require.Equal(t, "sim:"+defaultGPU, swept(t, "--model", "toy", "--batch", "8").Devices[0].Name)
}

// fit --auto asks the driver, and leaves what others hold alone.
func TestFitFindsTheGPU(t *testing.T) {
	setup := fakecuda.Genuine(sized(catalogGPU(t, "t4"), 8<<30))
	setup.GPUs[0].Others = []fakecuda.Process{{PID: 5, Name: "python3", Used: 1 << 30}}
	driver := setup.Restart(t)
	found, err := detectGPU(0)
	require.NoError(t, err)
	require.Equal(t, localGPU{GPU: setup.GPUs[0].GPU, OtherProcessBytes: 1 << 30}, found)
	requireBalanced(t, driver)
	fakecuda.Setup{}.Restart(t)
	_, err = detectGPU(0)
	require.ErrorAs(t, err, new(noGPUError))
}

// The doctor of a machine on which all is well.
func TestAHealthyMachine(t *testing.T) {
	setup := fakecuda.Setup{GPUs: []fakecuda.GPU{
		{GPU: catalogGPU(t, "h200"), Module: 8 * mib},
		{GPU: catalogGPU(t, "t4"), Mode: 2},
	}}
	setup.Restart(t)
	got := command(t, "doctor", "--format", "csv")
	require.Equal(t, exitFine, got.code, "one usable GPU is enough")
	require.Empty(t, got.stderr)
	require.Equal(t, `device,name,compute_capability,memory_bytes,context_bytes,kernels_bytes,others_bytes,usable
cuda:0,NVIDIA H200,9.0,150109093888,549453824,8388608,0,true
cuda:1,Tesla T4,7.5,15828320256,0,0,0,false
`, got.stdout)
	got = command(t, "doctor")
	for _, want := range []string{
		"580.65.06 (simulated driver)", "13.0",
		"cuda:1: the GPU is in prohibited mode; allow contexts",
	} {
		require.Contains(t, got.stdout, want)
	}
}

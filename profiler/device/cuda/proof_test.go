//go:build cuda && linux && cgo

package cuda_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// A device is believed when its kernels run and come to the CPU's results, and
// its driver does not call itself simulated.
func TestKernelsThatDoNotRunMakeADeviceSimulated(t *testing.T) {
	for name, tt := range map[string]struct{ backed, genuine, simulated bool }{
		"nothing runs":                {simulated: true},
		"runs, and says what it is":   {backed: true, simulated: true},
		"passes for a GPU":            {genuine: true},
		"runs, and passes for a GPU ": {backed: true, genuine: true},
	} {
		t.Run(name, func(t *testing.T) {
			setup := small(t)
			setup.Backed, setup.Genuine = tt.backed, tt.genuine
			driver := setup.Restart(t)
			d := open(t)
			require.Equal(t, tt.simulated, d.Simulated())
			_, err := d.Patterns()
			if tt.backed || tt.genuine {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, "cuda:0: the driver cannot run kernels, so memory contents cannot be "+
					"verified; leave out --verify")
			}
			require.NoError(t, d.Close())
			requireClean(t, driver)
		})
	}
}

// A result with one wrong byte is a defect, on every architecture that has its own kernels for it.
func TestAWrongResultIsADefect(t *testing.T) {
	for _, name := range []string{"v100-16", "t4", "a100-40", "h100", "rtx-5060-ti"} {
		for sick, says := range map[string]string{
			"gemm":             "1 of 2304 elements of a product in f32 are wrong",
			"gemm_f16":         "1 of 2304 elements of a product in f16 are wrong",
			"gemm_bf16":        "1 of 2304 elements of a product in bf16 are wrong",
			"gemm_tf32":        "1 of 2304 elements of a product in tf32 are wrong",
			"conv_forward_f16": "1 of 288 elements of a convolution in f16 are wrong",
			"attention_f16":    "1 of 1024 elements of attention in f16 are wrong",
		} {
			setup := small(t)
			setup.GPUs[0].Capability = catalogGPU(t, name).Capability
			if sick == "gemm_tf32" && setup.GPUs[0].Capability < 80 {
				continue // it has none
			}
			setup.Backed, setup.Sick = true, sick
			driver := setup.Restart(t)
			_, err := cuda.Open(0)
			var defect *device.DefectError
			require.ErrorAs(t, err, &defect, "%s: %s", name, sick)
			require.Contains(t, err.Error(), says)
			requireClean(t, driver)
		}
	}
}

// 4096 products of a matrix of 2^12 would take 24 ms each at full speed on an RTX
// 5060 Ti; the fake's clock says 10 us, which is no measurement. A slow clock is.
func TestTimesThatNoGPUCanHaveAreRefused(t *testing.T) {
	p := &program.Program{
		Phases: []program.Phase{{Step: 1, Name: "step"}}, Sites: []program.Site{{}},
		Buffers:  []program.Buffer{{Bytes: 48 * mib}},
		Products: []program.Product{{M: 2048, N: 2048, K: 2048, Batch: 1}},
		Operands: []program.Operand{{Bytes: 16 * mib}, {Bytes: 16 * mib}, {Bytes: 16 * mib}},
		Ops: []program.Op{{
			Work: program.Matmul, FLOPs: 2 << 33, ProductIndex: 1, Reads: program.Span{To: 2},
			Writes: program.Span{From: 2, To: 3},
		}},
		Instructions: []program.Instruction{{Kind: program.Alloc}, {Kind: program.Launch}, {Kind: program.MarkPhase}},
	}
	for _, slow := range []bool{false, true} {
		setup := small(t)
		setup.Genuine, setup.Fast = true, !slow
		driver := setup.Restart(t)
		d := open(t)
		m, err := replay.Measure(t.Context(), d, p, replay.Conditions{})
		if slow {
			require.NoError(t, err)
			require.Equal(t, []time.Duration{100 * time.Millisecond}, m.StepTimes())
		} else {
			var impossible *replay.ImpossibleError
			require.ErrorAs(t, err, &impossible)
			require.InDelta(t, float64(2<<33)/d.GPU().Peak.FP32/1.25, impossible.Minimum.Seconds(), 1e-6)
			require.Contains(t, err.Error(), "no NVIDIA GeForce RTX 5060 Ti can do its work in less than")
		}
		require.NoError(t, d.Close())
		requireClean(t, driver)
	}
}

// What a driver takes at first launches is the kernels': on a GPU most of them run before the baseline is sized.
func TestKernelsAreWarmBeforeTheBaseline(t *testing.T) {
	setup := small(t)
	setup.Genuine = true
	driver := setup.Restart(t)
	d := open(t)
	require.Greater(t, driver.Stats(t).Launches, uint64(40))
	require.Zero(t, d.Floor())
	require.NoError(t, d.Close())
	requireClean(t, driver)
}

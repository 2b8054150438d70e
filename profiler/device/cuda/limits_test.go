//go:build cuda && linux && cgo

package cuda_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	registry "github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/fakecuda"
)

// Under WSL2 the driver goes on in the host's memory once the GPU is full. The device ends where the GPU does.
func TestUnderWSLMemoryEndsWithTheGPU(t *testing.T) {
	setup := small(t)
	setup.GPUs[0].Spills = true
	for _, wsl := range []bool{false, true} {
		node := filepath.Join(t.TempDir(), "dxg")
		if wsl {
			require.NoError(t, os.WriteFile(node, nil, 0o600))
		}
		restore := cuda.SetWSL(node)
		driver := setup.Restart(t)
		d := open(t)
		_, err := d.Get(2000 * mib)
		require.Equal(t, wsl, err != nil)
		if wsl {
			require.ErrorIs(t, err, allocator.ErrOutOfMemory)
			r, err := d.Reserve(2000 * mib)
			require.NoError(t, err)
			require.ErrorIs(t, d.Map(r, 2000*mib), allocator.ErrOutOfMemory)
		}
		require.NoError(t, d.Close())
		requireClean(t, driver)
		restore()
	}
}

// A GPU that shares the host's memory is never filled: an eighth of it stays.
func TestAnIntegratedGPULeavesTheHostItsShare(t *testing.T) {
	setup := small(t)
	setup.GPUs[0].Integrated = true
	driver := setup.Restart(t)
	d := open(t)
	d.LeaveFree(0)
	_, err := d.Get(800 * mib) // of 924
	require.ErrorIs(t, err, allocator.ErrOutOfMemory)
	_, err = d.Get(790 * mib)
	require.NoError(t, err)
	d.LeaveFree(500 * mib)
	_, err = d.Get(2 * mib)
	require.ErrorIs(t, err, allocator.ErrOutOfMemory)
	require.NoError(t, d.Close())
	requireClean(t, driver)
}

// The desktop of a GPU keeps 512 MiB, of a small one an eighth, unless somebody wants all.
func TestADisplayKeepsItsShare(t *testing.T) {
	setup := small(t)
	setup.GPUs[0].Display = true
	setup.Restart(t)
	d := open(t)
	require.EqualValues(t, 128*mib, d.FreeLimit())
	_, err := d.Get(800 * mib) // of 924
	require.ErrorIs(t, err, allocator.ErrOutOfMemory)
	d.LeaveFree(0)
	_, err = d.Get(800 * mib)
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

// A GPU with a display ends long kernels: none has more than so many operations.
func TestAGPUWithADisplayTakesLongProductsInParts(t *testing.T) {
	const m, n, k = 1 << 16, 1 << 10, 1 << 9 // 69 billion operations
	for display, launches := range map[bool]uint64{false: 1, true: 2} {
		setup := fakecuda.Simulated(device.GPU{
			Product: "NVIDIA Future X1 (2 TB)", Capability: 86, SMs: 50,
			ThreadsPerSM: 1536, Memory: 1 << 31,
		})
		setup.GPUs[0].Display = display
		driver := setup.Restart(t)
		d := open(t)
		var ranges []device.Range
		for _, bytes := range []int64{2 * m * k, 2 * n * k, 2 * m * n} {
			addr, err := d.Get(bytes)
			require.NoError(t, err)
			ranges = append(ranges, device.Range{Addr: addr, Bytes: bytes})
		}
		before := driver.Stats(t).Launches
		require.NoError(t, d.Launch(device.Kernel{
			Work: program.Matmul, Precision: program.FP16, FLOPs: 2 * m * n * k, M: m, N: n, K: k, Batch: 1,
			Reads: ranges[:2], Writes: ranges[2:],
		}))
		require.Equal(t, launches, driver.Stats(t).Launches-before, "with a display: %v", display)
		require.NoError(t, d.Close())
		requireClean(t, driver)
	}
}

func TestWhatSharesAGPUIsSaid(t *testing.T) {
	for _, tt := range []struct {
		product string
		mps     bool
		want    []string
	}{
		{"NVIDIA A10", false, nil},
		{"NVIDIA A10", true, []string{"cuda:0 is shared through MPS"}},
		{"NVIDIA A10-24Q", false, []string{"cuda:0 is a vGPU"}},
		{"GRID A100D-40C", true, []string{"cuda:0 is shared through MPS", "cuda:0 is a vGPU"}},
	} {
		setup := fakecuda.Simulated(device.GPU{
			Product: tt.product, Capability: 86, SMs: 50, ThreadsPerSM: 1536,
			Memory: 1 << 31,
		})
		setup.GPUs[0].MPS = tt.mps
		setup.Restart(t)
		d := open(t)
		shared := d.SharingSoftware()
		require.Len(t, shared, len(tt.want), tt.product)
		for i, want := range tt.want {
			require.Contains(t, shared[i], want)
		}
		require.NoError(t, d.Close())
	}
}

func TestWithoutVirtualMemoryThereAreNoExpandableSegments(t *testing.T) {
	setup := small(t)
	setup.GPUs[0].Unpaged = true
	setup.Restart(t)
	d := open(t)
	_, err := d.Reserve(20 * mib)
	require.ErrorAs(t, err, new(*device.UnusableError))
	require.ErrorContains(t, err, "leave expandable_segments away")
	_, err = d.Get(20 * mib)
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

// A GPU that the catalog does not have is said to take what its context took.
func TestTheContextOfAnUnknownGPUIsMeasured(t *testing.T) {
	setup := small(t)
	setup.GPUs[0].Product = "NVIDIA Future X1"
	setup.Restart(t)
	d := open(t)
	require.Equal(t, int64(100*mib), d.GPU().Context)
	require.NoError(t, d.Close())
}

// Drivers need not hand out rising addresses, and the caching allocator takes the lowest of blocks that are equally
// good. Allocated bytes are the same whatever the order, and reserved ones differ by little.
func TestTheOrderOfAddressesHardlyMatters(t *testing.T) {
	gpu := catalogGPU(t, "rtx-3090")
	spec := trace.GPU{
		Name: gpu.Name, Capability: int(gpu.Capability), SMs: gpu.SMs, ThreadsPerSM: gpu.ThreadsPerSM,
		Memory: gpu.Memory,
	}
	for _, c := range []models.Case{
		{Model: "redimnet-b2", Batch: 16},
		{Model: "resnet50", Batch: 32, AMP: "fp16"},
		{Model: "gpt2", Batch: 4},
	} {
		rec, err := registry.Models().Record(c, spec, models.Options{})
		require.NoError(t, err)
		want, err := replay.Replay(t.Context(), rec.Program, replay.Options{Rising: true})
		require.NoError(t, err)
		for _, order := range []string{"rising", "falling", "random"} {
			setup := small(t)
			setup.GPUs[0].GPU, setup.Quiet, setup.Addresses = gpu, true, order
			setup.Restart(t)
			d := open(t)
			m, err := replay.Measure(t.Context(), d, rec.Program, replay.Conditions{})
			require.NoError(t, err)
			require.NoError(t, d.Close())
			require.Equal(t, want.Max.Requested, m.Max.Requested)
			t.Logf("%s %s: reserved %+.2f %%", c.Model, order,
				100*(float64(m.Max.Reserved)/float64(want.Max.Reserved)-1))
			require.InEpsilon(t, want.Max.Allocated, m.Max.Allocated, 0.01, "%s %s", c.Model, order)
			require.InEpsilon(t, want.Max.Reserved, m.Max.Reserved, 0.05, "%s %s", c.Model, order)
			if order == "rising" {
				require.Equal(t, want.Max, m.Max)
			}
		}
	}
}

//go:build cuda && linux && cgo

package cuda_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/tools/fakecuda"
	"github.com/vprof/vprof/tools/sample"
)

const mib = 1 << 20

func catalogGPU(t testing.TB, name string) device.GPU {
	gpu, err := device.Lookup(name)
	require.NoError(t, err)
	return gpu
}

// small returns a GPU of 1 GiB whose context takes 100 MiB.
func small(t testing.TB) fakecuda.Setup {
	gpu := catalogGPU(t, "rtx-5060-ti")
	gpu.Memory, gpu.Context = 1024*mib, 100*mib
	return fakecuda.Simulated(gpu)
}

func open(t testing.TB) *cuda.Device {
	d, err := cuda.Open(0)
	require.NoError(t, err)
	return d
}

// requireClean says that everything came back, in order and by the rules.
func requireClean(t testing.TB, driver *fakecuda.Driver) {
	t.Helper()
	require.Empty(t, driver.Violations(t))
	s := driver.Stats(t)
	require.Zero(t, s.Alive(), "%+v", s)
	require.Zero(t, s.Used)
	require.Zero(t, s.Reclaimed, "left for the context to take along")
}

func available(t testing.TB, d *cuda.Device) int64 {
	n, err := d.AvailableBytes()
	require.NoError(t, err)
	return n
}

func TestEveryGPUOfTheCatalogDescribesItself(t *testing.T) {
	tried := map[device.Capability]bool{}
	for _, gpu := range device.Catalog() {
		// A sample opens one GPU of each compute capability.
		if gpu.Capability < 70 || !sample.All() && tried[gpu.Capability] {
			continue
		}
		tried[gpu.Capability] = true
		driver := fakecuda.Genuine(gpu).Restart(t)
		d := open(t)
		require.Equal(t, "cuda:0", d.Name())
		require.Equal(t, gpu, d.GPU())
		require.False(t, d.Simulated())
		require.Equal(t, gpu.Memory, d.Total())
		require.NoError(t, d.Close())
		requireClean(t, driver)
	}
}

// What the catalog does not know has the driver's figures and no rates.
func TestAnUnknownGPUIsDescribedByTheDriver(t *testing.T) {
	fakecuda.Simulated(device.GPU{
		Product: "NVIDIA Future X1 (2 TB)", Capability: 150, SMs: 500, ThreadsPerSM: 4096,
		Memory: 1 << 41,
	}).Restart(t)
	d := open(t)
	defer d.Close()
	require.Equal(t, device.GPU{
		Name: "future-x1-2-tb", Product: "NVIDIA Future X1 (2 TB)", Generation: "compute capability 15.0",
		Capability: 150, SMs: 500, ThreadsPerSM: 4096, Memory: 1 << 41, Source: "the driver",
	}, d.GPU())
}

// 1024 MiB less the context are 924; segments go in granules of 2 MiB.
func TestMemoryIsTheDrivers(t *testing.T) {
	driver := small(t).Restart(t)
	d := open(t)
	require.Equal(t, int64(924*mib), available(t, d))
	a, err := d.Get(300*mib + 1)
	require.NoError(t, err)
	require.Equal(t, int64(622*mib), available(t, d))
	_, err = d.Get(700 * mib)
	require.ErrorIs(t, err, allocator.ErrOutOfMemory)
	require.EqualError(t, err, "cuMemAlloc of 700.00 MiB: out of memory (CUDA_ERROR_OUT_OF_MEMORY)")
	require.NoError(t, d.Put(a, 300*mib+1))
	require.Equal(t, int64(924*mib), available(t, d))
	require.NoError(t, d.Close())
	requireClean(t, driver)
}

func TestPagesAreMappedIntoRanges(t *testing.T) {
	driver := small(t).Restart(t)
	d := open(t)
	r, err := d.Reserve(2048 * mib)
	require.NoError(t, err)
	require.Equal(t, int64(924*mib), available(t, d), "addresses cost nothing")
	require.NoError(t, d.Map(r, 20*mib))
	require.NoError(t, d.Map(r+20*mib, 20*mib))
	require.NoError(t, d.Fill(r, 1, 40*mib), "neighboring pages are one memory")
	require.Equal(t, int64(884*mib), available(t, d))
	require.ErrorIs(t, d.Map(r+40*mib, 1000*mib), allocator.ErrOutOfMemory)
	require.NoError(t, d.Unmap(r, 20*mib))
	require.NoError(t, d.Unmap(r+20*mib, 20*mib))
	require.NoError(t, d.Release(r, 2048*mib))
	require.Equal(t, int64(924*mib), available(t, d))
	require.NoError(t, d.Close())
	requireClean(t, driver)
}

// Close releases what its holder forgot.
func TestCloseGivesEverythingBack(t *testing.T) {
	driver := small(t).Restart(t)
	d := open(t)
	_, err := d.Get(10 * mib)
	require.NoError(t, err)
	r, err := d.Reserve(100 * mib)
	require.NoError(t, err)
	require.NoError(t, d.Map(r, 20*mib))
	_, err = d.Record()
	require.NoError(t, err)
	require.NoError(t, d.Close())
	requireClean(t, driver)
	d = open(t)
	require.Equal(t, int64(924*mib), available(t, d), "and it can be opened again")
	require.NoError(t, d.Close())
}

// Two others hold 100 and 200 MiB, the context takes 100, the kernels 8: the GPU shows them apart, and NVML what
// belongs to this process. The driver is told to load vprof's own kernels at once. A command that vprof starts is not.
func TestCommandsLoadTheirKernelsAsEver(t *testing.T) {
	small(t).Restart(t)
	d := open(t)
	require.NotContains(t, strings.Join(os.Environ(), "\n"), "CUDA_MODULE_LOADING")
	require.NoError(t, d.Close())
}

func TestWhatIsInUseIsToldApart(t *testing.T) {
	setup := small(t)
	setup.GPUs[0].Module = 8 * mib
	setup.GPUs[0].Others = []fakecuda.Process{
		{PID: 7, Name: "python3", Used: 100 * mib},
		{PID: 9, Name: "Xorg", Used: 200 * mib},
	}
	driver := setup.Restart(t)
	d := open(t)
	require.Equal(t, device.Baseline{
		Others: 300 * mib, OthersKnown: true, Context: 100 * mib,
		Kernels: 8 * mib,
	}, d.Baseline())
	require.Equal(t, int64(616*mib), available(t, d))
	_, err := d.Get(10 * mib)
	require.NoError(t, err)
	own, ok := d.ProcessMemory()
	require.True(t, ok)
	require.Equal(t, int64(118*mib), own)
	require.Equal(t, []device.Neighbor{
		{PID: 7, Name: "python3", Used: 100 * mib, Computes: true},
		{PID: 9, Name: "Xorg", Used: 200 * mib, Computes: true},
	}, d.Neighbors())
	require.NoError(t, d.Close())
	requireClean(t, driver)
	require.Zero(t, driver.Stats(t).NVML, "NVML is released too")
}

// An old NVML counts the 400 MiB that the driver keeps as used.
func TestWhatTheDriverKeepsIsNoOthers(t *testing.T) {
	setup := small(t)
	setup.OldNVML = true
	setup.GPUs[0].Others = []fakecuda.Process{{PID: 7, Name: "python3", Used: 100 * mib}}
	driver := setup.Restart(t)
	d := open(t)
	require.Equal(t, device.Baseline{Others: 100 * mib, OthersKnown: true, Context: 100 * mib}, d.Baseline())
	require.NoError(t, d.Close())
	requireClean(t, driver)
}

// Without NVML a context takes what the catalog says, or somewhat more; the rest is others'.
func TestWithoutNVMLAContextIsAsLargeAsTheCatalogSays(t *testing.T) {
	for others, want := range map[int64]device.Baseline{
		0:         {Context: 100 * mib},
		100 * mib: {Context: 200 * mib},
		500 * mib: {Context: 190 * mib, Others: 410 * mib}, // 190 MiB by the catalog, 100 in fact
	} {
		setup := small(t)
		setup.NVML = 9
		if others > 0 {
			setup.GPUs[0].Others = []fakecuda.Process{{PID: 7, Name: "python3", Used: others}}
		}
		driver := setup.Restart(t)
		d := open(t)
		require.Equal(t, want, d.Baseline())
		require.NoError(t, d.Close())
		requireClean(t, driver)
	}
}

// NVML in a container lists nobody, and shows that the GPU is in use. So much is a process
// that computes, but on a GPU with a display.
func TestWhoIsNotListedIsANeighbor(t *testing.T) {
	for _, tt := range []struct {
		used    int64
		display bool
		want    []device.Neighbor
	}{
		{400 * mib, false, []device.Neighbor{{Used: 400 * mib, Computes: true}}},
		{400 * mib, true, []device.Neighbor{{Used: 400 * mib}}},
		{50 * mib, false, []device.Neighbor{}},
	} {
		setup := small(t)
		setup.GPUs[0].Others = []fakecuda.Process{{PID: 7, Name: "python3", Used: tt.used}}
		setup.GPUs[0].Unlisted, setup.GPUs[0].Display = true, tt.display
		setup.Restart(t)
		d := open(t)
		require.Equal(t, device.Baseline{Others: tt.used, OthersKnown: true, Context: 100 * mib}, d.Baseline())
		require.Equal(t, tt.want, d.Neighbors())
		require.NoError(t, d.Close())
	}
}

func TestWithoutNVMLTheDriverAloneIsAsked(t *testing.T) {
	setup := small(t)
	setup.NVML = 9
	driver := setup.Restart(t)
	d := open(t)
	_, ok := d.ProcessMemory()
	require.False(t, ok)
	require.Empty(t, d.Neighbors())
	require.NoError(t, d.Close())
	requireClean(t, driver)
}

// The fake takes 1 us and 1 ps a byte for a fill.
func TestEventsTellTheTimeOfTheDevice(t *testing.T) {
	driver := small(t).Restart(t)
	d := open(t)
	a, err := d.Get(20_000_000)
	require.NoError(t, err)
	before, err := d.Record()
	require.NoError(t, err)
	require.NoError(t, d.Fill(a, 1, 1_000_000))
	between, err := d.Record()
	require.NoError(t, err)
	require.NoError(t, d.Fill(a, 1, 2_000_000))
	after, err := d.Record()
	require.NoError(t, err)
	for _, tt := range []struct {
		from, to device.Event
		want     time.Duration
	}{
		{before, between, 2 * time.Microsecond},
		{between, after, 3 * time.Microsecond},
		{before, after, 5 * time.Microsecond},
	} {
		took, err := tt.to.Since(tt.from)
		require.NoError(t, err)
		require.InDelta(t, tt.want, took, 2)
	}
	for _, e := range []device.Event{before, between, after} {
		require.NoError(t, e.Close())
	}
	_, err = d.Record()
	require.NoError(t, err)
	require.Equal(t, uint64(3), driver.Stats(t).Events, "events are used again")
	require.NoError(t, d.Close())
	requireClean(t, driver)
}

func TestTheCachingAllocatorRunsOnTheDevice(t *testing.T) {
	for _, conf := range []string{
		"", "expandable_segments:True", "max_split_size_mb:20",
		"garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
	} {
		t.Run(conf, func(t *testing.T) {
			driver := small(t).Restart(t)
			d := open(t)
			config, err := allocator.ParseConfig(conf)
			require.NoError(t, err)
			real, err := allocator.New(d, config)
			require.NoError(t, err)
			counted, err := allocator.New(allocator.NewMemory(1024*mib, 100*mib), config)
			require.NoError(t, err)
			random := rand.New(rand.NewPCG(1, 2))
			var live [][2]*allocator.Block
			for range 2000 {
				if len(live) > 0 && random.IntN(100) < 45 {
					i := random.IntN(len(live))
					real.Free(live[i][0])
					counted.Free(live[i][1])
					live[i] = live[len(live)-1]
					live = live[:len(live)-1]
					continue
				}
				n := 1 + random.Int64N(1<<(10+random.IntN(16)))
				a, errA := real.Malloc(n)
				b, errB := counted.Malloc(n)
				require.Equal(t, errB == nil, errA == nil, "%v and %v", errA, errB)
				if errA != nil {
					var oom *allocator.OOMError
					require.ErrorAs(t, errA, &oom)
					continue
				}
				live = append(live, [2]*allocator.Block{a, b})
				require.Equal(t, counted.Reserved(), real.Reserved())
				require.Equal(t, int64(924*mib)-real.Reserved(), available(t, d))
			}
			require.Equal(t, counted.Stats(), real.Stats())
			require.NoError(t, d.Close())
			requireClean(t, driver)
		})
	}
}

// session returns a bit of everything that a device is asked for.
func session() (err error) {
	d, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, expandable := range []bool{false, true} {
		config := allocator.DefaultConfig()
		config.Expandable = expandable
		a, err := allocator.New(d, config)
		if err != nil {
			return err
		}
		before, err := d.Record()
		if err != nil {
			return err
		}
		var blocks []*allocator.Block
		for _, n := range []int64{100, 3 * mib, 30 * mib} {
			b, err := a.Malloc(n)
			if err != nil {
				return err
			}
			blocks = append(blocks, b)
		}
		r := device.Range{Addr: blocks[1].Addr(), Bytes: mib}
		w := device.Range{Addr: blocks[2].Addr(), Bytes: mib}
		if err := errors.Join(
			d.Fill(r.Addr, 7, r.Bytes),
			d.Launch(device.Kernel{
				Work: program.Elementwise, FLOPs: 1 << 18, Reads: []device.Range{r},
				Writes: []device.Range{w},
			}),
		); err != nil {
			return err
		}
		after, err := d.Record()
		if err != nil {
			return err
		}
		if _, err := after.Since(before); err != nil {
			return err
		}
		for _, b := range blocks {
			a.Free(b)
		}
		if err := errors.Join(before.Close(), after.Close(), d.Synchronize(), a.EmptyCache()); err != nil {
			return err
		}
		if _, err := d.AvailableBytes(); err != nil {
			return err
		}
	}
	return nil
}

// Whichever call fails, and with whatever: the error has the name of a call, and nothing is left, neither memory nor a
// handle. Failures that take the context may leave the rest to it.
func TestEveryCallMayFail(t *testing.T) {
	driver := small(t).Restart(t)
	require.NoError(t, session())
	requireClean(t, driver)
	calls := driver.Calls(t)
	each := 1
	if !sample.All() {
		each = 10
	}
	for _, code := range []struct {
		result int
		fatal  bool
	}{{1, false}, {2, false}, {201, false}, {304, false}, {214, true}, {719, true}, {999, true}, {12345, false}} {
		for i, call := range calls {
			// Results that mean nothing of their own are tried at some calls.
			every := each
			if slices.Contains([]int{201, 304, 12345}, code.result) {
				every *= 4
			}
			if i%every != code.result%every {
				continue
			}
			setup := small(t)
			setup.Fail = []string{fakecuda.FailNth(i+1, code.result)}
			driver := setup.Restart(t)
			err := session()
			s := driver.Stats(t)
			require.Equal(t, uint64(1), s.Injected)
			if call == "cuDevicePrimaryCtxRelease" {
				require.Equal(t, uint64(1), s.Alive(), "only the end of the process takes the context back")
			} else {
				require.Zero(t, s.Alive(), "%d: %s fails with %d: %+v", i, call, code.result, s)
				require.Zero(t, s.Used)
			}
			if !code.fatal {
				// At most the one object whose release failed.
				require.LessOrEqual(t, s.Reclaimed, uint64(1), "%d: %s", i, call)
			}
			switch {
			case call == "cuDriverGetVersion" || call == "cuDeviceGetUuid_v2":
				continue // cu does not tell of the one, the other is for NVML
			case code.result == 2 && slices.Contains([]string{
				"cuMemAlloc", "cuMemCreate", "cuMemMap", "cuMemSetAccess",
				"cuMemRelease",
			}, call):
				continue // the allocator empties its cache and tries again
			case call == "cuModuleLoadDataEx" && code.result != 2 && !code.fatal:
				continue // the driver compiles the kernels then
			}
			require.Error(t, err, "%d: %s", i, call)
			require.Empty(t, driver.Violations(t), "%d: %s fails with %d", i, call, code.result)
		}
	}
}

// Kernels that were assembled need no compiler: neither on the GPUs they were made for nor on later ones of the same
// major number. Others, and drivers that refuse them, compile.
func TestTheDriverCompilesOnlyWhatWasNotAssembled(t *testing.T) {
	for _, tt := range []struct {
		capability device.Capability
		refused    bool
		loads      int
	}{
		{70, false, 1},
		{75, false, 1},
		{86, false, 1},
		{87, false, 1},
		{90, false, 1},
		{103, false, 1},
		{121, false, 1},
		{110, false, 1},
		{90, true, 2},
	} {
		setup := small(t)
		setup.GPUs[0].Capability, setup.Backed = tt.capability, true
		if tt.refused {
			setup.Fail = []string{fakecuda.FailCall("cuModuleLoadDataEx", 1, 200)}
		}
		driver := setup.Restart(t)
		d := open(t)
		require.NoError(t, d.Close())
		loads := 0
		for _, call := range driver.Calls(t) {
			if call == "cuModuleLoadDataEx" {
				loads++
			}
		}
		require.Equal(t, tt.loads, loads, "%v", tt.capability)
		requireClean(t, driver)
	}
}

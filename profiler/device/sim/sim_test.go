package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/program"
)

const (
	mib     = 1 << 20
	granule = 2 * mib
)

// small is a GPU on which arithmetic is easy: 100 MiB, of which the context
// takes 20; 1 GB/s and 1 GFLOP/s, twice that in fp16.
var small = device.GPU{
	Name: "small", Memory: 100 * mib, Context: 20 * mib,
	Bandwidth: 1e9, Peak: device.Rates{FP32: 1e9, FP16: 2e9},
}

func newSim(t require.TestingT, taken int64) *sim.Device {
	d, err := sim.New(small, taken)
	require.NoError(t, err)
	return d
}

func available(t require.TestingT, d device.Device) int64 {
	n, err := d.AvailableBytes()
	require.NoError(t, err)
	return n
}

func TestEveryGPUOfTheCatalogCanBeSimulated(t *testing.T) {
	for _, gpu := range device.Catalog() {
		d, err := sim.New(gpu, 0)
		require.NoError(t, err)
		require.Equal(t, "sim:"+gpu.Name, d.Name())
		require.Equal(t, gpu, d.GPU())
		require.True(t, d.Simulated())
		require.Equal(t, gpu.Memory, d.Total())
		require.Equal(t, gpu.Memory-gpu.Context, available(t, d))
	}
}

func TestMemoryGoesInGranules(t *testing.T) {
	d := newSim(t, 0)
	addr, err := d.Get(1) // 80 MiB free; one byte takes 2 MiB
	require.NoError(t, err)
	require.Equal(t, int64(78*mib), available(t, d))
	require.NoError(t, d.Put(addr, 1))
	require.Equal(t, int64(80*mib), available(t, d))
}

func TestMemoryEndsWhereContextAndOthersBegin(t *testing.T) {
	d := newSim(t, 10*mib) // 100 - 20 - 10
	_, err := d.Get(70*mib + 1)
	require.ErrorIs(t, err, allocator.ErrOutOfMemory)
	addr, err := d.Get(70 * mib)
	require.NoError(t, err)
	_, err = d.Get(1)
	require.ErrorIs(t, err, allocator.ErrOutOfMemory)
	require.NoError(t, d.Put(addr, 70*mib))
	require.Equal(t, int64(70*mib), available(t, d))
}

// A GPU whose memory is no multiple of the granule cannot give its rest.
func TestARestBelowAGranuleStaysFree(t *testing.T) {
	gpu := small
	gpu.Memory += 1 * mib
	d, err := sim.New(gpu, 0)
	require.NoError(t, err)
	_, err = d.Get(80 * mib)
	require.NoError(t, err)
	_, err = d.Get(1)
	require.ErrorIs(t, err, allocator.ErrOutOfMemory)
	require.Equal(t, int64(1*mib), available(t, d))
}

func TestReservingTakesAddressesAndMappingTakesMemory(t *testing.T) {
	d := newSim(t, 0)
	addr, err := d.Reserve(1 << 40)
	require.NoError(t, err)
	require.Equal(t, int64(80*mib), available(t, d))
	require.NoError(t, d.Map(addr, 60*mib))
	require.Equal(t, int64(20*mib), available(t, d))
	require.ErrorIs(t, d.Map(addr+60*mib, 40*mib), allocator.ErrOutOfMemory)
	require.NoError(t, d.Unmap(addr, 60*mib))
	require.NoError(t, d.Release(addr, 1<<40))
	require.Equal(t, int64(80*mib), available(t, d))
}

func TestADeviceWithoutRoomIsRefused(t *testing.T) {
	_, err := sim.New(small, 80*mib)
	require.ErrorContains(t, err,
		"no memory is left of its 100.00 MiB: the CUDA context uses 20.00 MiB, and other processes use 80.00 MiB; set a smaller number for other processes")
	_, err = sim.New(small, -1)
	require.ErrorContains(t, err, "used by other processes")
}

// Whatever is got and put back: segments never overlap, memory in use is the
// sum of their granules, and a request fails only if it does not fit.
func TestMemoryIsTheSumOfWhatIsHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type segment struct {
			addr uint64
			size int64
		}
		d := newSim(t, 0)
		d.Rising = rapid.Bool().Draw(t, "rising")
		var held []segment
		free := int64(80 * mib)
		var last segment
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				size := rapid.Int64Range(1, 30*mib).Draw(t, "size")
				taken := (size + granule - 1) / granule * granule
				addr, err := d.Get(size)
				if taken > free {
					require.ErrorIs(t, err, allocator.ErrOutOfMemory)
					return
				}
				require.NoError(t, err)
				require.Zero(t, addr%granule)
				if last.size != 0 && d.Rising {
					require.GreaterOrEqual(t, addr, last.addr+uint64(last.size))
				} else if last.size != 0 {
					require.LessOrEqual(t, addr+uint64(size), last.addr)
				}
				last = segment{addr, size}
				held = append(held, last)
				free -= taken
			},
			"put": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing held")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				require.NoError(t, d.Put(held[i].addr, held[i].size))
				free += (held[i].size + granule - 1) / granule * granule
				held = append(held[:i], held[i+1:]...)
			},
			"": func(t *rapid.T) { require.Equal(t, free, available(t, d)) },
		})
	})
}

func TestTimeIsTheRooflineOfTheWork(t *testing.T) {
	d := newSim(t, 0)
	tests := []struct {
		name string
		run  func() error
		want time.Duration
	}{
		{"fill", func() error { return d.Fill(0, 1, 1e6) }, time.Millisecond},
		{"memory-bound kernel", func() error {
			ranges := []device.Range{{Bytes: 1e6}, {Bytes: 2e6}}
			return d.Launch(device.Kernel{FLOPs: 10, Reads: ranges, Writes: ranges[:1]})
		}, 4 * time.Millisecond},
		{"fp16 kernel", func() error {
			return d.Launch(device.Kernel{Work: program.Matmul, Precision: program.FP16, FLOPs: 2e6})
		}, time.Millisecond},
		{"nothing", d.Synchronize, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, err := d.Record()
			require.NoError(t, err)
			require.NoError(t, tt.run())
			after, err := d.Record()
			require.NoError(t, err)
			took, err := after.Since(before)
			require.NoError(t, err)
			require.InDelta(t, tt.want, took, 1)
			require.NoError(t, before.Close())
			require.NoError(t, after.Close())
		})
	}
	require.NoError(t, d.Close())
}

func TestEventsOfTwoDevicesHaveNoTimeBetween(t *testing.T) {
	a, err := newSim(t, 0).Record()
	require.NoError(t, err)
	b, err := newSim(t, 0).Record()
	require.NoError(t, err)
	_, err = a.Since(b)
	require.ErrorContains(t, err, "another device")
}

// The GPU has 80 MiB for others than the context: 60 MiB in the cache leave
// no room for 70, so the allocator empties it and tries again; 90 never fit.
func TestTheCachingAllocatorRunsOnTheDevice(t *testing.T) {
	for _, expandable := range []bool{false, true} {
		d := newSim(t, 0)
		config := allocator.DefaultConfig()
		config.Expandable = expandable
		a, err := allocator.New(d, config)
		require.NoError(t, err)
		block, err := a.Malloc(60 * mib)
		require.NoError(t, err)
		a.Free(block)
		_, err = a.Malloc(70 * mib)
		require.NoError(t, err)
		require.Equal(t, d.Total()-small.Context-available(t, d), a.Reserved())
		_, err = a.Malloc(90 * mib)
		var oom *allocator.OOMError
		require.ErrorAs(t, err, &oom)
	}
}

func BenchmarkLaunch(b *testing.B) {
	d := newSim(b, 0)
	ranges := []device.Range{{Bytes: 1 << 20}, {Bytes: 1 << 20}, {Bytes: 1 << 20}}
	k := device.Kernel{Work: program.Elementwise, FLOPs: 1 << 18, Reads: ranges[:2], Writes: ranges[2:]}
	for b.Loop() {
		if err := d.Launch(k); err != nil {
			b.Fatal(err)
		}
	}
}

func TestStreamsRunSideBySide(t *testing.T) {
	gpu, err := device.Lookup("h100")
	require.NoError(t, err)
	d, err := sim.New(gpu, 0)
	require.NoError(t, err)
	start, err := d.Record()
	require.NoError(t, err)
	compute := device.Kernel{FLOPs: 1e9}
	send := device.Kernel{Work: program.AllGather, Stream: 1, Sent: 900e9}
	require.NoError(t, d.Launch(send))
	require.NoError(t, d.Launch(compute))
	sent, err := d.RecordOn(1)
	require.NoError(t, err)
	since := func() time.Duration {
		now, err := d.Record()
		require.NoError(t, err)
		took, err := now.Since(start)
		require.NoError(t, err)
		return took
	}
	require.Equal(t, gpu.Roofline(1e9, 0, program.FP32), since())
	require.NoError(t, d.Await(0, sent))
	require.Equal(t, 2*time.Second, since())

	other, err := sim.New(gpu, 0)
	require.NoError(t, err)
	require.ErrorContains(t, other.Await(0, sent), "an event of another device")
}

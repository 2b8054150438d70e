//go:build cuda && linux && cgo

package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/fakecuda"
)

func quiet(b *testing.B) device.Device {
	setup := fakecuda.Simulated(catalogGPU(b, "h200"))
	setup.Quiet = true
	setup.Restart(b)
	d := open(b)
	b.Cleanup(func() { require.NoError(b, d.Close()) })
	return d
}

// BenchmarkMeasure replays two steps of redimnet-b2 with all launches, on a driver that does nothing: what is left is
// the overhead of vprof and cu. It should take at most 3 us an instruction.
func BenchmarkMeasure(b *testing.B) {
	d := quiet(b)
	gpu := d.GPU()
	rec, err := all.Models().Record(models.Case{Model: "redimnet-b2", Batch: 32},
		trace.GPU{
			Name: gpu.Name, Capability: int(gpu.Capability), SMs: gpu.SMs, ThreadsPerSM: gpu.ThreadsPerSM,
			Memory: gpu.Memory,
		}, models.Options{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := replay.Measure(b.Context(), d, rec.Program, replay.Conditions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rec.Program.Instructions)),
		"ns/instruction")
}

// BenchmarkLaunch is an op with two inputs and an output.
func BenchmarkLaunch(b *testing.B) {
	d := quiet(b)
	addr, err := d.Get(8 * mib)
	require.NoError(b, err)
	ranges := []device.Range{{Addr: addr, Bytes: mib}, {Addr: addr + mib, Bytes: mib}, {Addr: addr + 2*mib, Bytes: mib}}
	k := device.Kernel{Work: program.Elementwise, FLOPs: 1 << 18, Reads: ranges[:2], Writes: ranges[2:]}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Launch(k); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, d.Synchronize())
}

// BenchmarkMalloc allocates and frees where the cache has room: no call of the driver. It should take at most 200 ns.
func BenchmarkMalloc(b *testing.B) {
	a, err := allocator.New(quiet(b), allocator.DefaultConfig())
	require.NoError(b, err)
	kept, err := a.Malloc(64 * mib)
	require.NoError(b, err)
	a.Free(kept)
	for b.Loop() {
		block, err := a.Malloc(3 * mib)
		if err != nil {
			b.Fatal(err)
		}
		a.Free(block)
	}
	require.NoError(b, a.EmptyCache())
}

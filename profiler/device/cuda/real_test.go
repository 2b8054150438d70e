//go:build cuda && linux && cgo

package cuda_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// What follows needs a GPU that nobody else uses: "make gpu-check" runs it on
// the first one. The names begin with TestReal and BenchmarkReal, and run in a
// process of their own, since a driver is loaded once.

func realGPU(t testing.TB) *cuda.Device {
	if os.Getenv("VPROF_GPU") == "" {
		t.Skip("VPROF_GPU is not set: make gpu-check sets it, on a machine with a GPU")
	}
	d := open(t)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestRealBoardIsAsTheCatalogSays(t *testing.T) {
	d := realGPU(t)
	gpu := d.GPU()
	t.Logf("%s: %d SMs, %d bytes, baseline %+v", gpu.Product, gpu.SMs, gpu.Memory, d.Baseline())
	known, err := device.Lookup(gpu.Product)
	if err != nil {
		t.Skipf("the catalog does not have it: %v", err)
	}
	require.Equal(t, known.Capability, gpu.Capability)
	require.Equal(t, known.SMs, gpu.SMs)
	require.Equal(t, known.ThreadsPerSM, gpu.ThreadsPerSM)
	require.InEpsilon(t, known.Memory, gpu.Memory, 0.02)
}

func TestRealMemoryComesBack(t *testing.T) {
	before := available(t, realGPU(t))
	require.NoError(t, session())
	require.InDelta(t, before, available(t, realGPU(t)), 64*mib, "the driver may keep some")
}

// A board is filled by segments of 1 GiB until one does not fit, and by pages.
// The failure is the allocator's, and everything comes back.
func TestRealMemoryEnds(t *testing.T) {
	d := realGPU(t)
	before := available(t, d)
	const size = 1 << 30
	var held []uint64
	for {
		addr, err := d.Get(size)
		if err != nil {
			require.ErrorIs(t, err, allocator.ErrOutOfMemory)
			break
		}
		if n := len(held); n > 0 && addr < held[n-1] {
			t.Logf("segment %d lies below the one before: %#x, %#x", n, addr, held[n-1])
		}
		held = append(held, addr)
	}
	require.InDelta(t, before, int64(len(held))*size, 1.5*size)
	for _, addr := range held {
		require.NoError(t, d.Put(addr, size))
	}
	require.InDelta(t, before, available(t, d), 4*mib)

	const page = 20 * mib
	total := d.Total() / page * page
	r, err := d.Reserve(total)
	require.NoError(t, err)
	mapped := int64(0)
	for ; ; mapped += page {
		if err := d.Map(r+uint64(mapped), page); err != nil {
			require.ErrorIs(t, err, allocator.ErrOutOfMemory)
			break
		}
	}
	require.InDelta(t, before, mapped, 1<<30)
	require.NoError(t, d.Fill(r, 1, mapped))
	require.NoError(t, d.Synchronize())
	for at := int64(0); at < mapped; at += page {
		require.NoError(t, d.Unmap(r+uint64(at), page))
	}
	require.NoError(t, d.Release(r, total))
	require.InDelta(t, before, available(t, d), 4*mib)
}

func TestRealPatternsAreFoundAgain(t *testing.T) {
	d := realGPU(t)
	addr, err := d.Get(512 * mib)
	require.NoError(t, err)
	p, err := d.Patterns()
	require.NoError(t, err)
	for _, n := range []int64{1, 15, 17, 70_001, 512 * mib} {
		r := device.Range{Addr: addr, Bytes: n}
		require.NoError(t, p.Write(r, 42))
		require.NoError(t, p.Verify(r, 42))
		require.ErrorAs(t, p.Verify(r, 43), new(*device.PatternError))
	}
	require.NoError(t, p.Close())
	require.NoError(t, d.Put(addr, 512*mib))
}

// Every kind of work in every precision runs without touching foreign memory.
func TestRealKernelsRun(t *testing.T) {
	d := realGPU(t)
	addr, err := d.Get(64 * mib)
	require.NoError(t, err)
	for w := program.Elementwise; w <= program.OptimizerUpdate; w++ {
		for _, p := range []program.Precision{program.FP32, program.TF32, program.FP16, program.BF16, program.FP64} {
			for _, n := range []int64{2, 1000, 8 * mib} {
				k := device.Kernel{
					Work: w, Precision: p, FLOPs: 100 * n, M: 64, N: 64, K: 64, Batch: 1,
					Reads:  []device.Range{{Addr: addr, Bytes: n}, {Addr: addr + 16*mib, Bytes: n / 2}},
					Writes: []device.Range{{Addr: addr + 32*mib, Bytes: n}},
				}
				require.NoError(t, errors.Join(d.Launch(k), d.Synchronize()), "%v %v of %d bytes", w, p, n)
			}
		}
	}
	require.NoError(t, d.Put(addr, 64*mib))
}

// Measuring on the board: allocated bytes are those of a simulation; what the
// driver shows beyond the reserved ones is the context and the kernels.
func TestRealMeasurementsAreSimulations(t *testing.T) {
	d := realGPU(t)
	p := &program.Program{Phases: []program.Phase{{Step: 0, Name: "step"}}, Sites: []program.Site{{}}}
	for i := range uint32(200) {
		p.Buffers = append(p.Buffers, program.Buffer{Bytes: 1 + int64(i)*int64(i)*1000})
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Alloc, Arg: i})
		if i%3 == 2 {
			p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Free, Arg: i - 1})
		}
	}
	p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Mark})
	for _, expandable := range []bool{false, true} {
		config := allocator.DefaultConfig()
		config.Expandable = expandable
		m, err := replay.Measure(t.Context(), d, p, replay.Conditions{Config: &config, Verify: true})
		require.NoError(t, err)
		run, err := replay.Replay(t.Context(), p, replay.Options{Config: &config})
		require.NoError(t, err)
		require.Equal(t, run.Max.Allocated, m.Max.Allocated)
		require.Equal(t, 200, m.Verified)
		t.Logf("expandable %v: reserved %d, simulated %d; device %d beyond baseline", expandable, m.Max.Reserved, run.Max.Reserved, m.Device-m.Baseline.Total())
		require.InDelta(t, m.Max.Reserved, m.Device-m.Baseline.Total(), 8*mib)
	}
}

// BenchmarkReal says how close kernels come to what the board can do: GB/s and
// TFLOP/s, and the share of the catalog's peak.
func BenchmarkReal(b *testing.B) {
	d := realGPU(b)
	const large = 1 << 30
	addr, err := d.Get(3 * large)
	require.NoError(b, err)
	defer func() { require.NoError(b, d.Put(addr, 3*large)) }()
	p, err := d.Patterns()
	require.NoError(b, err)
	defer func() { require.NoError(b, p.Close()) }()
	x, y, z := device.Range{Addr: addr, Bytes: large}, device.Range{Addr: addr + large, Bytes: large}, device.Range{Addr: addr + 2*large, Bytes: large}
	const side = 4096
	square := func(p program.Precision, size int64) device.Kernel {
		n := side * side * size
		return device.Kernel{
			Work: program.Matmul, Precision: p, FLOPs: 2 * side * side * side, M: side, N: side, K: side, Batch: 1,
			Reads: []device.Range{{Addr: x.Addr, Bytes: n}, {Addr: y.Addr, Bytes: n}}, Writes: []device.Range{{Addr: z.Addr, Bytes: n}},
		}
	}
	for _, k := range []struct {
		name   string
		run    func() error
		bytes  int64
		kernel device.Kernel
	}{
		{"fill", func() error { return p.Write(x, 1) }, large, device.Kernel{}},
		{name: "copy", kernel: device.Kernel{Work: program.Copy, Reads: []device.Range{x}, Writes: []device.Range{y}}},
		{name: "elementwise-f32", kernel: device.Kernel{Work: program.Elementwise, FLOPs: large / 4, Reads: []device.Range{x, y}, Writes: []device.Range{z}}},
		{name: "elementwise-f16", kernel: device.Kernel{Work: program.Elementwise, Precision: program.FP16, FLOPs: large / 2, Reads: []device.Range{x, y}, Writes: []device.Range{z}}},
		{name: "gemm-f32", kernel: square(program.FP32, 4)},
		{name: "gemm-f16", kernel: square(program.FP16, 2)},
		{name: "gemm-bf16", kernel: square(program.BF16, 2)},
	} {
		b.Run(k.name, func(b *testing.B) {
			run, bytes := k.run, k.bytes
			if run == nil {
				run, bytes = func() error { return d.Launch(k.kernel) }, k.kernel.Traffic()
			}
			benchmarkReal(b, d, run, bytes, k.kernel)
		})
	}
}

func benchmarkReal(b *testing.B, d *cuda.Device, run func() error, bytes int64, k device.Kernel) {
	require.NoError(b, run())
	before, err := d.Record()
	require.NoError(b, err)
	for b.Loop() {
		if err := run(); err != nil {
			b.Fatal(err)
		}
	}
	after, err := d.Record()
	require.NoError(b, err)
	took, err := after.Since(before)
	require.NoError(b, errors.Join(err, before.Close(), after.Close()))
	each := took.Seconds() / float64(b.N)
	b.ReportMetric(each*float64(time.Second/time.Nanosecond), "device-ns/op")
	gpu := d.GPU()
	if k.M > 0 {
		b.ReportMetric(float64(k.FLOPs)/each/1e12, "TFLOP/s")
		if peak := gpu.Peak.Of(k.Precision); peak > 0 {
			b.ReportMetric(100*float64(k.FLOPs)/each/peak, "%peak")
		}
		return
	}
	b.ReportMetric(float64(bytes)/each/1e9, "GB/s")
	if gpu.Bandwidth > 0 {
		b.ReportMetric(100*float64(bytes)/each/gpu.Bandwidth, "%peak")
	}
}

//go:build cuda && linux && cgo

package cuda_test

import (
	"errors"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// What follows is for a GPU that nobody else uses: "make gpu-check" runs it on the first one, in a process of its own,
// since a driver is loaded once. Without a GPU it runs on a small GPU of the fake driver, so that it works when there
// is one. The names begin with TestReal and BenchmarkReal.

// onGPU reports whether there is a GPU to test.
var onGPU = os.Getenv("VPROF_REAL_GPU") != ""

// realGPU opens that GPU. The goroutine must be the only one that uses it.
func realGPU(t testing.TB) *cuda.Device {
	if !onGPU {
		setup := small(t)
		setup.Backed = true
		setup.Restart(t)
	}
	d := open(t)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// kept returns what may be in use besides: the driver keeps some, and a compositor or a
// browser on the GPU takes and gives as it draws.
func kept(d *cuda.Device) float64 {
	if len(d.Neighbors()) > 0 {
		return 256 * mib
	}
	return 4 * mib
}

// sized returns a size for a GPU, or one for the CPU that stands for it.
func sized(gpu, cpu int64) int64 {
	if onGPU {
		return gpu
	}
	return cpu
}

func TestRealGPUIsAsTheCatalogSays(t *testing.T) {
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
	if onGPU { // the one that stands for it is small
		require.InEpsilon(t, known.Memory, gpu.Memory, 0.02)
	}
}

func TestRealMemoryComesBack(t *testing.T) {
	d := realGPU(t)
	before := available(t, d)
	for range 3 {
		a, err := d.Get(64 * mib)
		require.NoError(t, err)
		require.LessOrEqual(t, float64(available(t, d)), float64(before-64*mib)+kept(d)-4*mib)
		require.NoError(t, d.Put(a, 64*mib))
	}
	require.InDelta(t, before, available(t, d), kept(d))
}

// A device may be opened again and again, and what it is asked for does not add up.
func TestRealSessionsLeaveNothing(t *testing.T) {
	if !onGPU {
		small(t).Restart(t)
	}
	var first int64
	for i := range 3 {
		require.NoError(t, session())
		d := open(t)
		if i == 0 {
			first = available(t, d)
		}
		require.InDelta(t, first, available(t, d), 64*mib)
		require.NoError(t, d.Close())
	}
}

// A GPU is filled by segments until one does not fit, and by pages.
// The failure is the allocator's, and everything comes back.
func TestRealMemoryEnds(t *testing.T) {
	d := realGPU(t)
	before := available(t, d)
	size := sized(1<<30, 64*mib)
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
	require.InDelta(t, before, int64(len(held))*size, 1.5*float64(size)+kept(d))
	for _, addr := range held {
		require.NoError(t, d.Put(addr, size))
	}
	require.InDelta(t, before, available(t, d), kept(d))

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
	require.InDelta(t, before, available(t, d), kept(d))
}

func TestRealPatternsAreFoundAgain(t *testing.T) {
	d := realGPU(t)
	// Beyond 4 GiB where the GPU has room for two of them.
	large := sized(min(5<<30, available(t, d)/3/mib*mib), mib)
	addr, err := d.Get(large)
	require.NoError(t, err)
	p, err := d.Patterns()
	require.NoError(t, err)
	other, err := d.Get(large)
	require.NoError(t, err)
	from, to := device.Range{Addr: addr, Bytes: large}, device.Range{Addr: other, Bytes: large}
	require.NoError(t, p.Write(from, 41))
	require.NoError(t, d.Launch(device.Kernel{
		Work: program.Copy, Reads: []device.Range{from}, Writes: []device.Range{to},
	}))
	require.NoError(t, p.Verify(to, 41))
	require.NoError(t, d.Put(other, large))
	for _, n := range []int64{1, 15, 17, 70_001, large} {
		r := device.Range{Addr: addr, Bytes: n}
		require.NoError(t, p.Write(r, 42))
		require.NoError(t, p.Verify(r, 42))
		require.ErrorAs(t, p.Verify(r, 43), new(*device.PatternError))
	}
	require.NoError(t, p.Close())
	require.NoError(t, d.Put(addr, large))
}

// Every kind of work in every precision runs without touching foreign memory.
func TestRealKernelsRun(t *testing.T) {
	d := realGPU(t)
	addr, err := d.Get(64 * mib)
	require.NoError(t, err)
	for w := program.Elementwise; w <= program.OptimizerUpdate; w++ {
		for _, p := range []program.Precision{program.FP32, program.TF32, program.FP16, program.BF16, program.FP64} {
			for _, n := range []int64{2, 1000, sized(8*mib, 10_000)} {
				k := device.Kernel{
					Work: w, Precision: p, FLOPs: sized(100, 1) * n, M: 64, N: 64, K: 64, Batch: 1,
					Reads:  []device.Range{{Addr: addr, Bytes: n}, {Addr: addr + 16*mib, Bytes: n / 2}},
					Writes: []device.Range{{Addr: addr + 32*mib, Bytes: n}},
				}
				require.NoError(t, errors.Join(d.Launch(k), d.Synchronize()), "%v %v of %d bytes", w, p, n)
			}
		}
	}
	require.NoError(t, d.Put(addr, 64*mib))
}

// Operands of gigabytes, each at the end of its memory: no kind of work touches what lies between their ends and the
// next.
func TestRealKernelsStayWithinOperandsOfGigabytes(t *testing.T) {
	d := realGPU(t)
	const edge = 64 << 10
	bytes := sized(min(9<<29, (available(t, d)-edge)/5/mib*mib), 64<<10)
	addr, err := d.Get(3*(bytes+edge) + edge)
	require.NoError(t, err)
	p, err := d.Patterns()
	require.NoError(t, err)
	var edges, operands []device.Range
	for i := range uint64(4) {
		at := addr + i*uint64(bytes+edge)
		edges = append(edges, device.Range{Addr: at, Bytes: edge})
		operands = append(operands, device.Range{Addr: at + edge, Bytes: bytes})
		require.NoError(t, p.Write(edges[i], i))
	}
	for w := program.Elementwise; w <= program.OptimizerUpdate; w++ {
		for _, precision := range []program.Precision{program.FP32, program.FP16} {
			k := device.Kernel{
				Work: w, Precision: precision, FLOPs: bytes / 4, M: bytes / 256, N: 64, K: 64, Batch: 1,
				Reads: operands[:2], Writes: operands[2:3],
			}
			require.NoError(t, errors.Join(d.Launch(k), d.Synchronize()), "%v %v", w, precision)
			for i, e := range edges {
				require.NoError(t, p.Verify(e, uint64(i)), "%v %v", w, precision)
			}
		}
	}
	require.NoError(t, p.Close())
	require.NoError(t, d.Put(addr, 3*(bytes+edge)+edge))
}

// Measuring on the GPU: allocated bytes equal a simulation's; the bytes that the driver shows beyond the reserved ones
// are the context and the kernels.
func TestRealMeasurementsAreSimulations(t *testing.T) {
	d := realGPU(t)
	p := &program.Program{Phases: []program.Phase{{Step: 0, Name: "step"}}, Sites: []program.Site{{}}}
	for i := range uint32(200) {
		p.Buffers = append(p.Buffers, program.Buffer{Bytes: 1 + int64(i)*int64(i)*sized(1000, 50)})
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Alloc, Arg: i})
		if i%3 == 2 {
			p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Free, Arg: i - 1})
		}
	}
	p.Instructions = append(p.Instructions, program.Instruction{Kind: program.MarkPhase})
	for _, expandable := range []bool{false, true} {
		config := allocator.DefaultConfig()
		config.Expandable = expandable
		m, err := replay.Measure(t.Context(), d, p, replay.Conditions{Config: &config, Verify: true})
		require.NoError(t, err)
		run, err := replay.Replay(t.Context(), p, replay.Options{Config: &config})
		require.NoError(t, err)
		require.Equal(t, run.Max.Allocated, m.Max.Allocated)
		require.Equal(t, 200, m.Verified)
		t.Logf("expandable %v: reserved %d, simulated %d; device %d beyond baseline", expandable, m.Max.Reserved,
			run.Max.Reserved, m.Device-m.Baseline.Total())
		require.InDelta(t, m.Max.Reserved, m.Device-m.Baseline.Total(), 4*mib+kept(d))
	}
}

// peaks returns the kernels whose speed is measured: of fills, copies and
// elementwise work over a number of bytes, and of square matrix products.
func peaks(bytes, side int64) map[string]device.Kernel {
	x, y, z := device.Range{Bytes: bytes}, device.Range{Addr: uint64(bytes), Bytes: bytes},
		device.Range{Addr: uint64(2 * bytes), Bytes: bytes}
	elementwise := func(p program.Precision, size int64) device.Kernel {
		return device.Kernel{
			Work: program.Elementwise, Precision: p, FLOPs: bytes / size, Reads: []device.Range{x, y},
			Writes: []device.Range{z},
		}
	}
	square := func(p program.Precision, size int64) device.Kernel {
		n := side * side * size
		return device.Kernel{
			Work: program.Matmul, Precision: p, FLOPs: 2 * side * side * side, M: side, N: side, K: side, Batch: 1,
			Reads:  []device.Range{{Bytes: n}, {Addr: y.Addr, Bytes: n}},
			Writes: []device.Range{{Addr: z.Addr, Bytes: n}},
		}
	}
	all := map[string]device.Kernel{
		"fill":            {Writes: []device.Range{x}},
		"copy":            {Work: program.Copy, Reads: []device.Range{x}, Writes: []device.Range{y}},
		"elementwise-f32": elementwise(program.FP32, 4),
		"elementwise-f16": elementwise(program.FP16, 2),
		"gemm-f32":        square(program.FP32, 4),
		"gemm-tf32":       square(program.TF32, 4),
		"gemm-f16":        square(program.FP16, 2),
		"gemm-bf16":       square(program.BF16, 2),
	}
	half := device.Range{Addr: y.Addr, Bytes: bytes / 2}
	work := func(w program.Work, reads []device.Range, write device.Range) device.Kernel {
		return device.Kernel{
			Work: w, Precision: program.FP16, FLOPs: 5 * bytes / 2, Reads: reads, Writes: []device.Range{write},
		}
	}
	one := []device.Range{x}
	all["cast-f32-f16"] = device.Kernel{
		Work: program.Copy, Precision: program.FP16, Reads: one, Writes: []device.Range{half},
	}
	all["softmax-f16"] = work(program.Softmax, one, y)
	all["normalize-f16"] = work(program.Normalization, one, y)
	all["reduce-f16"] = work(program.Reduction, one, device.Range{Addr: y.Addr, Bytes: bytes / 1024})
	all["gather"] = work(program.Index, one, y)
	all["update-f32"] = device.Kernel{
		Work: program.OptimizerUpdate, FLOPs: bytes, Reads: []device.Range{x, y, z}, Writes: []device.Range{x, z},
	}
	all["attention-f16"] = attentionKernel(side, z)
	all["convolution-f16"] = convolutionKernel(side, z)
	return all
}

// attentionKernel returns attention over heads of 64 elements, as many positions as side.
func attentionKernel(side int64, at device.Range) device.Kernel {
	const depth = 64
	heads := max(1, side/64)
	n := heads * side * depth * 2
	return device.Kernel{
		Work: program.Attention, Precision: program.FP16, FLOPs: 4 * heads * side * side * depth,
		M: side, N: side, K: depth, Batch: heads,
		Reads:  []device.Range{{Bytes: n}, {Addr: uint64(n), Bytes: n}, {Addr: uint64(2 * n), Bytes: n}},
		Writes: []device.Range{{Addr: at.Addr, Bytes: n}},
	}
}

// convolutionKernel returns a convolution of 3 by 3 over images of 16 by 16 pixels, with 64 channels on either side.
func convolutionKernel(side int64, at device.Range) device.Kernel {
	const edge, channels, taps = 16, 64, 9
	images := max(1, side*side/4096)
	n := images * edge * edge * channels * 2
	return device.Kernel{
		Work: program.Convolution, Precision: program.FP16, FLOPs: 2 * images * edge * edge * channels * channels * taps,
		M: channels, N: images * edge * edge, K: channels * taps, Batch: 1,
		Window: program.Window{
			Images: images, Height: edge, Width: edge, TapsY: 3, TapsX: 3, StrideY: 1, StrideX: 1, PadY: 1, PadX: 1,
			DilationY: 1, DilationX: 1,
		},
		Reads:  []device.Range{{Bytes: n}, {Addr: uint64(n), Bytes: channels * channels * taps * 2}},
		Writes: []device.Range{{Addr: at.Addr, Bytes: n}},
	}
}

// BenchmarkReal says how close kernels come to what the GPU can do: GB/s and
// TFLOP/s, and the share of the catalog's peak.
func BenchmarkReal(b *testing.B) {
	bytes := sized(1<<30, 64<<10)
	all := peaks(bytes, sized(4096, 64))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.Run(name, func(b *testing.B) {
			// A benchmark is a goroutine of its own, and so has its own device.
			d := realGPU(b)
			addr, err := d.Get(3 * bytes)
			require.NoError(b, err)
			k := all[name]
			k.Reads, k.Writes = moved(k.Reads, addr), moved(k.Writes, addr)
			run := func() error { return d.Launch(k) }
			if len(k.Reads) == 0 {
				p, err := d.Patterns()
				require.NoError(b, err)
				run = func() error { return p.Write(k.Writes[0], 1) }
			}
			if k.M > 0 && d.GPU().Peak.ForPrecision(k.Precision) == 0 {
				b.Skip("the catalog has no peak of it for the GPU")
			}
			benchmarkReal(b, d, run, k)
		})
	}
}

// moved returns ranges further on.
func moved(ranges []device.Range, by uint64) []device.Range {
	out := slices.Clone(ranges)
	for i := range out {
		out[i].Addr += by
	}
	return out
}

func benchmarkReal(b *testing.B, d *cuda.Device, run func() error, k device.Kernel) {
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
		if peak := gpu.Peak.ForPrecision(k.Precision); peak > 0 {
			b.ReportMetric(100*float64(k.FLOPs)/each/peak, "%peak")
		}
		return
	}
	b.ReportMetric(float64(k.Traffic())/each/1e9, "GB/s")
	if gpu.Bandwidth > 0 {
		b.ReportMetric(100*float64(k.Traffic())/each/gpu.Bandwidth, "%peak")
	}
}

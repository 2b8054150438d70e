package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// reduced records one reduction of a fresh tensor and returns the bytes of its
// result and of everything else it allocated.
func reduced(b trace.GPU, d trace.DType, shape []int64, f func(*tensor) *tensor) (result, scratch int64) {
	tape := trace.New(b, rules, trace.Options{Warm: true})
	frame := tape.Frame()
	x := frame.Bind(tape.New("x", program.Batch, d, shape...))
	from := len(tape.Program().Buffers)
	y := frame.Bind(f(x))
	for _, buffer := range tape.Program().Buffers[from:] {
		scratch += buffer.Bytes
	}
	return y.Bytes(), scratch - y.Bytes()
}

// The scratch space of a column sum, as PyTorch 2.11.0 asked for it with 132
// multiprocessors of 2048 threads: a buffer and the semaphores.
func TestColumnSumSplitsOverBlocks(t *testing.T) {
	for _, c := range []struct {
		rows, cols, buffer int64
	}{
		{64, 1024, 0},
		{1024, 1024, 8_388_608},
		{4096, 1024, 33_554_432},
		{16384, 1024, 134_217_728},
		{65536, 4096, 138_412_032},
	} {
		_, scratch := reduced(hopper, trace.F32, []int64{c.rows, c.cols}, func(x *tensor) *tensor {
			return x.Sum(false, 0)
		})
		require.GreaterOrEqual(t, scratch, c.buffer, "%d x %d", c.rows, c.cols)
		require.Less(t, scratch, c.buffer+512, "%d x %d: semaphores are few", c.rows, c.cols)
	}
}

// The scratch space of a reduction is bounded by the GPU, as long as there are not so many inputs that threads would
// add up more than 256 each: for each thread that can be resident, four accumulators of at most sixteen bytes for each
// lane of a warp, and a semaphore; twice, since the number of blocks for an output is rounded up.
func TestReductionScratchIsBoundedByGPU(t *testing.T) {
	ops := map[string]func(*tensor, bool, ...int) *tensor{
		"sum": (*tensor).Sum, "mean": (*tensor).Mean, "var": (*tensor).Var, "amax": (*tensor).AMax,
		"argmax": (*tensor).ArgMax,
	}
	rapid.Check(t, func(rt *rapid.T) {
		shape := rapid.SliceOfN(rapid.Int64Range(1, 64), 1, 4).Draw(rt, "shape")
		dims := rapid.SliceOfNDistinct(rapid.IntRange(0, len(shape)-1), 1, len(shape), rapid.ID[int]).Draw(rt, "dims")
		op := rapid.SampledFrom(names(ops)).Draw(rt, "op")
		if op == "argmax" {
			dims = dims[:1]
		}
		keep := rapid.Bool().Draw(rt, "keepdim")
		result, scratch := reduced(hopper, trace.F32, shape, func(x *tensor) *tensor {
			return ops[op](x, keep, dims...)
		})
		require.LessOrEqual(rt, scratch, 2*int64(hopper.SMs*hopper.ThreadsPerSM)*(32*4*16+4))
		other, _ := reduced(hopper, trace.F32, shape, func(x *tensor) *tensor { return ops[op](x, !keep, dims...) })
		require.Equal(rt, other, result, "keepdim changes the shape, not the size")
	})
}

// Half precision adds up in fp32: the buffer is that of fp32, the result half as large.
func TestHalfSumsAccumulateInFP32(t *testing.T) {
	shape := []int64{4096, 1024}
	sum := func(x *tensor) *tensor { return x.Sum(false, 0) }
	full, fullScratch := reduced(hopper, trace.F32, shape, sum)
	half, halfScratch := reduced(hopper, trace.BF16, shape, sum)
	require.Equal(t, full, 2*half)
	require.Equal(t, fullScratch, halfScratch)
}

package kernels_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/kernels/cudac"
	"github.com/vprof/vprof/profiler/program"
)

const (
	fp16 = program.FP16
	fp32 = program.FP32
	kib  = 1 << 10
)

// workCases are operators of training steps, by what a program says of them, and the kernels that are to do their work.
var workCases = []struct {
	name    string
	work    kernels.Work
	reads   []int64 // bytes
	writes  []int64
	kernels []string
}{
	{"zeros", kernels.Work{Kind: program.Copy}, nil, []int64{1000}, []string{"fill"}},
	{"clone", kernels.Work{Kind: program.Copy}, []int64{1001}, []int64{1001}, []string{"copy"}},
	{
		"to half",
		kernels.Work{Kind: program.Copy, Precision: fp16},
		[]int64{4004},
		[]int64{2002},
		[]string{"cast_f32_f16"},
	},
	{"to float", kernels.Work{Kind: program.Copy}, []int64{2002}, []int64{4004}, []string{"cast_f16_f32"}},
	{"to long", kernels.Work{Kind: program.Copy}, []int64{100}, []int64{800}, []string{"elementwise_f32"}},
	{
		"add",
		kernels.Work{Kind: program.Elementwise, FLOPs: 1000},
		[]int64{4000, 4000},
		[]int64{4000},
		[]string{"elementwise_f32"},
	},
	{
		"dropout",
		kernels.Work{Kind: program.Elementwise, FLOPs: 3000},
		[]int64{4000},
		[]int64{4000, 1000},
		[]string{"elementwise_f32"},
	},
	{
		"gelu of half",
		kernels.Work{Kind: program.Elementwise, Precision: fp16, FLOPs: 16_000},
		[]int64{2000},
		[]int64{2000},
		[]string{"elementwise_f16"},
	},
	{
		"sum to one",
		kernels.Work{Kind: program.Reduction, FLOPs: 30_000},
		[]int64{120_000},
		[]int64{4},
		[]string{"reduce_rows_f32"},
	},
	{
		"sum to many",
		kernels.Work{Kind: program.Reduction, FLOPs: 8192},
		[]int64{32 * kib},
		[]int64{4 * kib},
		[]string{"reduce_columns_f32"},
	},
	{
		"sum with a rest",
		kernels.Work{Kind: program.Reduction, FLOPs: 1000},
		[]int64{4001},
		[]int64{12},
		[]string{"reduce_rows_f32", "elementwise_f32"},
	},
	{
		"layer norm",
		kernels.Work{Kind: program.Normalization, FLOPs: 8 * 640},
		[]int64{640 * 4, 64 * 4, 64 * 4},
		[]int64{640 * 4, 40, 40},
		[]string{"normalize_f32"},
	},
	{
		"layer norm backward",
		kernels.Work{Kind: program.Normalization, FLOPs: 8 * 640},
		[]int64{640 * 4, 640 * 4, 40, 40, 64 * 4},
		[]int64{640 * 4},
		[]string{"normalize_backward_f32"},
	},
	{
		"batch norm",
		kernels.Work{Kind: program.Normalization, FLOPs: 8 * 6400},
		[]int64{6400 * 4, 32, 32, 32, 32},
		[]int64{6400 * 4, 32, 32},
		[]string{"normalize_f32", "elementwise_f32"},
	},
	{
		"batch norm of channels",
		kernels.Work{Kind: program.Normalization, FLOPs: 8 * 6400, M: 8, N: 100, Batch: 8},
		[]int64{6400 * 4, 32, 32},
		[]int64{6400 * 4},
		[]string{"elementwise_f32", "elementwise_f32"},
	},
	{"batch norm of channels, backward", kernels.Work{
		Kind: program.Normalization, FLOPs: 12 * 6400, M: 8, N: 100,
		Batch: 8,
	}, []int64{6400 * 4, 6400 * 4}, []int64{6400 * 4}, []string{"elementwise_f32", "elementwise_f32"}},
	{
		"layer norm of rows of 64",
		kernels.Work{Kind: program.Normalization, FLOPs: 8 * 640, M: 10, N: 64, Batch: 1},
		[]int64{640 * 4, 64 * 4, 64 * 4},
		[]int64{640 * 4},
		[]string{"normalize_f32"},
	},
	{
		"batch norm, inference",
		kernels.Work{Kind: program.Normalization, FLOPs: 8 * 6400},
		[]int64{6400 * 4, 32, 32, 32, 32},
		[]int64{6400 * 4},
		[]string{"normalize_f32", "elementwise_f32"},
	},
	{
		"softmax",
		kernels.Work{Kind: program.Softmax, FLOPs: 5 * 2048},
		[]int64{2048 * 4},
		[]int64{2048 * 4},
		[]string{"softmax_f32"},
	},
	{
		"softmax backward of half",
		kernels.Work{Kind: program.Softmax, Precision: fp16, FLOPs: 4 * 3001},
		[]int64{6002, 6002},
		[]int64{6002},
		[]string{"softmax_backward_f16", "elementwise_f16"},
	},
	{
		"embedding",
		kernels.Work{Kind: program.Index, FLOPs: 2048},
		[]int64{64 * kib, 800},
		[]int64{8 * kib},
		[]string{"gather", "elementwise_f32"},
	},
	{
		"embedding of rows of 1280 bytes",
		kernels.Work{Kind: program.Index, FLOPs: 3200},
		[]int64{12_800, 80},
		[]int64{12_800},
		[]string{"gather", "elementwise_f32"},
	},
	{
		"picked elements",
		kernels.Work{Kind: program.Index, FLOPs: 100},
		[]int64{4000, 800},
		[]int64{400},
		[]string{"gather", "elementwise_f32"},
	},
	{
		"one row",
		kernels.Work{Kind: program.Index, FLOPs: 10},
		[]int64{300, 8},
		[]int64{40},
		[]string{"gather", "elementwise_f32"},
	},
	{
		"linear",
		kernels.Work{Kind: program.Matmul, FLOPs: 2 * 64 * 96 * 128, M: 64, N: 96, K: 128, Batch: 1},
		[]int64{64 * 128 * 4, 96 * 128 * 4},
		[]int64{64 * 96 * 4},
		[]string{"gemm_f32"},
	},
	{
		"linear of half with bias",
		kernels.Work{
			Kind: program.Matmul, Precision: fp16, FLOPs: 2 * 64 * 96 * 128, M: 64,
			N: 96, K: 128, Batch: 1,
		},
		[]int64{64 * 128 * 2, 96 * 128 * 2, 96 * 2},
		[]int64{64 * 96 * 2},
		[]string{"gemm_f16", "elementwise_f16"},
	},
	{
		"batched, odd",
		kernels.Work{
			Kind: program.Matmul, Precision: fp16, FLOPs: 2 * 3 * 67 * 45 * 33, M: 67, N: 45,
			K: 33, Batch: 3,
		},
		[]int64{3 * 67 * 33 * 2, 3 * 45 * 33 * 2},
		[]int64{3 * 67 * 45 * 2},
		[]string{"gemm_f16", "elementwise_f16"},
	},
	{
		"with a vector",
		kernels.Work{Kind: program.Matmul, FLOPs: 2 * 100 * 200, M: 1, N: 100, K: 200, Batch: 1},
		[]int64{800, 80_000},
		[]int64{400},
		[]string{"elementwise_f32"},
	},
	{"with itself", kernels.Work{
		Kind: program.Matmul, Precision: fp16, FLOPs: 2 * 64 * 64 * 128, M: 64, N: 64, K: 128,
		Batch: 1,
	}, []int64{64 * 128 * 2}, []int64{64 * 64 * 2}, []string{"gemm_f16"}},
	{
		"to another type",
		kernels.Work{Kind: program.Matmul, FLOPs: 2 * 64 * 64 * 128, M: 64, N: 64, K: 128, Batch: 1},
		[]int64{64 * 128 * 2, 64 * 128 * 2},
		[]int64{64 * 64 * 4},
		[]string{"gemm_f32", "elementwise_f32"},
	},
	// 32 channels of 10x10 to 64, 3x3 taps, padded: 9 taps over 100 pixels.
	{"convolution", kernels.Work{
		Kind: program.Convolution, Precision: fp16, FLOPs: 2 * 64 * 100 * 288, M: 64, N: 100,
		K: 288, Batch: 1,
	}, []int64{6400, 64 * 288 * 2}, []int64{12_800}, []string{"conv_forward_f16"}},
	{"convolution, its input", kernels.Work{
		Kind: program.Convolution, Precision: fp16, FLOPs: 2 * 64 * 100 * 288,
		M: 288, N: 100, K: 64, Batch: 1,
	}, []int64{12_800, 64 * 288 * 2}, []int64{6400}, []string{"conv_input_f16"}},
	{"convolution, its weight", kernels.Work{
		Kind: program.Convolution, Precision: fp16, FLOPs: 2 * 64 * 100 * 288,
		M: 64, N: 288, K: 100, Batch: 1,
	}, []int64{12_800, 6400}, []int64{64 * 288 * 2}, []string{"conv_weight_f16"}},
	// The same with a stride of 2 and no padding: windows of 9 pixels, 6 apart, reach 99 of 100.
	{"strided", kernels.Work{
		Kind: program.Convolution, Precision: fp16, FLOPs: 2 * 64 * 16 * 288, M: 64, N: 16, K: 288,
		Batch: 1,
	}, []int64{6400, 64 * 288 * 2}, []int64{64 * 16 * 2}, []string{"conv_forward_f16", "elementwise_f16"}},
	{
		"strided, its input",
		kernels.Work{
			Kind: program.Convolution, Precision: fp16, FLOPs: 2 * 64 * 16 * 288, M: 288,
			N: 16, K: 64, Batch: 1,
		},
		[]int64{64 * 16 * 2, 64 * 288 * 2},
		[]int64{6400},
		[]string{"gemm_f16", "elementwise_f16"},
	},
	{
		"strided, its weight",
		kernels.Work{
			Kind: program.Convolution, Precision: fp16, FLOPs: 2 * 64 * 16 * 288, M: 64,
			N: 288, K: 16, Batch: 1,
		},
		[]int64{64 * 16 * 2, 6400},
		[]int64{64 * 288 * 2},
		[]string{"conv_weight_f16", "elementwise_f16"},
	},
	{"of one tap, its input", kernels.Work{
		Kind: program.Convolution, FLOPs: 2 * 64 * 100 * 64, M: 64, N: 100, K: 64,
		Batch: 1,
	}, []int64{25_600, 64 * 64 * 4}, []int64{25_600}, []string{"conv_forward_f32"}},
	{
		"of one tap",
		kernels.Work{Kind: program.Convolution, FLOPs: 2 * 64 * 100 * 32, M: 64, N: 100, K: 32, Batch: 1},
		[]int64{12_800, 64 * 32 * 4},
		[]int64{25_600},
		[]string{"conv_forward_f32"},
	},
	{"of one tap in TF32", kernels.Work{
		Kind: program.Convolution, Precision: program.TF32, FLOPs: 2 * 64 * 100 * 32,
		M: 64, N: 100, K: 32, Batch: 1,
	}, []int64{12_800, 64 * 32 * 4}, []int64{25_600}, []string{"conv_forward_tf32"}},
	{"of three channels", kernels.Work{
		Kind: program.Convolution, Precision: fp16, FLOPs: 2 * 64 * 100 * 27, M: 64,
		N: 100, K: 27, Batch: 1,
	}, []int64{600, 64 * 27 * 2}, []int64{12_800}, []string{"gemm_f16", "elementwise_f16"}},
	{"in groups", kernels.Work{
		Kind: program.Convolution, Precision: fp16, FLOPs: 2 * 2 * 32 * 100 * 144, M: 32, N: 100,
		K: 144, Batch: 2,
	}, []int64{6400, 64 * 144 * 2}, []int64{12_800}, []string{"conv_forward_f16"}},
	{
		"by channel",
		kernels.Work{Kind: program.Convolution, FLOPs: 2 * 32 * 100 * 9, M: 1, N: 100, K: 9, Batch: 32},
		[]int64{12_800, 32 * 9 * 4},
		[]int64{12_800},
		[]string{"elementwise_f32"},
	},
	// 64 channels of 10x10 to 32 of 20x20, 2x2 taps, stride 2.
	{"transposed", kernels.Work{
		Kind: program.Convolution, Precision: fp16, FLOPs: 2 * 32 * 400 * 256, M: 32, N: 400,
		K: 256, Batch: 1,
	}, []int64{12_800, 32 * 256 * 2}, []int64{25_600}, []string{"gemm_f16", "elementwise_f16"}},
	{
		"attention",
		kernels.Work{
			Kind: program.Attention, Precision: fp16, FLOPs: 4 * 2 * 50 * 70 * 64, M: 50, N: 70,
			K: 64, Batch: 2,
		},
		[]int64{2 * 50 * 64 * 2, 2 * 70 * 64 * 2, 2 * 70 * 64 * 2},
		[]int64{2 * 50 * 64 * 2, 400},
		[]string{"attention_f16", "elementwise_f16"},
	},
	{
		"attention of shared keys",
		kernels.Work{
			Kind: program.Attention, Precision: fp16, FLOPs: 4 * 4 * 20 * 70 * 64,
			M: 20, N: 70, K: 64, Batch: 4,
		},
		[]int64{4 * 20 * 64 * 2, 2 * 70 * 64 * 2, 2 * 70 * 64 * 2},
		[]int64{4 * 20 * 64 * 2},
		[]string{"attention_f16"},
	},
	{
		"causal attention",
		kernels.Work{
			Kind: program.Attention, Precision: fp16, FLOPs: 4 * 2 * 50 * 35 * 64, M: 50,
			N: 70, K: 64, Batch: 2,
		},
		[]int64{2 * 50 * 64 * 2, 2 * 70 * 64 * 2, 2 * 70 * 64 * 2},
		[]int64{2 * 50 * 64 * 2},
		[]string{"attention_f16", "elementwise_f16"},
	},
	{"attention, its gradients", kernels.Work{
		Kind: program.Attention, Precision: fp16, FLOPs: 10 * 2 * 50 * 70 * 64,
		M: 50, N: 70, K: 64, Batch: 2,
	}, []int64{12_800, 12_800, 17_920, 17_920, 12_800, 400}, []int64{
		12_800, 17_920,
		17_920,
	}, []string{"attention_f16", "attention_f16", "attention_f16", "elementwise_f16"}},
	{
		"attention, its gradients in another order",
		kernels.Work{
			Kind: program.Attention, Precision: fp16, FLOPs: 10 * 2 * 50 * 70 * 64, M: 50, N: 70, K: 64,
			Batch: 2,
		},
		[]int64{12_800, 17_920, 17_920, 12_800},
		[]int64{17_920, 17_920, 12_800},
		[]string{"gemm_f16", "elementwise_f16"},
	},
	{
		"cat of many",
		kernels.Work{Kind: program.Copy},
		slices.Repeat([]int64{400}, 300),
		[]int64{120_000},
		[]string{"update_f32", "update_f32", "update_f32"},
	},
}

// workOn allocates the ranges of a case.
func (c *cpu) workOn(w kernels.Work, reads, writes []int64) kernels.Work {
	for _, n := range reads {
		w.Reads = append(w.Reads, c.alloc(n, 0).span())
	}
	for _, n := range writes {
		w.Writes = append(w.Writes, c.alloc(n, 0).span())
	}
	return w
}

// runAll runs the launches of some work and checks that each keeps its word and that together they visit every byte.
func (c *cpu) runAll(launches []kernels.Launch, reads, writes int64) {
	c.t.Helper()
	for _, l := range launches {
		c.run(l)
	}
	for _, b := range c.buffers {
		b.ClearMarks()
	}
	var claimedReads, claimedWrites int64
	for _, l := range launches {
		claimedReads, claimedWrites = claimedReads+l.Reads-l.RereadBytes, claimedWrites+l.Writes
		require.NoError(c.t, cudac.Run(cudac.Launch{
			Arch: c.arch, Name: l.Name, Grid: l.Grid, Block: l.Block, Shared: l.Shared, Args: l.Args, Backward: c.back,
		}))
	}
	require.Equal(c.t, []int64{reads, writes}, []int64{claimedReads, claimedWrites},
		"bytes that launches are said to visit")
	visitedReads, visitedWrites := c.traffic()
	require.Equal(c.t, []int64{reads, writes}, []int64{visitedReads, visitedWrites}, "bytes visited")
}

func names(launches []kernels.Launch) []string {
	var out []string
	for _, l := range launches {
		out = append(out, l.Name)
	}
	return out
}

func TestWorkOfOperatorsVisitsEveryByte(t *testing.T) {
	if !cudac.Available {
		t.Skip(cudac.Missing)
	}
	for _, tt := range workCases {
		t.Run(tt.name, func(t *testing.T) {
			c := newCPU(t, 80, false)
			defer c.free()
			w := c.workOn(tt.work, tt.reads, tt.writes)
			launches := w.Append(nil, c.arch)
			require.Equal(t, tt.kernels, names(launches))
			c.runAll(launches, sum(tt.reads), sum(tt.writes))
		})
	}
}

func sum(x []int64) int64 {
	total := int64(0)
	for _, n := range x {
		total += n
	}
	return total
}

func TestWorkOfOperatorsHasTheirArithmetic(t *testing.T) {
	for _, tt := range workCases {
		w := tt.work
		addr := uint64(1 << 20)
		elements, bytes := int64(0), sum(tt.reads)+sum(tt.writes)
		for _, n := range tt.reads {
			w.Reads = append(w.Reads, kernels.Range{Addr: addr, Bytes: n})
			addr += 1 << 20
		}
		for _, n := range tt.writes {
			w.Writes = append(w.Writes, kernels.Range{Addr: addr, Bytes: n})
			addr += 1 << 20
		}
		elements = bytes/2 + 1
		flops, product := int64(0), false
		for _, l := range w.Append(nil, 80) {
			flops += l.FLOPs
			product = product || regexp.MustCompile("^(gemm|conv|attention)_").MatchString(l.Name)
		}
		if product {
			// One of another size comes within an element's depth; adding up what is left over takes some more.
			require.InEpsilon(t, tt.work.FLOPs, flops, 0.02, tt.name)
		} else {
			// Some operations more or less do not count beside the memory.
			require.InDelta(t, tt.work.FLOPs, flops, 8*float64(elements), tt.name)
		}
	}
}

// Whatever the sizes, no byte is left out and none visited outside.
func TestAnyWorkVisitsEveryByte(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		size := rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, 20_000),
			rapid.SampledFrom([]int64{4096, 8192, 512, 128}))
		w := kernels.Work{
			Kind:      program.Work(rapid.IntRange(0, int(program.OptimizerUpdate)).Draw(t, "kind")),
			Precision: program.Precision(rapid.IntRange(0, 4).Draw(t, "precision")),
			FLOPs:     rapid.Int64Range(0, 100_000).Draw(t, "flops"),
		}
		if w.Kind >= program.Matmul && w.Kind <= program.Attention {
			side := rapid.Int64Range(0, 140)
			w.M, w.N, w.K, w.Batch = side.Draw(t, "m"), side.Draw(t, "n"), side.Draw(t, "k"),
				rapid.Int64Range(0, 3).Draw(t, "batch")
			w.FLOPs = 2 * w.M * w.N * w.K * w.Batch
		}
		counts := rapid.OneOf(rapid.IntRange(0, 4), rapid.IntRange(0, 12))
		reads := rapid.SliceOfN(size, 0, counts.Draw(t, "reads")).Draw(t, "bytes read")
		writes := rapid.SliceOfN(size, 0, counts.Draw(t, "writes")).Draw(t, "bytes written")
		if rapid.Bool().Draw(t, "alike") && len(reads) > 0 {
			for i := range writes {
				writes[i] = reads[0]
			}
		}
		w = c.workOn(w, reads, writes)
		c.runAll(w.Append(nil, c.arch), sum(reads), sum(writes))
	})
}

// An update reads every list and writes its first, one launch for all tensors.
func TestUpdatesRunInParallelLists(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		w := kernels.Work{Kind: program.OptimizerUpdate}
		lists, tensors := rapid.IntRange(1, 4).Draw(t, "lists"), rapid.IntRange(1, 50).Draw(t, "tensors")
		inPlace := rapid.Bool().Draw(t, "in place")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 500), tensors, tensors).Draw(t, "elements")
		reads := int64(0)
		for range lists {
			for _, n := range sizes {
				w.Reads = append(w.Reads, c.alloc(4*n, 0).span())
				reads += 4 * n
			}
		}
		w.Writes = w.Reads[:tensors]
		if !inPlace {
			w.Writes = nil
			for _, n := range sizes {
				w.Writes = append(w.Writes, c.alloc(4*n, 0).span())
			}
		}
		w.FLOPs = 2 * sum(sizes)
		launches := w.Append(nil, c.arch)
		require.Len(t, launches, 1)
		require.Equal(t, "update_f32", launches[0].Name)
		c.runAll(launches, reads, 4*sum(sizes))
	})
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	w := kernels.Work{Kind: program.Elementwise, Reads: []kernels.Range{{Addr: 512, Bytes: 64}}, FLOPs: 32}
	before := []kernels.Launch{{Name: "before"}}
	launches := w.Append(before, 90)
	require.Equal(t, []string{"before", "elementwise_f32"}, names(launches))
	require.EqualValues(t, 32, launches[1].FLOPs, "one round for 16 elements")
	require.Len(t, (&kernels.Work{Kind: program.Matmul}).Append(before, 90), 1, "no memory, no launch")
}

func BenchmarkAppend(b *testing.B) {
	for _, tt := range workCases {
		w := tt.work
		for i, n := range tt.reads {
			w.Reads = append(w.Reads, kernels.Range{Addr: uint64(i+1) << 20, Bytes: n})
		}
		for i, n := range tt.writes {
			w.Writes = append(w.Writes, kernels.Range{Addr: uint64(i+500) << 20, Bytes: n})
		}
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			var launches []kernels.Launch
			for b.Loop() {
				launches = w.Append(launches[:0], 80)
			}
		})
	}
}

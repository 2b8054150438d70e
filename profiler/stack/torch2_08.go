package stack

import (
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/trace"
)

// torch2_08 is the first release that is known; all its rules begin with it. Its cuDNN answers as 9.19 does in 92 to
// 99.9 % on compute capability 7.5, 8.6 and 9.0, and in 61 to 69 % on 8.0, 8.9 and 12.0, the last of which was asked.
var torch2_08 = release{
	Versions:      Versions{Torch: "2.8", CUDA: "12.8", CuDNN: "9.10", CuBLAS: "12.8"},
	cudnnVersions: []string{"9.10"}, cudnnOf: "12.0",
	allocator: func(r *allocator.Rules) { r.MaxSplitAbove, r.OrdersByAddress = true, true },
	change: func(r *trace.Rules) {
		// As a handle without a workspace was recorded to ask for it.
		r.Products = trace.Workspaces{
			BLAS: trace.ByCapability{
				{From: 0, Value: blasWorkspace},
				{From: 90, Value: blasWorkspaceHopper},
				{From: 91, Value: blasWorkspace},
			},
			Epilogue: 1 << 20,
		}
		r.CUB = cccl3_0
	},
}

// The workspaces of cuBLAS that its documentation recommends: 2 x 4 MiB + 8 x 16 KiB, and on Hopper 32 MiB.
const (
	blasWorkspace       = 2*4<<20 + 8*16<<10
	blasWorkspaceHopper = 32 << 20
)

// cccl3_0 are the tunings of CCCL 3.0: tuning_radix_sort.cuh, tuning_unique_by_key.cuh and tuning_scan.cuh, threads of
// a block times items of a thread.
var cccl3_0 = trace.CUB{
	Radix: []trace.RadixPolicy{
		{Capability: 90, Key: 8, Value: 8, Threads: 384, Items: 24},
		{Capability: 90, Key: 8, Threads: 384, Items: 30},
		{Capability: 90, Key: 4, Value: 8, Threads: 384, Items: 29},
		{Capability: 90, Key: 4, Threads: 384, Items: 19},
		{Capability: 90, Key: 2, Value: 8, Threads: 512, Items: 23},
		{Capability: 90, Threads: 384, Items: 18},
		{Capability: 80, Key: 8, Threads: 384, Items: 21},
		{Capability: 80, Key: 4, Value: 1, Threads: 384, Items: 17},
		{Capability: 80, Key: 4, Threads: 384, Items: 21},
		{Capability: 80}, // shorter keys
		{Key: 8, Threads: 256, Items: 23},
		{Key: 4, Value: 5, Threads: 256, Items: 23},
		{Key: 4, Value: 4, Threads: 256, Items: 46},
		{Key: 4, Threads: 256, Items: 23},
	},
	UniqueTile: trace.ByCapability{
		{From: 0, Value: 64 * 5},
		{From: 80, Value: 256 * 7},
		{From: 81, Value: 64 * 5},
		{From: 90, Value: 640 * 7},
		{From: 100, Value: 384 * 10},
	},
	ScanTile: trace.ByCapability{
		{From: 0, Value: 128 * 7},
		{From: 80, Value: 288 * 11},
		{From: 81, Value: 128 * 7},
		{From: 90, Value: 224 * 12},
	},
}

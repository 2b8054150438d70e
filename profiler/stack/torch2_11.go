package stack

import "github.com/vprof/vprof/profiler/trace"

var torch2_11 = release{
	Versions: Versions{Torch: "2.11", CUDA: "13.0", CuDNN: "9.19", CuBLAS: "13.1", Transformers: "5.23"},
	change: func(r *trace.Rules) {
		// As a handle without a workspace was recorded to ask for it.
		r.Products = trace.Workspaces{
			BLAS: trace.ByCapability{
				{From: 0, Value: 2*4<<20 + 8*16<<10},
				{From: 90, Value: 32 << 20},
				{From: 91, Value: 2*4<<20 + 8*16<<10},
			},
			Epilogue: 1 << 20,
		}
		r.Attention.CuDNNFirst = []int{9, 10}
		r.CUB = cccl3_0
		r.Convolutions = convolutions("9.19")
	},
}

// cccl3_0 are the tunings of CCCL 3.0: tuning_radix_sort.cuh,
// tuning_unique_by_key.cuh and tuning_scan.cuh, threads of a block times items of
// a thread.
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
	UniqueTile: trace.ByCapability{{From: 0, Value: 64 * 5}, {From: 80, Value: 256 * 7}, {From: 81, Value: 64 * 5}, {From: 90, Value: 640 * 7}, {From: 100, Value: 384 * 10}},
	ScanTile:   trace.ByCapability{{From: 0, Value: 128 * 7}, {From: 80, Value: 288 * 11}, {From: 81, Value: 128 * 7}, {From: 90, Value: 224 * 12}},
}

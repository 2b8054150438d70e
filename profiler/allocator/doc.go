// Package allocator is PyTorch's CUDA caching allocator, byte for byte.
//
// An [Allocator] allocates blocks in segments that a [Source] allocates: a [SimulatedMemory], which only counts bytes,
// or a real CUDA driver. It follows PyTorch 2.11's allocator in everything that determines addresses and statistics:
// rounding, the small and the large pool, best fit, splitting, coalescing, streams and deferred frees, expandable
// segments, oversize rules, garbage collection, the memory fraction, and the order of retries before an [*OOMError]. A
// [Config] holds the settings of PYTORCH_CUDA_ALLOC_CONF.
//
// The package handles bytes, addresses and streams, not tensors. Private pools (CUDA graphs, MemPool), the
// cudaMallocAsync backend and PYTORCH_NO_CUDA_MEMORY_CACHING are left out. An Allocator is not safe for concurrent use.
//
// Its behavior was observed with the 2.11.0+cu130 binaries; testdata has their recorded statistics and layouts.
package allocator

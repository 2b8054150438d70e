// Package allocator is PyTorch's CUDA caching allocator, byte for byte.
//
// An [Allocator] serves requests out of segments that it gets from a [Source]: a [Memory], which only counts, or a real
// CUDA driver. It follows the allocator of PyTorch 2.11 in everything that decides where a block lies and what the
// statistics say: rounding, the small and the large pool, best fit, splitting, coalescing, streams and deferred frees,
// expandable segments, oversize rules, garbage collection, the memory fraction, and the order of retries before it
// gives up with an [*OOMError]. A [Config] is what PYTORCH_CUDA_ALLOC_CONF sets.
//
// The package knows bytes, addresses and streams; not tensors. Private pools (CUDA graphs, MemPool), the
// cudaMallocAsync backend and PYTORCH_NO_CUDA_MEMORY_CACHING are left out. An Allocator is not safe for concurrent use.
//
// The facts were taken from the 2.11.0+cu130 binaries; testdata holds the statistics and layouts they recorded.
package allocator

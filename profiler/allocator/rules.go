package allocator

import "slices"

// Rules are the settings of PYTORCH_CUDA_ALLOC_CONF that releases of PyTorch treat
// differently, as plain data; package stack has those of each release. The zero value is
// the newest release. What the allocator itself does, with its sizes of 512 bytes and 1,
// 2, 10 and 20 MiB, is the same in all releases that are known.
type Rules struct {
	// Unknown are the keys that the release rejects because it does not know them.
	Unknown []string
	// MaxSplitAbove says that max_split_size_mb must be above the size of a large
	// segment; later releases also take that size itself.
	MaxSplitAbove bool
}

// knows tells whether the release has a setting of this name.
func (r Rules) knows(key string) bool {
	_, known := parsers[key]
	return known && !slices.Contains(r.Unknown, key)
}

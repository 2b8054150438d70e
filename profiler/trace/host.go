package trace

import "math/bits"

// Host is what a rank keeps in the host's memory for the whole of training, in bytes: what is offloaded there.
type Host struct {
	Weights   int64 `json:"weights,omitempty"`
	Gradients int64 `json:"gradients,omitempty"`
	// State is that of the optimizer, which steps on the host the Stepped bytes of weights.
	State   int64 `json:"state,omitempty"`
	Stepped int64 `json:"stepped,omitempty"`
	// Rounding is what page-locked memory has beyond what is in use: blocks are larger than what was asked for,
	// and stay where they were freed.
	Rounding int64 `json:"rounding,omitempty"`
}

// Pin adds a tensor in page-locked memory to a part of h.
func (h *Host) Pin(part *int64, bytes int64) {
	*part += bytes
	h.Rounding += pinned(bytes) - bytes
}

// Cache adds a block that has been freed: the allocator of page-locked memory gives none back.
func (h *Host) Cache(bytes int64) { h.Rounding += pinned(bytes) }

// pinned is the size of a block of page-locked memory: CachingHostAllocator takes powers of two
// (aten/src/ATen/core/CachingHostAllocator.h, allocate).
func pinned(bytes int64) int64 {
	if bytes <= 0 {
		return 0
	}
	return 1 << bits.Len64(uint64(bytes-1))
}

// Host is what is offloaded, to be added to.
func (t *Tape) Host() *Host { return &t.facts.Host }

// onHost counts the copies of saved tensors that lie in the host's memory.
type onHost struct{ bytes, pinned int64 }

// saveOnHost counts a copy, or with a sign of -1 that it ends.
func (t *Tape) saveOnHost(bytes, sign int64) {
	h := &t.savedOnHost
	h.bytes += sign * bytes
	h.pinned += sign * pinned(bytes)
	t.facts.HostSaved, t.facts.HostPinned = max(t.facts.HostSaved, h.bytes), max(t.facts.HostPinned, h.pinned)
}

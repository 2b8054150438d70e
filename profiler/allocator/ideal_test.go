package allocator

// Ideal is a heap that wastes nothing: no rounding, no fragmentation. Its peak is what the live bytes alone need, so no
// real heap gets below it, and the distance to it is what the real one wastes.
type Ideal struct {
	live, peak int64
}

// Malloc takes n bytes.
func (h *Ideal) Malloc(n int64) {
	h.live += n
	h.peak = max(h.peak, h.live)
}

// Free returns n bytes that Malloc took.
func (h *Ideal) Free(n int64) { h.live -= n }

// Live returns the number of bytes held now.
func (h *Ideal) Live() int64 { return h.live }

// Peak returns the highest value Live has had since the last ResetPeak.
func (h *Ideal) Peak() int64 { return h.peak }

// ResetPeak sets the peak to what is live now.
func (h *Ideal) ResetPeak() { h.peak = h.live }

package hf

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// Cache is the DynamicCache of transformers (use_cache): the keys and values of all layers, which are
// a part of what a model returns. A nil one is none.
type Cache struct {
	model *frame
	kept  []*tensor
}

// CacheOf is the cache of the models of a case; nil if they have none.
func CacheOf(c models.Case) *Cache {
	if c.Caches() {
		return &Cache{}
	}
	return nil
}

// begin empties the cache at the beginning of a call, whose frame keeps what layers put in.
func (c *Cache) begin(model *frame) {
	if c != nil {
		*c = Cache{model: model}
	}
}

// returned is what the model returns of the cache.
func (c *Cache) returned() []*tensor {
	if c == nil {
		return nil
	}
	return c.kept
}

// Update is DynamicLayer.update, which an attention module calls in its frame: keys and values
// behind those of earlier calls, of which there are none. What it gives are copies.
func (c *Cache) Update(f *frame, k, v *tensor) (keys, values *tensor) {
	if c == nil {
		return k, v
	}
	c.kept = append(c.kept, c.model.Let(trace.Cat(-2, k)), c.model.Let(trace.Cat(-2, v)))
	last := c.kept[len(c.kept)-2:]
	f.Set(&k, last[0])
	f.Set(&v, last[1])
	return k, v
}

// Packing is whether rows hold several sequences, as those see it who make masks.
type Packing int

const (
	// Single rows were looked at, and each holds one sequence.
	Single Packing = iota
	// Several sequences are in a row.
	Several
	// Unseen is that nobody looks, as where there is a cache: a row is taken for one sequence.
	Unseen
)

// Unread is that of masks that are made of other positions than those of the batch, and so take a row
// for one sequence.
func (p Packing) Unread() Packing {
	if p == Several {
		return Single
	}
	return p
}

// packingOf reads it of a case.
func packingOf(c models.Case) Packing {
	switch {
	case c.Caches():
		return Unseen
	case c.On(packedSetting),
		contextOf(c).By == models.RingOfTorch: // positions jump from the head of a row to its tail
		return Several
	}
	return Single
}

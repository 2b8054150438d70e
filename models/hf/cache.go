package hf

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Cache is the DynamicCache of transformers (use_cache): the keys and values of all layers, which are
// a part of what a model returns. A nil one is none.
type Cache struct {
	model *frame
	kept  []*tensor
	// layer is the place in kept of the layer that comes next, of a cache over several calls.
	layer int
	// off says that steps of training have none.
	off bool
}

// CacheOf is the cache of the models of a case; nil if they never have one.
func CacheOf(c models.Case) *Cache {
	if c.Caches() || c.Evaluate.NewTokens > 0 {
		return &Cache{off: !c.Caches()}
	}
	return nil
}

// begin empties the cache at the beginning of a call, whose frame keeps what layers put in.
func (c *Cache) begin(model *frame) {
	if c != nil {
		*c = Cache{model: model, off: c.off}
	}
}

// over has several calls, from first to last, share the cache, which the frame keeps; it returns what ends that.
func (c *Cache) over(f *frame) (end func()) {
	before := *c
	*c = Cache{model: f}
	return func() { *c = before }
}

// returned is what the model returns of the cache.
func (c *Cache) returned() []*tensor {
	if c == nil {
		return nil
	}
	return c.kept
}

// Update is DynamicLayer.update, which an attention module calls in its frame: keys and values
// behind those of earlier calls. What it gives are copies.
func (c *Cache) Update(f *frame, k, v *tensor) (keys, values *tensor) {
	if c == nil || c.off {
		return k, v
	}
	if c.layer == len(c.kept) {
		c.kept = append(c.kept, c.model.Let(trace.Cat(-2, k)), c.model.Let(trace.Cat(-2, v)))
	} else {
		c.add(c.layer, k)
		c.add(c.layer+1, v)
	}
	last := c.kept[c.layer : c.layer+2]
	c.layer += 2
	f.Set(&k, last[0])
	f.Set(&v, last[1])
	return k, v
}

// add puts keys or values behind those that are kept.
func (c *Cache) add(at int, x *tensor) {
	c.model.Set(&c.kept[at], trace.Cat(-2, c.kept[at], x))
}

// grow adds tokens to all layers, as calls do.
func (c *Cache) grow(tokens int64) {
	for i, x := range c.kept {
		g := c.model.FuncFrame()
		c.add(i, g.Let(x.Tape().New("cat", program.Activations, x.DType(), x.Size(0), x.Size(1), tokens, x.Size(3))))
		g.End()
	}
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

// WithoutPositions is that of masks that are made of other positions than those of the batch, and so take a row
// for one sequence.
func (p Packing) WithoutPositions() Packing {
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

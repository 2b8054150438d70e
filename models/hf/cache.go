package hf

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// KVCache is transformers' DynamicCache (use_cache): the keys and values of all layers, which the model returns. It
// is nil without a cache.
type KVCache struct {
	model *frame
	kept  []*tensor
	// layer is the index in kept of the next layer, if several calls share the cache.
	layer int
	// off reports whether training steps return no cache.
	off bool
}

// NewKVCache returns the cache of a case's model; nil if the model never has one.
func NewKVCache(c models.Case) *KVCache {
	if c.UsesCache() || c.Evaluate.NewTokens > 0 {
		return &KVCache{off: !c.UsesCache()}
	}
	return nil
}

// reset empties the cache at the start of a model's call, whose frame owns the tensors that layers add.
func (c *KVCache) reset(model *frame) {
	if c != nil {
		*c = KVCache{model: model, off: c.off}
	}
}

// keepOver keeps one cache over several calls, in a frame that owns its tensors, until end is called.
func (c *KVCache) keepOver(f *frame) (end func()) {
	before := *c
	*c = KVCache{model: f}
	return func() { *c = before }
}

// OutputTensors returns the cache's tensors among the model's outputs.
func (c *KVCache) OutputTensors() []*tensor {
	if c == nil || c.off {
		return nil
	}
	return c.kept
}

// Update records DynamicLayer.update: it appends keys and values to earlier ones and returns copies.
func (c *KVCache) Update(f *frame, k, v *tensor) (keys, values *tensor) {
	if c == nil || c.off {
		return k, v
	}
	if c.layer == len(c.kept) {
		c.kept = append(c.kept, c.model.Bind(trace.Cat(-2, k)), c.model.Bind(trace.Cat(-2, v)))
	} else {
		c.appendTo(c.layer, k)
		c.appendTo(c.layer+1, v)
	}
	last := c.kept[c.layer : c.layer+2]
	c.layer += 2
	f.Set(&k, last[0])
	f.Set(&v, last[1])
	return k, v
}

func (c *KVCache) appendTo(at int, x *tensor) {
	c.model.Set(&c.kept[at], trace.Cat(-2, c.kept[at], x))
}

// addTokens adds a number of tokens to all layers' keys and values, as that many calls of the model would.
func (c *KVCache) addTokens(tokens int64) {
	for i, x := range c.kept {
		g := c.model.FunctionFrame()
		c.appendTo(i,
			g.Bind(x.Tape().New("cat", program.Activations, x.DType(), x.Size(0), x.Size(1), tokens, x.Size(3))))
		g.End()
	}
}

// Packing tells mask functions whether a row holds several sequences.
type Packing int

const (
	// SingleSequence says that the positions were checked, and that each row holds one sequence.
	SingleSequence Packing = iota
	// SeveralSequences says that some row holds several sequences.
	SeveralSequences
	// UncheckedPacking says that the positions are not checked, as with a cache, and each row counts as one sequence.
	UncheckedPacking
)

// WithoutPositions returns the packing that mask functions see without position_ids: each row counts as one sequence.
func (p Packing) WithoutPositions() Packing {
	if p == SeveralSequences {
		return SingleSequence
	}
	return p
}

// passesPaddingMask reports whether the model receives a padding mask. The Trainer's collators create one, but some
// releases drop it if no row is padded.
func passesPaddingMask(c models.Case) bool {
	return !c.Libraries().SkipsMasks && (c.Loop == "" || c.Loop == models.LoopTrainer) &&
		!c.IsSwitchOn(packedSetting) && !c.IsSwitchOn(flatSetting)
}

// IsEager reports whether the model computes attention eagerly: by a setting, or by default in releases of
// transformers before its class supported SDPA.
func IsEager(c models.Case, by trace.FusedAttentionModels) bool {
	return Eager.IsChosen(c) || c.Libraries().FusedAttention < by
}

func packingOf(c models.Case) Packing {
	switch {
	case c.UsesCache(), passesPaddingMask(c):
		return UncheckedPacking
	case c.IsSwitchOn(packedSetting), c.IsSwitchOn(flatSetting),
		contextOf(c).Algorithm == models.TorchRing: // each rank's positions jump from the start of a row to its end
		return SeveralSequences
	}
	return SingleSequence
}

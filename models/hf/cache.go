package hf

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// KVCache is the DynamicCache of transformers (use_cache): the keys and values of all layers, which are
// a part of what a model returns. A nil one is none.
type KVCache struct {
	model *frame
	kept  []*tensor
	// layer is the place in kept of the layer that comes next, of a cache over several calls.
	layer int
	// off reports whether steps of training return none.
	off bool
}

// NewKVCache returns the cache of the models of a case; nil if they never have one.
func NewKVCache(c models.Case) *KVCache {
	if c.UsesCache() || c.Evaluate.NewTokens > 0 {
		return &KVCache{off: !c.UsesCache()}
	}
	return nil
}

// begin empties the cache at the beginning of a call; the call's frame owns the tensors that layers add.
func (c *KVCache) begin(model *frame) {
	if c != nil {
		*c = KVCache{model: model, off: c.off}
	}
}

// during keeps one cache for several calls, in a frame that owns its tensors; end stops this.
func (c *KVCache) during(f *frame) (end func()) {
	before := *c
	*c = KVCache{model: f}
	return func() { *c = before }
}

// Returned returns the tensors of the cache that are among the model's outputs.
func (c *KVCache) Returned() []*tensor {
	if c == nil || c.off {
		return nil
	}
	return c.kept
}

// Update follows DynamicLayer.update, which an attention module calls in its frame. It appends keys and values to the
// stored ones of earlier calls, and returns copies.
func (c *KVCache) Update(f *frame, k, v *tensor) (keys, values *tensor) {
	if c == nil || c.off {
		return k, v
	}
	if c.layer == len(c.kept) {
		c.kept = append(c.kept, c.model.Bind(trace.Cat(-2, k)), c.model.Bind(trace.Cat(-2, v)))
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

// add appends keys or values to the kept ones.
func (c *KVCache) add(at int, x *tensor) {
	c.model.Set(&c.kept[at], trace.Cat(-2, c.kept[at], x))
}

// grow adds tokens to all layers, as that many calls do.
func (c *KVCache) grow(tokens int64) {
	for i, x := range c.kept {
		g := c.model.FuncFrame()
		c.add(i, g.Bind(x.Tape().New("cat", program.Activations, x.DType(), x.Size(0), x.Size(1), tokens, x.Size(3))))
		g.End()
	}
}

// Packing tells mask functions whether rows hold several sequences.
type Packing int

const (
	// SingleSequence rows were looked at, and each holds one sequence.
	SingleSequence Packing = iota
	// SeveralSequences sequences are in a row.
	SeveralSequences
	// UnseenByModel is that it is not looked for, as where there is a cache: a row is taken for one sequence.
	UnseenByModel
)

// WithoutPositions returns the packing as seen by masks without the batch's positions, which treat a row as one
// sequence.
func (p Packing) WithoutPositions() Packing {
	if p == SeveralSequences {
		return SingleSequence
	}
	return p
}

// givesMasks reports whether the model receives a padding mask. The Trainer's collators pass one, but releases may drop
// it if no row is padded.
func givesMasks(c models.Case) bool {
	return !c.Libraries().SkipsMasks && (c.Loop == "" || c.Loop == models.LoopTrainer) &&
		!c.On(packedSetting) && !c.On(flatSetting)
}

// IsEager reports whether attention of a model is eager: chosen so, or by default in releases of transformers before
// PyTorch's fused attention served its group of models.
func IsEager(c models.Case, by trace.FusedAttentionModels) bool {
	return Eager.Chosen(c) || c.Libraries().FusedAttention < by
}

func packingOf(c models.Case) Packing {
	switch {
	case c.UsesCache(), givesMasks(c):
		return UnseenByModel
	case c.On(packedSetting), c.On(flatSetting),
		contextOf(c).By == models.TorchRing: // positions jump from the head of a row to its tail
		return SeveralSequences
	}
	return SingleSequence
}

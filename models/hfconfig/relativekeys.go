package hfconfig

import "github.com/vprof/vprof/models/llama"

// readInternLM3 reads a decoder for which transformers takes Llama's classes.
func readInternLM3(r *reader, c *llama.Config) {
	readLlama(r, c)
	r.must(c.QKVBias == c.MLPBias, "qkv_bias", "%t and bias %t: transformers takes it for both", c.QKVBias, c.MLPBias)
}

func readOlmo(r *reader, c *llama.Config) {
	r.biases(c)
	c.Clipped = r.has("clip_qkv")
}

// readErnie reads a decoder that has no dropout of attention, whatever its file says.
func readErnie(r *reader, c *llama.Config) {
	c.QKVBias, c.AttentionDropout = r.flag("use_bias", false), 0
	c.OutputBias, c.MLPBias = c.QKVBias, c.QKVBias
}

// readExaone4 reads a decoder whose layers with full attention know no positions where others
// see a window.
func readExaone4(r *reader, c *llama.Config) {
	types := r.words("layer_types")
	every := int64(4)
	if types == nil {
		every = r.size("sliding_window_pattern", every, mostLayers)
	}
	r.windows(c, 4096, func(i int64) bool { return (i+1)%every != 0 })
	if c.Window == 0 {
		r.must(types != nil, "sliding_window",
			"null without layer_types: transformers divides by the pattern, which is zero then")
		return
	}
	c.Unrotated = layers(c, func(i int64) bool { return int(i) < len(c.Windowed) && !c.Windowed[i] })
}

func readCWM(r *reader, c *llama.Config) {
	c.MLPBias = r.flag("mlp_bias", false)
	r.windows(c, 8192, func(i int64) bool { return i%4 != 0 })
}

func readJais2(r *reader, c *llama.Config) {
	c.QKVBias, c.MLPBias = r.flag("attention_bias", true), r.flag("mlp_bias", true)
	c.OutputBias = c.QKVBias
}

// readDots1 reads a mixture like DeepSeek's below attention like Qwen's.
func readDots1(r *reader, c *llama.Config) {
	r.biases(c)
	r.groupedExperts(c, 2)
	r.firstDense(c, 0)
	from := r.number("max_window_layers", 62, 0, mostPositions)
	r.windows(c, 4096, func(i int64) bool { return c.Window > 0 && i >= from })
}

func readSolarOpen(r *reader, c *llama.Config) {
	c.QKVBias = r.flag("attention_bias", false)
	r.groupedExperts(c, 1)
}

func readGraniteShared(r *reader, c *llama.Config) {
	readGraniteMoE(r, c)
	c.SharedInner = r.number("shared_intermediate_size", 0, 0, mostInner)
}

func readHyperCLOVAX(r *reader, c *llama.Config) {
	readLlama(r, c)
	c.HalvesNormed = r.flag("use_post_norm", true)
}

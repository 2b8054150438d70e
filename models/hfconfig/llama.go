package hfconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/train"
)

// family returns the tasks and the reader of the model_type.
func (d llamaType) family() family {
	heads := map[string]string{d.Name + "ForCausalLM": causalLM}
	if !d.NoClasses {
		heads[cmp.Or(d.Classes, d.Name)+"ForSequenceClassification"] = classification
	}
	if d.Tokens {
		heads[d.Name+"ForTokenClassification"] = tokens
	}
	return family{heads: heads, usual: causalLM, half: true, aliases: d.Aliases, read: d.architecture}
}

func (d llamaType) architecture(r *reader) architecture {
	c := d.config(r)
	_, padded := r.padToken(-1, c.Vocab)
	labels := r.labelCount()
	problem := r.problemType(labels)
	length := r.rotaryLengthSetting(d.Positions)
	a := newDecoder(d.Name, c.Layers, c.Width, labels, length)
	a.supports.Liger, a.supports.Tiles, a.supports.Context, a.supports.Experts = d.Liger, c.Experts.Count == 0,
		c.PlainAttention(), c.ExpertParallelCount()
	a.addFlashSetting(c)
	a.supports.Cache, a.supports.TensorPlan = c.HasOnlyAttention(), c.CanShardProjections() && !d.Unplanned
	d.addLayerSettings(c, &a)
	if r.dequantized() {
		a.addNote("weights in MXFP4 are loaded as bf16 (Mxfp4Config(dequantize=True)), as training needs them")
	}
	a.addLayoutSettings(c)
	dropout := 0.1
	if d.SettledHead {
		dropout = 0
	}
	if d.Tokens {
		dropout = r.probability("classifier_dropout", r.probability("hidden_dropout", dropout))
		a.settings = append(a.settings, hf.HeadDropoutSetting())
	}
	a.task = func(k models.Case) train.Task {
		c := d.configFor(c, k)
		switch k.Task {
		case tokens:
			return llama.TokenClassification(c, classesOf(k, problem), hf.HeadDropout(k, dropout), hf.TextOf(k))
		case classification:
			return llama.Classification(c, classesOf(k, problem), padded, hf.TextOf(k))
		}
		return llama.CausalLM(c, hf.TextOf(k))
	}
	return a
}

// rotaryLengthSetting returns the setting of the sequence length for models with rotary embeddings. It is not limited
// to positions, since these embeddings are computed for any length.
func (r *reader) rotaryLengthSetting(positions int64) models.Setting {
	const most = 1 << 20
	made := r.size(positionsKey, positions, mostPositions)
	s := hf.LengthSetting(min(2048, made), most)
	s.Trained = made
	s.Usage += fmt.Sprintf(" (%s of the configuration: %d)", positionsKey, made)
	return s
}

func (d llamaType) config(r *reader) llama.Config {
	c := d.Base
	c.Vocab = r.size("vocab_size", d.Vocab, mostVocab)
	c.Width = r.size("hidden_size", cmp.Or(d.Width, 4096), mostWidth)
	c.Layers = r.size("num_hidden_layers", cmp.Or(d.Layers, 32), mostLayers)
	c.Heads = r.size("num_attention_heads", cmp.Or(d.Heads, 32), mostWidth)
	c.Inner = r.size("intermediate_size", d.Inner, mostInner)
	c.KVHeads = r.sizeOr("num_key_value_heads", cmp.Or(d.KVHeads, c.Heads), c.Heads, mostWidth)
	r.must(c.Heads%c.KVHeads == 0, "num_key_value_heads", "%d: need a number that divides num_attention_heads, %d",
		c.KVHeads, c.Heads)
	if c.Latent.Rank > 0 {
		r.readRotary(1, true) // the part of a head that is turned has a key of its own
	} else {
		d.readHeads(r, &c)
	}
	c.AttentionDropout = r.probability("attention_dropout", 0)
	c.Tied = r.boolean("tie_word_embeddings", d.Tied)
	r.setFields(&c, d.Keys)
	c.Rotary.Tables = r.size(positionsKey, d.Positions, mostPositions)
	if d.Window != nil {
		r.setWindow(&c, *d.Window)
	}
	if d.read != nil {
		d.read(r, &c)
	}
	if c.Activation == "" || c.MLP == llama.Ungated || d.HiddenAct {
		c.Activation = r.choice("hidden_act", cmp.Or(c.Activation, "silu"), hf.Activations())
	}
	return c
}

// readHeads reads the number and size of attention heads, and the share of each that is rotated.
func (d llamaType) readHeads(r *reader, c *llama.Config) {
	if c.HeadSize = r.sizeOr("head_dim", d.HeadSize, 0, mostWidth); c.HeadSize == 0 {
		r.checkHeads("num_attention_heads", c.Heads, "hidden_size", c.Width)
		c.HeadSize = max(1, c.Width/c.Heads)
		r.must(c.HeadSize%2 == 0, "num_attention_heads", "%d heads of hidden_size %d have a size of %d; rotary "+
			"positions need an even size, so set head_dim", c.Heads, c.Width, c.HeadSize)
	}
	r.checkEven("head_dim", c.HeadSize)
	r.grids = c.Rotary.Grids > 0
	part := r.readRotary(cmp.Or(d.Part, 1), c.Rotary.Inside)
	if size := int64(part * float64(c.HeadSize)); c.Rotary.Inside {
		c.Rotary.Size = size
		r.must(size > 0 && size%2 == 0 && size <= c.HeadSize, "partial_rotary_factor",
			"%g of a head of %d elements: need an even number of elements, at least 2", part, c.HeadSize)
	}
}

// biasKeys sets the biases of attention, which are off by default.
const biasKeys = "QKVBias+OutputBias=attention_bias:false "

// keyGroups are rows of [reader.setFields] that several model_types share: biases of attention and feed-forward layers.
var keyGroups = map[string]string{"biases": biasKeys, "allBiases": biasKeys + "MLPBias=mlp_bias:false "}

func readLlama(r *reader, c *llama.Config) {
	if c.MLP != llama.Ungated {
		r.checkHeads("num_attention_heads", c.Heads, "hidden_size", c.Width)
	}
}

// setWindow gives all layers a sliding window if window is not zero.
func (r *reader) setWindow(c *llama.Config, window int64) {
	if value, _, ok := r.get("sliding_window"); !ok && window == 0 || ok && null(value) {
		return
	}
	c.Window = r.size("sliding_window", window, mostPositions)
	c.Windowed = layersWhere(c, func(int64) bool { return true })
}

func readMinistral(r *reader, c *llama.Config) {
	c.AlwaysFullMask = true
	r.readWindows(c, 4096, func(int64) bool { return true })
}

// readGemma reads the keys of the first Gemma.
func readGemma(r *reader, c *llama.Config) {
	r.refuse("use_bidirectional_attention", "false")
	if r.has("hidden_activation") {
		c.Activation = r.choice("hidden_activation", c.Activation, hf.Activations())
	}
}

// readGemma2 reads Gemma 2, which uses eager attention: PyTorch's fused attention does not cap logits by tanh.
func readGemma2(r *reader, c *llama.Config) {
	r.refuse("use_bidirectional_attention", "false")
	c.Activation = r.choice("hidden_activation", "gelu_pytorch_tanh", hf.Activations())
	c.AlwaysFullMask = true
	c.AttentionCap, c.ScoreCap = r.notNull("attn_logit_softcapping"), r.notNull("final_logit_softcapping")
	r.readWindows(c, 4096, func(i int64) bool { return i%2 == 0 })
}

func readGemma3(r *reader, c *llama.Config) {
	r.refuse("use_bidirectional_attention", "false")
	r.refuse("attn_logit_softcapping")
	c.Activation = r.choice("hidden_activation", "gelu_pytorch_tanh", hf.Activations())
	c.ScoreCap, c.AlwaysFullMask = r.has("final_logit_softcapping"), true
	every := r.size("_sliding_window_pattern", r.size("sliding_window_pattern", 6, mostLayers), mostLayers)
	r.readWindows(c, 4096, func(i int64) bool { return (i+1)%every != 0 })
	c.Rotary.Kinds = maskKinds(c.Windowed)
}

// maskKinds returns the number of kinds of layers, with and without a window. Each kind has rotary angles of its own.
func maskKinds(windowed []bool) int {
	if slices.Contains(windowed, true) && slices.Contains(windowed, false) {
		return 2
	}
	return 1
}

func readCohere(r *reader, c *llama.Config) {
	if r.boolean("use_qk_norm", false) {
		c.QKNorm = llama.ViewedNorm
	}
}

// readCohere2 reads Cohere 2, whose layers with full attention have no position embeddings.
func readCohere2(r *reader, c *llama.Config) {
	c.HeadSize = max(2, c.Width/c.Heads) // whatever head_dim says
	c.AlwaysFullMask = true
	every := r.size("_sliding_window_pattern", r.size("sliding_window_pattern", 4, mostLayers), mostLayers)
	r.readWindows(c, 4096, func(i int64) bool { return (i+1)%every != 0 })
	c.Unrotated = layersWhere(c, func(i int64) bool { return int(i) < len(c.Windowed) && !c.Windowed[i] })
}

func readNeoX(r *reader, c *llama.Config) {
	c.QKVBias = r.boolean("attention_bias", true)
	c.OutputBias = c.QKVBias
	c.ResidualDropout = r.probability("hidden_dropout", 0)
	c.EmbedDropout = c.ResidualDropout
	c.CausalBuffers = r.size(positionsKey, 2048, mostPositions)
	c.Order = llama.NeoX
	if r.boolean("use_parallel_residual", true) {
		c.Order = llama.NeoXParallel
	}
	r.must(c.KVHeads == c.Heads, "num_key_value_heads", "%d: need as many as num_attention_heads, as GPT-NeoX has",
		c.KVHeads)
}

// readSmolLM3 reads SmolLM3, some of whose layers have no position embeddings.
func readSmolLM3(r *reader, c *llama.Config) {
	readLlama(r, c)
	r.refuse("use_sliding_window", "false")
	every := r.size("no_rope_layer_interval", 4, mostLayers)
	c.Unrotated = layersWhere(c, func(i int64) bool { return (i+1)%every == 0 })
	if turned := r.numbers("no_rope_layers", 1); turned != nil {
		if int64(len(turned)) != c.Layers {
			r.fail("no_rope_layers", "the list has %d layers: need one value for each of the %d layers of "+
				"num_hidden_layers", len(turned), c.Layers)
			return
		}
		c.Unrotated = layersWhere(c, func(i int64) bool { return turned[i] == 0 })
	}
}

// notNull reports whether a key is absent, so that transformers uses its default, or has a value other than null.
func (r *reader) notNull(key string) bool {
	value, _, ok := r.get(key)
	return !ok || !null(value)
}

// readQwenWindows reads which layers have a sliding window, by Qwen's keys.
func (r *reader) readQwenWindows(c *llama.Config) {
	c.AlwaysFullMask = true
	window, from := r.sizeOr("sliding_window", 4096, 0, mostPositions),
		r.number("max_window_layers", 28, 0, mostPositions)
	if r.boolean("use_sliding_window", false) {
		c.Window = window
	}
	c.Windowed = r.slidingLayers(c, slidingAttention, func(i int64) bool { return c.Window > 0 && i >= from })
}

// readWindows reads which layers have a sliding window: from layer_types, or else from usual.
func (r *reader) readWindows(c *llama.Config, window int64, usual func(layer int64) bool) {
	c.Window = r.sizeOr("sliding_window", window, 0, mostPositions)
	c.Windowed = r.slidingLayers(c, slidingAttention, usual)
}

// layersWhere returns for each layer whether a condition holds.
func layersWhere(c *llama.Config, is func(layer int64) bool) []bool { return lists.Make(c.Layers, is) }

// The kinds of attention that a configuration's layer_types may name.
const (
	fullAttention    = "full_attention"
	linearAttention  = "linear_attention"
	slidingAttention = "sliding_attention"
	chunkedAttention = "chunked_attention"
)

// layersOfKind reads which layers have a kind. The key lists the kind of each layer, which must be kind or other.
// Without the key, usual decides.
func (r *reader) layersOfKind(key string, c *llama.Config, kind, other string, usual func(layer int64) bool) []bool {
	types := r.names(key)
	if types == nil {
		return layersWhere(c, usual)
	}
	if int64(len(types)) != c.Layers {
		r.fail(key, "the list has %d layers: need one value for each of the %d layers of num_hidden_layers",
			len(types), c.Layers)
		return nil
	}
	return layersWhere(c, func(i int64) bool {
		is := types[i] == kind
		r.must(is || types[i] == other, key, "vprof does not support %q: need %s or %s", types[i], kind, other)
		return is
	})
}

// slidingLayers returns which layers have limited (sliding) attention: from layer_types, or else from usual.
func (r *reader) slidingLayers(c *llama.Config, sliding string, usual func(layer int64) bool) []bool {
	some := r.layersOfKind("layer_types", c, sliding, fullAttention, usual)
	r.must(c.Window > 0 || r.names("layer_types") == nil || !slices.Contains(some, true), "layer_types",
		"%s needs a window; set sliding_window, and use_sliding_window if the configuration has it", sliding)
	return some
}

// readRotary reads the options of rotary embeddings and returns the rotated share of each head, below 1 only if some is
// set. The kind of scaling does not affect memory. Layers of several kinds may have their own options.
func (r *reader) readRotary(part float64, some bool) float64 {
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		value, name, ok := r.get(key)
		if !ok || null(value) {
			continue
		}
		var kinds map[string]json.RawMessage
		if json.Unmarshal(value, &kinds) != nil {
			r.fail(name, "%s: need an object with the key rope_type", excerpt(value))
			continue
		}
		for _, rope := range []json.RawMessage{value, kinds[fullAttention], kinds[slidingAttention]} {
			if rope != nil {
				r.readRope(rope, name, &part)
			}
		}
	}
	if value, name, ok := r.get("partial_rotary_factor"); ok && !null(value) {
		part = r.positiveNumber(value, name, 1, part)
	}
	if value, name, ok := r.get("rotary_pct"); ok && some && !null(value) {
		part = r.positiveNumber(value, name, 1, part)
	}
	r.must(some || part == 1, "partial_rotary_factor", "%g: vprof describes 1 only for this model_type", part)
	return part
}

// readRope reads one rope_parameters object; name is its key, and part receives partial_rotary_factor.
func (r *reader) readRope(value json.RawMessage, name string, part *float64) {
	var rope struct {
		Type   *string  `json:"rope_type"`
		Legacy *string  `json:"type"`
		Part   *float64 `json:"partial_rotary_factor"`
		Alpha  *float64 `json:"alpha"`
	}
	if null(value) {
		return
	}
	if json.Unmarshal(value, &rope) != nil {
		r.fail(name, "%s is not an object with rope_type", excerpt(value))
		return
	}
	rope.Type = cmp.Or(rope.Type, rope.Legacy)
	if rope.Type != nil {
		switch *rope.Type {
		case "default", "linear", "llama3", "yarn", "longrope", "su", "proportional":
		case "mrope":
			r.must(r.grids, name, "mrope is for models that see")
		default:
			r.must(*rope.Type == "dynamic" && rope.Alpha != nil, name, "vprof does not describe rope_type %q; it "+
				"describes default, linear, llama3, yarn, longrope", *rope.Type)
		}
	}
	if rope.Part != nil {
		*part = *rope.Part
	}
}

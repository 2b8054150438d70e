package hfconfig

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/gemma"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/train"
)

type gemmaType struct {
	name string
	// config reads the decoder. towers reads the modules around it; nil for a decoder alone.
	config func(r *reader) gemma.Config
	towers func(r *reader, c *gemma.Config) func() llama.Wrapper
	senses string
	// clippable reports whether the towers have layers that clamp their inputs and outputs (Gemma4ClippableLinear).
	clippable bool
}

// gemmaTypes are the model_types of Gemma 4.
var gemmaTypes = map[string]gemmaType{
	"gemma4_text":         {name: "Gemma4", config: readGemma4(512, 131072, true)},
	"gemma4_unified_text": {name: "Gemma4Unified", config: readGemma4(1024, 262144, false)},
	"gemma4": {
		name: "Gemma4", config: readGemma4(512, 131072, true), towers: towersGemma4,
		senses: "images and sound", clippable: true,
	},
	"gemma4_unified": {
		name: "Gemma4Unified", config: readGemma4(1024, 262144, false), towers: towersGemma4Unified,
		senses: "images and sound",
	},
}

func (d gemmaType) family() family {
	class := d.name + "ForCausalLM"
	if d.towers != nil {
		class = d.name + "ForConditionalGeneration"
	}
	return family{heads: map[string]string{class: causalLM}, usual: causalLM, half: true, read: d.architecture}
}

func (d gemmaType) architecture(r *reader) architecture {
	t := r
	if d.towers != nil {
		t = r.sub("text_config")
		t.refuseCommonKeys()
	}
	c := d.config(t)
	a := newDecoder(d.name, int64(len(c.Layers)), c.Width, 1, t.rotaryLengthSetting(131072))
	a.removeClassSetting()
	a.settings = append(a.settings, hf.Flash.Setting())
	a.notes = append(a.notes, "with --set flash=1, PyTorch serves layers whose heads are wider than the 256 that "+
		"FlashAttention takes, as axolotl's gemma4_hybrid_attn_impl has it")
	a.supports.Liger = true
	a.addEagerSetting()
	a.supports.Cache = true
	if c.Experts.Count > 0 {
		llamaType{}.addExpertSettings(llama.Config{}, &a)
	}
	if d.towers == nil {
		a.task = func(k models.Case) train.Task { return gemma.CausalLM(withAttention(c, k), hf.TextOf(k)) }
		return a
	}
	c.Tied = r.boolean("tie_word_embeddings", true)
	makeTowers := d.towers(r, &c)
	if d.clippable {
		a.refuseClippableTargets()
	}
	a.summary = fmt.Sprintf("%s: %s", d.name, a.summary)
	a.towers = true
	a.addImageSettings(d.senses, nil)
	a.task = func(k models.Case) train.Task {
		return gemma.ConditionalGeneration(withAttention(c, k), makeTowers(), hf.TextOf(k))
	}
	return a
}

// refuseClippableTargets adds a check that refuses adapters by layer names that the towers have, too.
func (a *architecture) refuseClippableTargets() {
	a.addCheck(func(c models.Case) (setting, reason string) {
		if c.LoRA == nil {
			return "", ""
		}
		for _, name := range c.LoRA.Targets {
			if slices.Contains([]string{
				"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
				"down_proj",
			}, name) {
				return "lora", "target " + name +
					": the towers have a layer of that name, a Gemma4ClippableLinear, for which peft raises \"is " +
					"not supported\"; choose the decoder's, as in match=model.language_model.layers.*(q|v)_proj"
			}
		}
		return "", ""
	})
}

// withAttention returns the configuration with the attention implementation that a case chooses.
func withAttention(c gemma.Config, k models.Case) gemma.Config {
	c.Flash, c.Eager = hf.Flash.IsChosen(k), hf.Eager.IsChosen(k)
	return c
}

// readGemmaText reads the sizes of the decoder, one sliding-window layer, and the number of layers.
func (r *reader) readGemmaText(window int64) (c gemma.Config, l gemma.Layer, n int64) {
	r.setFields(&c, fmt.Sprintf("Vocab=vocab_size:262144 Width=hidden_size:2304 Heads=num_attention_heads:8 "+
		"Window=sliding_window:%d Activation=hidden_activation:gelu_pytorch_tanh Bias=attention_bias:false "+
		"AttentionDropout=attention_dropout:0 Tied=tie_word_embeddings:true", window))
	r.setFields(&l, "HeadSize=head_dim:256 KVHeads=num_key_value_heads:4")
	r.checkEven("head_dim", l.HeadSize)
	r.must(c.Heads%l.KVHeads == 0, "num_key_value_heads", "%d: need a number that divides num_attention_heads, %d",
		l.KVHeads, c.Heads)
	r.readRotary(1, true)
	return c, l, r.size("num_hidden_layers", 30, mostLayers)
}

// slidingGemmaLayers reads which of n layers have a sliding window; by default all except every sixth.
func (r *reader) slidingGemmaLayers(n int64) []bool {
	c := llama.Config{Sizes: llama.Sizes{Layers: n}, Masks: llama.Masks{Window: 1}}
	return r.slidingLayers(&c, slidingAttention, func(i int64) bool { return (i+1)%6 != 0 })
}

// markSharedKV marks the last layers as reusing keys and values of an earlier layer of the same kind.
func (r *reader) markSharedKV(of []gemma.Layer, last int64) {
	if last == 0 || len(of) == 0 {
		return
	}
	key, own := "num_kv_shared_layers", int64(len(of))-last
	if own <= 0 {
		r.fail(key, "%d layers that share keys and values: need fewer than the %d layers of num_hidden_layers",
			last, len(of))
		return
	}
	stored := map[bool]bool{}
	for i := own - 1; i >= 0; i-- {
		of[i].Stores = !stored[of[i].Slides]
		stored[of[i].Slides] = true
	}
	for i := own; i < int64(len(of)); i++ {
		of[i].Shares = true
		r.must(stored[of[i].Slides], key, "%d: layer %d has no earlier layer of its kind whose keys and values it "+
			"could share; need a smaller number", last, i)
	}
}

// readGemma4 returns a reader of Gemma 4's decoder. whole: not Unified, so it may have per-layer embeddings and
// experts.
func readGemma4(window, positions int64, whole bool) func(r *reader) gemma.Config {
	return func(r *reader) gemma.Config {
		r.number(positionsKey, positions, 1, mostPositions)
		c, l, n := r.readGemmaText(window)
		r.refuse("use_bidirectional_attention", `"vision"`)
		c.ScoreCap, c.KeysAreValues = r.has("final_logit_softcapping"), r.boolean("attention_k_eq_v", false)
		l.Inner = r.size("intermediate_size", 9216, mostInner)
		full := l
		full.HeadSize = r.size("global_head_dim", 512, mostWidth)
		r.checkEven("global_head_dim", full.HeadSize)
		if heads := r.sizeOr("num_global_key_value_heads", 0, 0, mostWidth); heads > 0 && c.KeysAreValues {
			full.KVHeads = heads
			r.must(c.Heads%heads == 0, "num_global_key_value_heads", "%d: need a number that divides "+
				"num_attention_heads, %d", heads, c.Heads)
		}
		slides := r.slidingGemmaLayers(n)
		for i, s := range slides {
			at := full
			if at.Slides = s && i < len(slides)-1; at.Slides { // the last has full attention in any case
				at.HeadSize, at.KVHeads = l.HeadSize, l.KVHeads
			}
			c.Layers = append(c.Layers, at)
		}
		shared := r.number("num_kv_shared_layers", 0, 0, mostLayers)
		r.markSharedKV(c.Layers, shared)
		if r.boolean("use_double_wide_mlp", false) {
			for i := range c.Layers {
				if c.Layers[i].Shares {
					c.Layers[i].Inner *= 2
				}
			}
		}
		if whole {
			c.PerLayer, c.PerLayerVocab = r.number("hidden_size_per_layer_input", 256, 0, mostWidth),
				r.size("vocab_size_per_layer_input", 262144, mostVocab)
			r.must(shared == 0 || c.PerLayer > 0, "num_kv_shared_layers", "%d: transformers needs "+
				"hidden_size_per_layer_input for layers that share keys and values; set it, or need 0", shared)
			r.readGemmaExperts(&c)
		}
		return c
	}
}

// readGemmaExperts reads the experts that run besides the feed-forward layers.
func (r *reader) readGemmaExperts(c *gemma.Config) {
	if !r.boolean("enable_moe_block", false) {
		return
	}
	e := gemma.Experts{
		Count:    r.size("num_experts", 128, mostExperts),
		PerToken: r.size("top_k_experts", 8, mostExperts), Inner: r.size("moe_intermediate_size", 704, mostInner),
	}
	r.checkExperts("top_k_experts", e.PerToken, e.Count)
	c.Experts = e
}

package hfconfig

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/tower"
	"github.com/vprof/vprof/models/train"
)

// multimodalType is a model_type with a decoder in text_config and towers for images or sound.
type wrapper struct {
	// name is the prefix of the class names in transformers.
	name string
	// text is the default model_type of text_config, and usual the defaults of its keys.
	text  string
	usual map[string]string
	// tied is the default of tie_word_embeddings. flat reports whether the decoder's keys may be outside text_config.
	tied, flat bool
	// liger reports whether liger-kernel patches the decoder.
	liger bool
	// senses names the inputs of the towers: "images", "sound".
	senses string
	// towers reads the modules around the decoder, and returns a function that creates them.
	towers func(r *reader, text llama.Config) func() llama.Wrapper
	// vision reads how images enter the decoder; nil if vprof records only steps on text.
	vision func(r *reader) *vision
}

// multimodalTypes are the model_types with towers.
var wrappers = map[string]wrapper{
	"mistral3": {
		name: "Mistral3", text: "mistral", tied: true, senses: "images", towers: towersMistral3,
		usual: map[string]string{
			"hidden_size": "5120", "intermediate_size": "32768", "num_hidden_layers": "40", "num_attention_heads": "32",
			"num_key_value_heads": "8", "head_dim": "128",
			"vocab_size": "131072", "max_position_embeddings": "131072", "sliding_window": "null",
		},
	},
	"gemma3": {
		name: "Gemma3", text: "gemma3_text", tied: true, liger: true, senses: "images",
		towers: towersGemma3, vision: visionGemma3,
	},
	"llava": {name: "Llava", text: "llama", senses: "images", towers: towersLlava, vision: visionLlava},
	"mllama": {
		name: "Mllama", text: "mllama_text_model", senses: "images", towers: towersMllama,
		vision: visionMllama,
	},
	"qwen2_vl": {
		name: "Qwen2VL", text: "qwen2_vl_text", flat: true, senses: "images",
		towers: visual(readQwen2Vision, tower.Qwen2VL), vision: visionQwen(readQwen2Vision),
	},
	"qwen2_5_vl": {
		name: "Qwen2_5_VL", text: "qwen2_5_vl_text", flat: true, senses: "images",
		towers: visual(readQwen25Vision, tower.Qwen25VL), vision: visionQwen(readQwen25Vision),
	},
	"qwen3_vl": {
		name: "Qwen3VL", text: "qwen3_vl_text", senses: "images",
		towers: visual(readQwen3Vision, tower.Qwen3VL), vision: visionQwen(readQwen3Vision),
	},
	"qwen3_vl_moe": {
		name: "Qwen3VLMoe", text: "qwen3_vl_moe_text", senses: "images",
		towers: visual(readQwen3Vision, tower.Qwen3VL), vision: visionQwen(readQwen3Vision),
	},
	"qwen3_5": {
		name: "Qwen3_5", text: "qwen3_5_text", senses: "images",
		towers: visual(readQwen35Vision, tower.Qwen3VL),
	},
	"qwen3_5_moe": {
		name: "Qwen3_5Moe", text: "qwen3_5_moe_text", senses: "images",
		towers: visual(readQwen35Vision, tower.Qwen3VL),
	},
	"llama4":  {name: "Llama4", text: "llama4_text", liger: true, senses: "images", towers: towersLlama4},
	"smolvlm": {name: "SmolVLM", text: "llama", senses: "images", towers: towersSmolVLM},
	"glm4v":   {name: "Glm4v", text: "glm4v_text", senses: "images", towers: towersGLM4V},
	"paddleocr_vl": {
		name: "PaddleOCRVL", text: "paddleocr_vl_text", tied: true, flat: true, senses: "images",
		towers: towersPaddleOCR,
	},
}

// qwenVLWindows reads which layers have a sliding window.
func (r *reader) qwenVLWindows(c *llama.Config) {
	r.refuse("use_sliding_window", "false")
	c.Windowed = r.attentionTypes(c, slidingAttention, func(int64) bool { return false })
}

func (w wrapper) family() family {
	return family{
		heads: map[string]string{w.name + "ForConditionalGeneration": causalLM}, usual: causalLM, half: true,
		read: w.architecture,
	}
}

func (w wrapper) architecture(r *reader) architecture {
	t := r.sub("text_config")
	if _, nested := r.raw["text_config"]; w.flat && !nested {
		t = r
	}
	if t != r {
		t.common()
	}
	d, kind := w.decoder(t)
	for key, value := range w.usual {
		if _, given := t.raw[key]; !given && kind == w.text {
			t.raw[key] = []byte(value)
		}
	}
	c := d.config(t)
	c.Tied = r.flag("tie_word_embeddings", w.tied) || w.flat && t.flag("tie_word_embeddings", false)
	makeTowers := w.towers(r, c)
	a := decoder(w.name, c.Layers, c.Width, 1, t.rotaryLength(d.Positions))
	a.withoutClasses()
	a.summary = fmt.Sprintf("%s: %s", w.name, a.summary)
	a.levers.Liger, a.levers.Tiles, a.levers.Context, a.levers.Experts = w.liger, c.Experts.Count == 0,
		c.PlainAttention(), c.ExpertParallelCount()
	a.levers.Cache, a.levers.TensorPlan = c.HasOnlyAttention(), c.CanShardProjections() && !d.Unplanned
	a.towers = true
	var seen *vision
	if w.vision != nil {
		seen = w.vision(r)
	}
	a.seeing(w.senses, seen)
	a.flashed(c)
	d.special(c, &a)
	if c.Llama4.Enabled {
		withoutLigerLoss(&a)
	}
	a.task = func(k models.Case) train.Task {
		return llama.ConditionalGeneration(d.chosen(c, k), seen.with(makeTowers(), k), hf.TextOf(k))
	}
	return a
}

// removeClassSetting removes the number of classes from the settings of a decoder without a classification head.
func (a *architecture) withoutClasses() {
	a.settings, a.only = slices.DeleteFunc(a.settings, func(s models.Setting) bool {
		return s.Name == hf.ClassesSetting(1).Name
	}), nil
}

// textDecoder returns the decoder that text_config describes.
func (w wrapper) decoder(t *reader) (d relative, kind string) {
	kind = w.text
	if value, _, ok := t.get("model_type"); ok && t.up != nil {
		kind = unquoted(value)
	}
	d, ok := relativeOf(kind)
	if !ok {
		t.wrong("model_type", "vprof does not describe %q as the decoder of %s; run your script: "+
			"vprof run -- python train.py", kind, w.name)
		d, _ = relativeOf("llama")
	}
	return d, kind
}

// readMllama reads a decoder with cross-attention layers to images. A text-only step skips these layers.
func readMllama(r *reader, c *llama.Config) {
	c.ExtraTokens = 8
	c.AttentionDropout = r.probability("dropout", 0)
	crossing := r.numbers("cross_attention_layers", mostLayers, 3, 8, 13, 18, 23, 28, 33, 38)
	c.CrossAttention = layers(c, func(i int64) bool { return slices.Contains(crossing, i) })
}

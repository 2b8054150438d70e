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
type multimodalType struct {
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
	vision func(r *reader) *imageInput
}

// multimodalTypes are the model_types with towers.
var multimodalTypes = map[string]multimodalType{
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
	"llava":  {name: "Llava", text: "llama", senses: "images", towers: towersLlava, vision: visionLlava},
	"mllama": {name: "Mllama", text: "mllama_text_model", senses: "images", towers: towersMllama, vision: visionMllama},
	"qwen2_vl": {
		name: "Qwen2VL", text: "qwen2_vl_text", flat: true, senses: "images",
		towers: newQwenTower(readQwen2Vision, tower.Qwen2VL), vision: visionQwen(readQwen2Vision),
	},
	"qwen2_5_vl": {
		name: "Qwen2_5_VL", text: "qwen2_5_vl_text", flat: true, senses: "images",
		towers: newQwenTower(readQwen25Vision, tower.Qwen25VL), vision: visionQwen(readQwen25Vision),
	},
	"qwen3_vl": {
		name: "Qwen3VL", text: "qwen3_vl_text", senses: "images",
		towers: newQwenTower(readQwen3Vision, tower.Qwen3VL), vision: visionQwen(readQwen3Vision),
	},
	"qwen3_vl_moe": {
		name: "Qwen3VLMoe", text: "qwen3_vl_moe_text", senses: "images",
		towers: newQwenTower(readQwen3Vision, tower.Qwen3VL), vision: visionQwen(readQwen3Vision),
	},
	"qwen3_5": {
		name: "Qwen3_5", text: "qwen3_5_text", senses: "images",
		towers: newQwenTower(readQwen35Vision, tower.Qwen3VL),
	},
	"qwen3_5_moe": {
		name: "Qwen3_5Moe", text: "qwen3_5_moe_text", senses: "images",
		towers: newQwenTower(readQwen35Vision, tower.Qwen3VL),
	},
	"llama4":  {name: "Llama4", text: "llama4_text", liger: true, senses: "images", towers: towersLlama4},
	"smolvlm": {name: "SmolVLM", text: "llama", senses: "images", towers: towersSmolVLM},
	"glm4v":   {name: "Glm4v", text: "glm4v_text", senses: "images", towers: towersGLM4V},
	"paddleocr_vl": {
		name: "PaddleOCRVL", text: "paddleocr_vl_text", tied: true, flat: true, senses: "images",
		towers: towersPaddleOCR,
	},
}

// readQwenVLWindows reads which layers have a sliding window.
func (r *reader) readQwenVLWindows(c *llama.Config) {
	r.refuse("use_sliding_window", "false")
	c.Windowed = r.slidingLayers(c, slidingAttention, func(int64) bool { return false })
}

func (w multimodalType) family() family {
	return family{
		heads: map[string]string{w.name + "ForConditionalGeneration": causalLM}, usual: causalLM, half: true,
		read: w.architecture,
	}
}

func (w multimodalType) architecture(r *reader) architecture {
	t := r.sub("text_config")
	if _, nested := r.raw["text_config"]; w.flat && !nested {
		t = r
	}
	if t != r {
		t.refuseCommonKeys()
	}
	d, kind := w.textDecoder(t)
	for key, value := range w.usual {
		if _, given := t.raw[key]; !given && kind == w.text {
			t.raw[key] = []byte(value)
		}
	}
	c := d.config(t)
	c.Tied = r.boolean("tie_word_embeddings", w.tied) || w.flat && t.boolean("tie_word_embeddings", false)
	makeTowers := w.towers(r, c)
	a := newDecoder(w.name, c.Layers, c.Width, 1, t.rotaryLengthSetting(d.Positions))
	a.removeClassSetting()
	a.summary = fmt.Sprintf("%s: %s", w.name, a.summary)
	a.supports.Liger, a.supports.Tiles, a.supports.Context, a.supports.Experts = w.liger, c.Experts.Count == 0,
		c.PlainAttention(), c.ExpertParallelCount()
	a.supports.Cache, a.supports.TensorPlan = c.HasOnlyAttention(), c.CanShardProjections() && !d.Unplanned
	a.towers = true
	var seen *imageInput
	if w.vision != nil {
		seen = w.vision(r)
	}
	a.addImageSettings(w.senses, seen)
	a.addFlashSetting(c)
	d.addLayerSettings(c, &a)
	if c.Llama4.Enabled {
		withoutLigerLoss(&a)
	}
	a.task = func(k models.Case) train.Task {
		return llama.ConditionalGeneration(d.configFor(c, k), seen.withImages(makeTowers(), k), hf.TextOf(k))
	}
	return a
}

// removeClassSetting removes the number of classes from the settings of a decoder without a classification head.
func (a *architecture) removeClassSetting() {
	a.settings, a.only = slices.DeleteFunc(a.settings, func(s models.Setting) bool {
		return s.Name == hf.ClassesSetting(1).Name
	}), nil
}

// textDecoder returns the decoder that text_config describes.
func (w multimodalType) textDecoder(t *reader) (d llamaType, kind string) {
	kind = w.text
	if value, _, ok := t.get("model_type"); ok && t.up != nil {
		kind = unquoted(value)
	}
	d, ok := llamaTypeOf(kind)
	if !ok {
		t.fail("model_type", "vprof does not support the decoder %q in %s; run your own script with \"vprof run -- "+
			"python train.py\"", kind, w.name)
		d, _ = llamaTypeOf("llama")
	}
	return d, kind
}

// readMllama reads a decoder with cross-attention layers to images. A text-only step skips these layers.
func readMllama(r *reader, c *llama.Config) {
	c.ExtraTokens = 8
	c.AttentionDropout = r.probability("dropout", 0)
	crossing := r.numbers("cross_attention_layers", mostLayers, 3, 8, 13, 18, 23, 28, 33, 38)
	c.CrossAttention = layersWhere(c, func(i int64) bool { return slices.Contains(crossing, i) })
}

package hfconfig

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/gpt"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/train"
)

// decoder is what all text decoders share: the sizes of their batches, and the
// settings. positions is how many tokens a row can have.
func decoder(name string, layers, width, positions, classes int64) architecture {
	return architecture{
		levers:  models.LeverSet{Recompute: true},
		summary: fmt.Sprintf("%s decoder, %d layers of width %d", name, layers, width),
		unit:    "sequence", batch: 1, batches: []int{1, 2, 4, 8, 16, 32},
		settings: append([]models.Setting{rowLength(2048, positions, "max_position_embeddings"), hf.PaddingSetting(0), hf.PackedSetting(0), hf.ClassesSetting(classes)}, hf.LossSettings()...),
		only:     onlyDecoders(),
		notes: []string{
			"trained without the cache of keys and values, as the Trainer of transformers does",
			"rows that are padded, or hold several sequences, need an attention mask, which flash attention does not take: --set padding=1, --set packed=1",
		},
		check: func(c models.Case) (setting, reason string) {
			if c.Settings["padding"] == 1 && c.Settings["packed"] == 1 {
				return "packed", "rows that come with a padding mask are not looked at for several sequences; leave out padding"
			}
			return hf.CheckLoss(c)
		},
	}
}

// onlyDecoders are the settings of decoders that one task alone has a use for.
func onlyDecoders() map[string][]string {
	only := maps.Clone(onlyClassification)
	for _, name := range hf.LossSettingNames() {
		only[name] = []string{causalLM}
	}
	return only
}

func gptFamily() family {
	return family{
		heads: map[string]string{"GPT2LMHeadModel": causalLM, "GPT2ForSequenceClassification": classification}, usual: causalLM, half: true,
		also: map[string]string{
			"n_embd": "hidden_size", "n_positions": "max_position_embeddings", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
		},
		read: readGPT,
	}
}

func readGPT(r *reader) architecture {
	r.refuse("add_cross_attention", "false")
	c := gpt.Config{
		Vocab: r.size("vocab_size", 50257, mostVocab), Width: r.size("n_embd", 768, mostWidth),
		Layers: r.size("n_layer", 12, mostLayers), Heads: r.size("n_head", 12, mostWidth),
		Positions:    r.size("n_positions", 1024, mostPositions),
		Activation:   r.word("activation_function", "gelu_new", hf.Activations()),
		Untied:       !r.flag("tie_word_embeddings", true),
		EmbedDropout: r.probability("embd_pdrop", 0.1), AttentionDropout: r.probability("attn_pdrop", 0.1),
		ResidualDropout: r.probability("resid_pdrop", 0.1),
	}
	c.Inner = r.sizeOr("n_inner", 4*c.Width, 4*c.Width, mostInner)
	r.heads("n_head", c.Heads, "n_embd", c.Width)
	_, padded := r.token("pad_token_id", -1, c.Vocab)
	labels := r.labels()
	problem := r.problem(labels)
	a := decoder("GPT-2", c.Layers, c.Width, c.Positions, labels)
	a.task = func(k models.Case) train.Task {
		if k.Task == classification {
			return gpt.Classification(c, classesOf(k, problem), padded, hf.TextOf(k))
		}
		return gpt.CausalLM(c, hf.TextOf(k))
	}
	return a
}

// llamaFamily is a family of decoders built like Llama, whose classes have a
// name.
func llamaFamily(name string, read func(*reader) (c llama.Config, positions int64)) family {
	return family{
		heads: map[string]string{name + "ForCausalLM": causalLM, name + "ForSequenceClassification": classification}, usual: causalLM, half: true,
		read: func(r *reader) architecture {
			c, positions := read(r)
			r.rotary()
			if c.Activation == "" {
				c.Activation = r.word("hidden_act", "silu", hf.Activations())
			}
			c.AttentionDropout = r.probability("attention_dropout", 0)
			c.Tied = r.flag("tie_word_embeddings", c.Words == llama.ByBuffer)
			_, padded := r.token("pad_token_id", -1, c.Vocab)
			labels := r.labels()
			problem := r.problem(labels)
			a := decoder(name, c.Layers, c.Width, positions, labels)
			a.levers.Liger = true
			a.task = func(k models.Case) train.Task {
				if k.Task == classification {
					return llama.Classification(c, classesOf(k, problem), padded, hf.TextOf(k))
				}
				return llama.CausalLM(c, hf.TextOf(k))
			}
			return a
		},
	}
}

// llamaSizes reads the sizes of a decoder. kvHeads is how many there are if the
// file does not say, headSize how wide a head is; zero stands for as many as there
// are heads, and for the width shared out among them.
func (r *reader) llamaSizes(vocab, inner, kvHeads, headSize int64) llama.Config {
	c := llama.Config{
		Vocab: r.size("vocab_size", vocab, mostVocab), Width: r.size("hidden_size", 4096, mostWidth),
		Layers: r.size("num_hidden_layers", 32, mostLayers), Heads: r.size("num_attention_heads", 32, mostWidth),
		Inner: r.size("intermediate_size", inner, mostInner),
	}
	if kvHeads == 0 {
		kvHeads = c.Heads
	}
	c.KVHeads = r.sizeOr("num_key_value_heads", kvHeads, c.Heads, mostWidth)
	r.must(c.Heads%c.KVHeads == 0, "num_key_value_heads", "%d do not divide num_attention_heads %d", c.KVHeads, c.Heads)
	if c.HeadSize = r.sizeOr("head_dim", headSize, 0, mostWidth); c.HeadSize == 0 {
		r.heads("num_attention_heads", c.Heads, "hidden_size", c.Width)
		c.HeadSize = max(1, c.Width/c.Heads)
		r.must(c.HeadSize%2 == 0, "num_attention_heads", "%d heads of hidden_size %d are %d wide; rotary positions need an even number", c.Heads, c.Width, c.HeadSize)
	}
	r.must(c.HeadSize%2 == 0, "head_dim", "%d is odd; rotary positions need an even number", c.HeadSize)
	return c
}

func readLlama(r *reader) (c llama.Config, positions int64) {
	c = r.llamaSizes(32000, 11008, 0, 0)
	r.heads("num_attention_heads", c.Heads, "hidden_size", c.Width)
	c.QKVBias = r.flag("attention_bias", false)
	c.OutputBias, c.MLPBias = c.QKVBias, r.flag("mlp_bias", false)
	return c, r.size("max_position_embeddings", 2048, mostPositions)
}

func readMistral(r *reader) (c llama.Config, positions int64) {
	c = r.llamaSizes(32000, 14336, 8, 0)
	if c.Window = r.sizeOr("sliding_window", 4096, 0, mostPositions); c.Window > 0 {
		c.Windowed = windowed(c.Layers, func(int64) bool { return true })
	}
	return c, r.size("max_position_embeddings", 4096*32, mostPositions)
}

func readQwen2(r *reader) (c llama.Config, positions int64) {
	c = r.llamaSizes(151936, 22016, 32, 0)
	c.QKVBias = true
	return r.qwenWindows(c)
}

func readQwen3(r *reader) (c llama.Config, positions int64) {
	c = r.llamaSizes(151936, 22016, 32, 128)
	c.QKNorm = llama.HeadsNorm
	c.QKVBias = r.flag("attention_bias", false)
	c.OutputBias = c.QKVBias
	return r.qwenWindows(c)
}

// readGemma2 reads a decoder whose attention is eager: that of PyTorch knows no tanh.
func readGemma2(r *reader) (c llama.Config, positions int64) {
	r.refuse("use_bidirectional_attention", "false")
	c = llama.Config{
		Vocab: r.size("vocab_size", 256000, mostVocab), Width: r.size("hidden_size", 2304, mostWidth),
		Layers: r.size("num_hidden_layers", 26, mostLayers), Heads: r.size("num_attention_heads", 8, mostWidth),
		KVHeads: r.size("num_key_value_heads", 4, mostWidth), HeadSize: r.size("head_dim", 256, mostWidth),
		Inner: r.size("intermediate_size", 9216, mostInner), QKVBias: r.flag("attention_bias", false),
		Activation: r.word("hidden_activation", "gelu_pytorch_tanh", hf.Activations()),
		Norm:       llama.GemmaNorm, Order: llama.NormAround, Words: llama.ByBuffer,
		Eager: true, AttentionCap: r.capped("attn_logit_softcapping"), ScoreCap: r.capped("final_logit_softcapping"),
	}
	c.OutputBias = c.QKVBias
	r.must(c.Heads%c.KVHeads == 0, "num_key_value_heads", "%d do not divide num_attention_heads %d", c.KVHeads, c.Heads)
	r.must(c.HeadSize%2 == 0, "head_dim", "%d is odd; rotary positions need an even number", c.HeadSize)
	c.Window = r.sizeOr("sliding_window", 4096, 0, mostPositions)
	if types := r.words("layer_types"); types != nil {
		c.Windowed = r.layerTypes(types, c)
	} else {
		c.Windowed = windowed(c.Layers, func(i int64) bool { return i%2 == 0 })
	}
	return c, r.size("max_position_embeddings", 8192, mostPositions)
}

// capped says whether scores are held down: a number, unless the file has null.
func (r *reader) capped(key string) bool {
	value, _, ok := r.get(key)
	return !ok || !null(value)
}

// qwenWindows reads which layers see a window.
func (r *reader) qwenWindows(c llama.Config) (_ llama.Config, positions int64) {
	c.BothMasks = true
	window, from := r.sizeOr("sliding_window", 4096, 0, mostPositions), r.number("max_window_layers", 28, 0, mostPositions)
	if r.flag("use_sliding_window", false) {
		c.Window = window
	}
	if types := r.words("layer_types"); types != nil {
		c.Windowed = r.layerTypes(types, c)
	} else if c.Window > 0 {
		c.Windowed = windowed(c.Layers, func(i int64) bool { return i >= from })
	}
	return c, r.size("max_position_embeddings", 32768, mostPositions)
}

// windowed asks for every layer.
func windowed(layers int64, window func(layer int64) bool) []bool {
	out := make([]bool, layers)
	for i := range out {
		out[i] = window(int64(i))
	}
	return out
}

// layerTypes are the layers that layer_types says see a window.
func (r *reader) layerTypes(types []string, c llama.Config) []bool {
	const full, sliding = "full_attention", "sliding_attention"
	if int64(len(types)) != c.Layers {
		r.wrong("layer_types", "has %d layers; num_hidden_layers is %d", len(types), c.Layers)
		return nil
	}
	out := make([]bool, len(types))
	for i, t := range types {
		out[i] = t == sliding
		r.must(t == full || t == sliding, "layer_types", "vprof does not know %q; it knows %s, %s", t, full, sliding)
		r.must(t != sliding || c.Window > 0, "layer_types", "%s without a window: use_sliding_window and sliding_window say there is none", sliding)
	}
	return out
}

// rotary reads how positions are turned into angles, to which memory is
// indifferent as long as the angles are computed once.
func (r *reader) rotary() {
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		value, name, ok := r.get(key)
		if !ok || null(value) {
			continue
		}
		var rope struct {
			Type   *string  `json:"rope_type"`
			Legacy *string  `json:"type"`
			Part   *float64 `json:"partial_rotary_factor"`
		}
		if json.Unmarshal(value, &rope) != nil {
			r.wrong(name, "%s is not an object with rope_type", shown(value))
			continue
		}
		if rope.Type == nil {
			rope.Type = rope.Legacy
		}
		if rope.Type != nil {
			switch *rope.Type {
			case "default", "linear", "llama3", "yarn":
			default:
				r.wrong(name, "vprof does not describe rope_type %q; it describes default, linear, llama3, yarn", *rope.Type)
			}
		}
		r.must(rope.Part == nil || *rope.Part == 1, name, "partial_rotary_factor: vprof describes 1 only")
	}
	r.refuse("partial_rotary_factor", "1", "1.0")
}

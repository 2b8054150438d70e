package hfconfig

import (
	"maps"

	"github.com/vprof/vprof/models/llama"
)

// relative is a model_type of Llama's family: what transformers takes where a file says
// nothing, and what its classes do otherwise than Llama's.
type relative struct {
	// name is what the names of its classes begin with.
	name string
	// The sizes that a file may leave out: heads of key and value are as many as heads
	// if there are none here, and heads as wide as the width shared out among them.
	vocab, width, layers, heads, kvHeads, headSize, inner, positions int64
	// part of each head is turned by positions; zero is all of it.
	part float64
	tied bool
	// classes begins the name of the class for sequence classification, name if empty.
	classes string
	// hiddenAct says that hidden_act is read though base has an activation.
	hiddenAct bool
	// flex says that its classes can have flex_attention serve attention.
	flex bool
	// noClasses says that there is no class for sequence classification, liger that
	// liger-kernel has its kernels for it.
	noClasses, liger bool
	// tokens says that there is a class for token classification; settledHead that its dropout
	// defaults to the dropout of hidden states, which is zero by default.
	tokens, settledHead bool
	// unplanned says that transformers has no plan of tensor parallelism for it (base_model_tp_plan), or one that
	// leaves attention or shared experts whole.
	unplanned bool
	// fused are the names of layers that transformers has in parameters of all experts, and
	// that peft adapts as such; see [relative.mixture].
	fused []string
	// aliases maps Llama's names of keys to the file's: the attribute_map, inverted.
	aliases map[string]string
	// base is what its classes do otherwise, keys are fields of it that a file decides, as [reader.fields] reads
	// them, and read reads what is more than that.
	base llama.Config
	keys string
	read func(r *reader, c *llama.Config)
}

// variant returns the type with other classes, for whose files read reads.
func (d relative) variant(name string, read func(r *reader, c *llama.Config)) relative {
	d.name, d.read = name, read
	return d
}

// relatives are the types of Llama's family, as transformers defines them.
var relatives = func() map[string]relative {
	all := maps.Clone(dense)
	maps.Copy(all, mixtures)
	return all
}()

// dense are those without experts.
var dense = map[string]relative{
	"llama": {
		name: "Llama", flex: true, tokens: true, vocab: 32000, inner: 11008, positions: 2048, liger: true,
		base: llama.Config{AdaptionPrompts: true}, keys: allBiases, read: readLlama,
	},
	"mistral": {
		name: "Mistral", flex: true, tokens: true, vocab: 32000, kvHeads: 8, inner: 14336, positions: 131072,
		liger: true, base: llama.Config{AdaptionPrompts: true}, read: windowed(4096),
	},
	"ministral": {
		name: "Ministral", flex: true, tokens: true, vocab: 32000, kvHeads: 8, inner: 14336,
		positions: 131072, read: readMinistral,
	},
	"ministral3": {
		name: "Ministral3", flex: true, tokens: true, vocab: 131072, layers: 34, kvHeads: 8, headSize: 128,
		inner: 14336, positions: 262144, base: llama.Config{Scaling: llama.Scaling{QueryScaled: true}},
		read: windowed(0),
	},
	"qwen2": {
		name: "Qwen2", flex: true, tokens: true, vocab: 151936, kvHeads: 32, inner: 22016, positions: 32768,
		liger: true, base: llama.Config{Biases: llama.Biases{QKVBias: true}}, read: (*reader).qwenWindows,
	},
	"qwen3": {
		name: "Qwen3", flex: true, tokens: true, vocab: 151936, kvHeads: 32, headSize: 128, inner: 22016,
		positions: 32768, liger: true, base: llama.Config{QKNorm: llama.HeadsNorm}, keys: biases,
		read: (*reader).qwenWindows,
	},
	"gemma": {
		name: "Gemma", flex: true, hiddenAct: true, tokens: true, vocab: 256000, width: 3072, layers: 28, heads: 16,
		headSize: 256, inner: 24576, positions: 8192, tied: true,
		base: llama.Config{
			Norm: llama.GemmaNorm, Scaling: llama.Scaling{EmbedScale: llama.ByBuffer},
			Activation: "gelu_pytorch_tanh",
		}, keys: biases, read: readGemma,
	},
	"gemma2": {
		name: "Gemma2", tokens: true, vocab: 256000, width: 2304, layers: 26, heads: 8, kvHeads: 4, headSize: 256,
		inner: 9216, positions: 8192, tied: true, liger: true,
		base: llama.Config{
			Norm: llama.GemmaNorm, Order: llama.NormAround,
			Scaling: llama.Scaling{EmbedScale: llama.ByBuffer}, Kernels: llama.Kernels{Eager: true},
		}, keys: biases, read: readGemma2,
	},
	"gemma3_text": {
		name: "Gemma3", flex: true, classes: "Gemma3Text", vocab: 262208, width: 2304, layers: 26, heads: 8, kvHeads: 4,
		headSize: 256, inner: 9216, positions: 131072, tied: true, liger: true,
		base: llama.Config{
			Norm: llama.GemmaNorm, Order: llama.NormAround,
			Scaling: llama.Scaling{EmbedScale: llama.ByBuffer}, QKNorm: llama.TransposedNorm,
		}, keys: biases, read: readGemma3,
	},
	"phi3": {
		name: "Phi3", flex: true, tokens: true, vocab: 32064, width: 3072, inner: 8192, positions: 4096,
		base: llama.Config{QKV: llama.OneProjection, MLP: llama.FusedGated, Rotary: llama.Rotary{Inside: true}},
		keys: "ResidualDropout=resid_pdrop:0", read: windowed(0),
	},
	"granite": {
		name: "Granite", flex: true, vocab: 32000, inner: 11008, positions: 2048, noClasses: true,
		base: llama.Config{Scaling: llama.Scaling{EmbedScale: llama.ByNumber, ResidualScaled: true, ScoreScaled: true}},
		keys: allBiases, read: readLlama,
	},

	"cohere": cohere,

	"cohere2": cohere.variant("Cohere2", readCohere2),

	"starcoder2": {
		name: "Starcoder2", flex: true, tokens: true, vocab: 49152, width: 3072, layers: 30, heads: 24, kvHeads: 2,
		inner: 12288, positions: 4096, tied: true,
		base: llama.Config{
			Norm: llama.LayerNorm, MLP: llama.Ungated, Activation: "gelu_pytorch_tanh",
			Dropouts: llama.Dropouts{DropoutInside: true},
			Names:    llama.Names{"up_proj": "c_fc", "down_proj": "c_proj", "act_fn": "act"},
		},
		keys: "QKVBias+OutputBias+MLPBias=use_bias:true ResidualDropout=residual_dropout:0 " +
			"EmbedDropout=embedding_dropout:0", read: windowed(0),
	},
	"gpt_neox": {
		name: "GPTNeoX", flex: true, vocab: 50432, width: 6144, layers: 44, heads: 64, inner: 24576,
		positions: 2048, part: 0.25,
		base: llama.Config{
			Norm: llama.LayerNorm, MLP: llama.Ungated, QKV: llama.HeadsProjection, Activation: "gelu",
			Biases: llama.Biases{MLPBias: true}, Rotary: llama.Rotary{Inside: true, Stepwise: true},
			Names: llama.Names{
				"model": "gpt_neox", "embed_tokens": "embed_in", "norm": "final_layer_norm", "lm_head": "embed_out",
				"self_attn": "attention",
				"qkv_proj":  "query_key_value", "o_proj": "dense", "up_proj": "dense_h_to_4h",
				"down_proj": "dense_4h_to_h", "act_fn": "act",
			},
		}, read: readNeoX,
	},
	"nemotron": {
		name: "Nemotron", flex: true, tokens: true, vocab: 256000, width: 6144, heads: 48, inner: 24576,
		positions: 4096, part: 0.5,
		base: llama.Config{
			Norm: llama.LayerNorm1P, MLP: llama.Ungated, Activation: "relu2",
			Rotary: llama.Rotary{Inside: true, Stepwise: true, Kept: true},
		}, keys: allBiases, read: readLlama,
	},
	"arcee": {
		name: "Arcee", flex: true, tokens: true, vocab: 32000, width: 2560, inner: 18432, positions: 4096,
		base: llama.Config{MLP: llama.Ungated, Activation: "relu2"}, keys: allBiases,
		read: readLlama,
	},
	"smollm3": {
		name: "SmolLM3", flex: true, tokens: true, vocab: 128256, width: 2048, layers: 36, heads: 16,
		kvHeads: 4, inner: 11008, positions: 32768, tied: true,
		keys: allBiases, read: readSmolLM3,
	},
	"seed_oss": {
		name: "SeedOss", flex: true, tokens: true, vocab: 155136, layers: 64, heads: 80, kvHeads: 8, headSize: 128,
		inner: 27648, positions: 524288,
		base: llama.Config{Dropouts: llama.Dropouts{DropoutInside: true}},
		keys: "QKVBias=attention_bias:true OutputBias=attention_out_bias:false MLPBias=mlp_bias:false " +
			"AttentionDropout=attention_dropout:0.1 ResidualDropout=residual_dropout:0.1",
	},
	"internlm3": {
		name: "InternLM3", vocab: 128512, layers: 48, kvHeads: 2, headSize: 128, inner: 10240, positions: 32768,
		noClasses: true,
		aliases:   map[string]string{"attention_bias": "qkv_bias", "mlp_bias": "bias"}, keys: allBiases,
		read: readInternLM3,
	},
	"cwm": {
		name: "Cwm", flex: true, vocab: 128256, width: 6144, layers: 64, heads: 48, kvHeads: 8, headSize: 128,
		inner: 21504, positions: 131072, noClasses: true,
		base: llama.Config{Masks: llama.Masks{AlwaysFullMask: true}}, keys: "MLPBias=mlp_bias:false",
		read: readCWM,
	},
	"jais2": {
		name: "Jais2", flex: true, vocab: 150272, width: 3328, heads: 26, inner: 26624, positions: 8192,
		noClasses: true,
		base:      llama.Config{Norm: llama.LayerNorm, MLP: llama.Ungated, Activation: "relu2"},
		keys:      "QKVBias+OutputBias=attention_bias:true MLPBias=mlp_bias:true",
	},
	"youtu": {
		name: "Youtu", flex: true, vocab: 128256, width: 2048, heads: 16, kvHeads: 16, inner: 6144, positions: 131072,
		tied: true, noClasses: true,
		base: llama.Config{Latent: llama.Latent{
			QueryRank: 1536, Rank: 512, NoPE: 128, RoPE: 64, Value: 128,
			Interleaved: true,
		}}, read: (*reader).latent,
	},
	"qwen3_5_text": {
		name: "Qwen3_5", tokens: true, noClasses: true, vocab: 248320, heads: 16, kvHeads: 4, headSize: 256,
		inner: 12288, positions: 32768, part: 0.25,
		base: llama.Config{
			Norm: llama.GemmaNorm, QKNorm: llama.HeadsNorm, AttentionGate: true, Activation: "silu",
			Rotary: llama.Rotary{Inside: true, Stepwise: true, Grids: 3},
		}, keys: biases, read: (*reader).deltaNets,
	},
}

// cohere is Command R, of which Command R7B (cohere2) differs in what a file says.
var cohere = relative{
	name: "Cohere", flex: true, vocab: 256000, width: 8192, layers: 40, heads: 64, inner: 22528, positions: 8192,
	tied: true, noClasses: true,
	base: llama.Config{
		Norm: llama.CohereNorm, Order: llama.CohereParallel,
		Scaling: llama.Scaling{ScoreScaled: true}, Rotary: llama.Rotary{Interleaved: true, InFloat32: true},
	},
	keys: biases, read: readCohere,
}

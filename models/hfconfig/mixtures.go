package hfconfig

import "github.com/vprof/vprof/models/llama"

// sharedNames is the name of the experts that see all tokens.
var sharedNames = llama.Names{"shared_expert": "shared_experts"}

// mixtures are the types of Llama's family that have experts, or may have them.
var mixtures = map[string]relative{
	"dots1": {
		name: "Dots1", flex: true, vocab: 152064, width: 4608, layers: 62, heads: 32, kvHeads: 32, inner: 10944,
		positions: 2048, noClasses: true, fused: fusedByQwen,
		base: llama.Config{
			QKNorm: llama.HeadsNorm, Names: sharedNames,
			Experts: llama.Experts{
				Routing: llama.RouteGroups, Count: 128, PerToken: 6, Inner: 1408,
				Groups: llama.Groups{Count: 1, Chosen: 1},
			},
		}, keys: biases, read: readDots1,
	},
	"solar_open": {
		name: "SolarOpen", unplanned: true, flex: true, vocab: 196608, layers: 48, heads: 64, kvHeads: 8, headSize: 128,
		inner: 10240, positions: 131072, noClasses: true, fused: fusedByQwen,
		base: llama.Config{
			Names: sharedNames,
			Experts: llama.Experts{
				Routing: llama.RouteGroups, Count: 128, PerToken: 8, Inner: 1280, Normalized: true,
				Groups: llama.Groups{Count: 1, Chosen: 1},
			},
		}, keys: "QKVBias=attention_bias:false",
		read: func(r *reader, c *llama.Config) { r.groupedExperts(c, 1) },
	},
	"qwen3_5_moe_text": {
		name: "Qwen3_5Moe", noClasses: true, vocab: 248320, width: 2048, layers: 40, heads: 16, kvHeads: 2,
		headSize: 256, inner: 512, positions: 32768, part: 0.25,
		base: llama.Config{
			Norm: llama.GemmaNorm, QKNorm: llama.HeadsNorm, AttentionGate: true, Activation: "silu",
			Rotary:  llama.Rotary{Inside: true, Stepwise: true, Grids: 3},
			Experts: llama.Experts{Normalized: true, SharedGate: true},
		}, keys: biases, read: readQwen35MoE,
	},
	"qwen3_next": {
		name: "Qwen3Next", tokens: true, vocab: 151936, width: 2048, layers: 48, heads: 16, kvHeads: 2, headSize: 256,
		inner: 5632, positions: 32768, part: 0.25, fused: fusedByQwen,
		base: llama.Config{
			Norm: llama.GemmaNorm, QKNorm: llama.HeadsNorm, AttentionGate: true, Activation: "silu",
			Rotary:   llama.Rotary{Inside: true, Stepwise: true},
			DeltaNet: llama.DeltaNet{Fused: true}, Experts: llama.Experts{SharedGate: true},
		}, keys: biases, read: readQwen3Next,
	},
	"mixtral": {
		name: "Mixtral", flex: true, tokens: true, vocab: 32000, kvHeads: 8, inner: 14336, positions: 131072,
		base:  llama.Config{Experts: llama.Experts{Routing: llama.RouteSoftmaxFloat, Normalized: true}},
		fused: fusedByMixtral, read: readMixtral,
	},
	"qwen2_moe": {
		name: "Qwen2Moe", unplanned: true, flex: true, tokens: true, vocab: 151936, width: 2048, layers: 24, heads: 16,
		kvHeads: 16, inner: 5632, positions: 32768, read: readQwen2MoE,
	},
	"qwen3_moe": {
		name: "Qwen3Moe", flex: true, tokens: true, vocab: 151936, width: 2048, layers: 24, heads: 32,
		kvHeads: 4, inner: 6144, positions: 32768, base: llama.Config{QKNorm: llama.HeadsNorm}, fused: fusedByQwen,
		keys: biases, read: readQwen3MoE,
	},
	"deepseek_v2": {
		name: "DeepseekV2", flex: true, vocab: 102400, inner: 11008, positions: 2048, fused: fusedByQwen,
		base: llama.Config{
			Latent: llama.Latent{QueryRank: 1536, Rank: 512, NoPE: 128, RoPE: 64, Value: 128},
			Rotary: llama.Rotary{Complex: true}, Names: sharedNames,
			Experts: llama.Experts{
				Routing: llama.RouteGreedy, Count: 64, PerToken: 6, Inner: 1407,
				Groups: llama.Groups{Count: 1, Chosen: 1},
			},
		}, read: readDeepseekV2,
	},
	"deepseek_v3": {
		name: "DeepseekV3", flex: true, tokens: true, vocab: 129280, width: 7168, layers: 61, heads: 128, kvHeads: 128,
		inner: 18432, positions: 4096, fused: fusedByQwen,
		base: llama.Config{
			Latent: llama.Latent{QueryRank: 1536, Rank: 512, NoPE: 128, RoPE: 64, Value: 128, Interleaved: true},
			Names:  sharedNames,
			Experts: llama.Experts{
				Routing: llama.RouteGroups, Count: 256, PerToken: 8, Inner: 2048, Normalized: true,
				Groups: llama.Groups{Count: 8, Chosen: 4},
			},
		}, read: readLatentExperts(3),
	},
	"glm4_moe": {
		name: "Glm4Moe", flex: true, vocab: 151552, width: 4096, layers: 46, heads: 96, kvHeads: 8, inner: 10944,
		positions: 131072, part: 0.5, noClasses: true, fused: fusedByQwen,
		base: llama.Config{
			Rotary: llama.Rotary{Inside: true, Stepwise: true}, Names: sharedNames,
			Experts: llama.Experts{
				Routing: llama.RouteGroups, Count: 128, PerToken: 8, Inner: 1408, Normalized: true,
				Groups: llama.Groups{Count: 1, Chosen: 1},
			},
		}, read: readGLM4MoE,
	},
	"glm4_moe_lite": {
		name: "Glm4MoeLite", flex: true, vocab: 154880, width: 2048, layers: 47, heads: 20, kvHeads: 20, inner: 10240,
		positions: 202752, noClasses: true, fused: fusedByQwen,
		base: llama.Config{
			Latent: llama.Latent{QueryRank: 768, Rank: 512, NoPE: 192, RoPE: 64, Value: 256, Interleaved: true},
			Names:  sharedNames,
			Experts: llama.Experts{
				Routing: llama.RouteGroups, Count: 64, PerToken: 4, Inner: 1536, Normalized: true,
				Groups: llama.Groups{Count: 1, Chosen: 1},
			},
		}, read: readGLM4MoELite,
	},
	"nemotron_h": {
		name: "NemotronH", vocab: 131072, kvHeads: 8, headSize: 128, inner: 21504, positions: 4096, noClasses: true,
		base: llama.Config{
			Norm: llama.FloatNorm, Order: llama.NemotronBlock, MLP: llama.Ungated, NoRotary: true, ScoresFloat: true,
			Experts: llama.Experts{Routing: llama.RouteGroups, NoGate: true},
			Names: llama.Names{
				"embed_tokens": "embeddings", "norm": "norm_f", "input_layernorm": "norm",
				"mamba": "mixer", "self_attn": "mixer", "mlp": "mixer",
			},
		}, read: readNemotronH,
	},
	"gpt_oss": {
		name: "GptOss", tokens: true, vocab: 201088, width: 2880, layers: 36, heads: 64, kvHeads: 8, headSize: 64,
		inner: 2880, positions: 131072,
		base: llama.Config{
			Norm: llama.OlmoNorm, Activation: "silu", Rotary: llama.Rotary{Halves: true},
			Kernels: llama.Kernels{Eager: true}, Sinks: true,
			Experts: llama.Experts{Routing: llama.RouteBiased, Clamped: true}, Names: llama.Names{"gate": "router"},
		}, read: readGPTOSS,
	},
	"llama4_text": {
		name: "Llama4", flex: true, vocab: 202048, width: 5120, layers: 48, heads: 40, kvHeads: 8, headSize: 128,
		inner: 8192, positions: 131072, noClasses: true, liger: true,
		base: llama.Config{
			Norm: llama.Llama4Norm, Order: llama.Llama4Order, Rotary: llama.Rotary{Complex: true},
			Llama4: llama.Llama4{Enabled: true, Chunked: true},
			Names:  llama.Names{"mlp": "feed_forward"},
		}, keys: biases, read: readLlama4,
	},
}

package hfconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
)

// withoutKernels says with every result that what has kernels of its own is recorded as
// transformers runs it without them.
func (a *architecture) withoutKernels(what, packages string) {
	a.note(fmt.Sprintf("%s is recorded as transformers runs it in PyTorch alone; with the kernels of %s a step "+
		"needs less", what, packages))
}

// note says something with every result.
func (a *architecture) note(note string) {
	a.notes = append(a.notes, note)
	a.caveat(func(models.Case) []string { return []string{note} })
}

// special says what there is to know of mixtures and of layers without attention.
func (d relative) special(c llama.Config, a *architecture) {
	d.attention(c, a)
	switch {
	case c.Llama4.Enabled:
		llama4(a)
	case c.Experts.Count > 0:
		d.mixture(c, a)
	}
	if len(c.ShortConv.Layers) > 0 {
		a.withoutKernels("the convolution", "causal_conv1d")
	}
	if len(c.KDA.Layers) > 0 {
		a.withoutKernels("Kimi's delta attention", "fla and causal_conv1d")
	}
	if len(c.DeltaNet.Layers) > 0 {
		a.withoutKernels("linear attention", "fla and causal_conv1d")
	}
	if c.Selective.Inner > 0 {
		a.selective(c)
	}
	switch c.Order {
	case llama.NemotronBlock:
		a.excludeFromAdapters("model.layers.0.mixer.out_proj")
	case llama.MambaBlock:
		a.excludeFromAdapters("backbone.layers.0.mixer.out_proj")
		a.refuse("quantize", "transformers' Mamba multiplies by the weights of its layers itself, which fails where "+
			"they are packed", func(c models.Case) bool { return c.Quantize != "" })
	}
	if c.Mamba.Heads > 0 {
		a.withoutKernels("Mamba", "mamba_ssm and causal_conv1d")
		if !c.Mamba.Bare { // peft refuses it for falcon_h1 and lets granitemoehybrid have it
			a.excludeFromAdapters("model.layers.0.mamba.out_proj")
		}
	}
}

// kernelsSetting is the name of the setting of models with selective state spaces.
const kernelsSetting = "mamba-kernels"

// mostScanned is how many tokens all layers together go over one after the other: more would
// take minutes to record, and months to train.
const mostScanned = 1 << 17

// selective says what there is to know of selective state spaces.
func (a *architecture) selective(m llama.Config) {
	a.settings = append(a.settings, models.Switch(kernelsSetting, 1,
		"1 if mamba_ssm and causal_conv1d are installed, 0 if transformers goes from token to token in PyTorch"))
	a.note("Mamba is recorded with the kernels of mamba_ssm 2.3 and causal_conv1d 1.6, without which transformers " +
		"goes from token to token: --set mamba-kernels=0")
	scans := int64(0)
	for _, mixes := range m.Selective.Layers {
		if mixes {
			scans++
		}
	}
	a.rule(func(c models.Case) (setting, reason string) {
		if tokens := scans * hf.TextOf(c).Length; !c.On(kernelsSetting) && tokens > mostScanned {
			return kernelsSetting, fmt.Sprintf("is 0: %d layers go over %d tokens one after the other; vprof records "+
				"%d of such steps at the most. Use --set mamba-kernels=1, or shorter sequences", scans,
				hf.TextOf(c).Length, mostScanned)
		}
		return "", ""
	})
}

// deltaNets reads linear attention, and which layers have it.
func (r *reader) deltaNets(c *llama.Config) {
	d := llama.DeltaNet{
		KeyHeads:   r.size("linear_num_key_heads", 16, mostWidth),
		ValueHeads: r.size("linear_num_value_heads", 32, mostWidth),
		KeySize:    r.size("linear_key_head_dim", 128, mostWidth), ValueSize: r.size("linear_value_head_dim", 128,
			mostWidth), Kernel: r.size("linear_conv_kernel_dim", 4, mostKernel),
	}
	r.must(d.ValueHeads%d.KeyHeads == 0, "linear_num_key_heads", "%d do not divide linear_num_value_heads %d",
		d.KeyHeads, d.ValueHeads)
	every := r.size("full_attention_interval", 4, mostLayers)
	d.Layers = r.layersOf("layer_types", c, []string{linearAttention}, []string{fullAttention}, func(i int64) bool {
		return (i+1)%every != 0
	})
	d.Fused = c.DeltaNet.Fused
	c.DeltaNet = d
}

func readQwen35MoE(r *reader, c *llama.Config) {
	r.deltaNets(c)
	r.experts(c, 256, "num_experts", "num_local_experts", 8, 512, "moe_intermediate_size")
	c.Experts.Shared = r.size("shared_expert_intermediate_size", 512, mostInner)
}

func readQwen3Next(r *reader, c *llama.Config) {
	r.deltaNets(c)
	r.experts(c, 512, "num_experts", "num_local_experts", 10, 512, "moe_intermediate_size")
	c.Experts.Normalized = r.flag("norm_topk_prob", true)
	c.Experts.Shared = r.size("shared_expert_intermediate_size", 512, mostInner)
	r.sparseLayers(c)
}

// excludeFromAdapters refuses adapters where peft does: the kernels of Mamba take the weight of
// that layer and would not see them.
func (a *architecture) excludeFromAdapters(path string) {
	a.refuse("lora", fmt.Sprintf("peft puts no adapters beside %s of Mamba models; name other layers, such as "+
		"target=in_proj", path[strings.LastIndexByte(path, '.')+1:]),
		func(c models.Case) bool { return c.LoRA != nil && c.LoRA.Adapts()(path) })
}

// The bounds of mixers.
const (
	mostState = 1 << 12
	mostChunk = 1 << 14
)

// readGraniteHybrid reads a decoder whose layers have attention or a mixer, and experts next to
// a feed-forward half.
func readGraniteHybrid(r *reader, c *llama.Config) {
	c.SharedInner = r.size("shared_intermediate_size", 1024, mostInner)
	if r.number("num_local_experts", 8, 0, mostExperts) > 0 {
		r.experts(c, 8, "num_local_experts", "num_experts", 2, c.Inner, "intermediate_size")
	}
	value, _, ok := r.get("position_embedding_type")
	c.NoRotary = !ok || unquoted(value) != "rope"
	m := r.mamba2(r.size("mamba_expand", 2, mostMerged)*c.Width, "mamba_expand times hidden_size,")
	m.OutBias, m.Norm, m.Bare = m.InBias, true, true
	every := func(int64) bool { return true }
	m.Layers = r.layersOf("layer_types", c, []string{"mamba", linearAttention},
		[]string{"attention", fullAttention}, every)
	c.Mamba = m
}

// readFalconH1 reads a decoder whose layers have attention and a mixer side by side.
func readFalconH1(r *reader, c *llama.Config) {
	inner := r.sizeOr("mamba_d_ssm", 1024, 0, mostInner)
	if inner == 0 {
		inner = r.size("mamba_expand", 2, mostMerged) * c.Width
	}
	c.Mamba = r.mamba2(inner, "mamba_d_ssm")
	c.Mamba.OutBias, c.Mamba.Norm = r.flag("projectors_bias", false), r.flag("mamba_rms_norm", false)
	c.Mamba.GateLast = r.flag("mamba_norm_before_gate", true)
}

// mamba2 reads the mixer of Mamba 2 that is inner wide inside, which the file says by what is named.
func (r *reader) mamba2(inner int64, named string) llama.Mamba {
	m := llama.Mamba{
		Heads: r.size("mamba_n_heads", 128, mostWidth), Groups: r.size("mamba_n_groups", 1, mostState),
		State: r.size("mamba_d_state", 256, mostState), Kernel: r.size("mamba_d_conv", 4, mostKernel),
		Chunk: r.size("mamba_chunk_size", 256, mostChunk), ConvBias: r.flag("mamba_conv_bias", true),
		InBias: r.flag("mamba_proj_bias", false),
	}
	m.HeadSize = r.automatic("mamba_d_head", max(1, inner/m.Heads))
	r.must(m.HeadSize*m.Heads == inner, "mamba_n_heads", "%d heads of %d are not %s %d", m.Heads,
		m.HeadSize, named, inner)
	r.must(m.Heads%m.Groups == 0, "mamba_n_groups", "%d do not divide mamba_n_heads %d", m.Groups, m.Heads)
	r.must(inner%m.Groups == 0, "mamba_n_groups", "%d do not divide %s %d", m.Groups, named, inner)
	return m
}

// automatic returns a size that the file may leave to transformers by "auto".
func (r *reader) automatic(key string, otherwise int64) int64 {
	if value, _, ok := r.get(key); ok && string(value) == `"auto"` {
		return otherwise
	}
	return r.size(key, otherwise, mostWidth)
}

// shortConvs reads which layers have a convolution: layer_types says so, or those that
// full_attn_idxs does not name.
func (r *reader) shortConvs(c *llama.Config) {
	if r.flag("tie_embedding", c.Tied) != c.Tied {
		c.Tied = !c.Tied
	}
	c.ShortConv = llama.ShortConv{Kernel: r.size("conv_L_cache", 3, mostKernel), Bias: r.flag("conv_bias", false)}
	full := r.numbers("full_attn_idxs", 0, mostLayers)
	c.ShortConv.Layers = r.layersOf("layer_types", c, []string{"conv"}, []string{fullAttention}, func(i int64) bool {
		return full != nil && !slices.Contains(full, i)
	})
}

func readLFM2(r *reader, c *llama.Config) {
	r.shortConvs(c)
	c.Inner = r.size("block_ff_dim", c.Inner, mostInner)
	if !r.flag("block_auto_adjust_ff_dim", true) {
		return
	}
	c.Inner = 2 * c.Inner / 3
	if value, _, ok := r.get("block_ffn_dim_multiplier"); !ok || !null(value) {
		factor := 1.0
		if ok {
			factor = r.positive(value, "block_ffn_dim_multiplier", 64, 1)
		}
		of := r.size("block_multiple_of", 256, mostWidth)
		c.Inner = ceil.Div(int64(factor*float64(c.Inner)), of) * of
	}
	r.must(c.Inner > 0, "intermediate_size", "leaves no width for the feed-forward layers")
}

func readLFM2MoE(r *reader, c *llama.Config) {
	r.shortConvs(c)
	r.experts(c, 32, "num_experts", "num_experts", 4, 1792, "moe_intermediate_size")
	dense := r.number("num_dense_layers", 2, 0, mostLayers)
	c.Experts.Dense = layers(c, func(i int64) bool { return i < dense })
	c.Experts.Normalized, c.Experts.Biased = r.flag("norm_topk_prob", true), r.flag("use_expert_bias", true)
}

// positive returns a number above 0, up to a bound.
func (r *reader) positive(value json.RawMessage, name string, most, otherwise float64) float64 {
	var p float64
	if json.Unmarshal(value, &p) != nil || !(p > 0 && p <= most) {
		r.wrong(name, "%s is not a number above 0, up to %g", excerpt(value), most)
		return otherwise
	}
	return p
}

// readJamba reads a decoder whose layers have attention or a selective state space, and
// experts or a feed-forward half.
func readJamba(r *reader, c *llama.Config) {
	c.Activation = r.word("hidden_act", "silu", hf.Activations())
	c.NoRotary = true
	attends, from := r.size("attn_layer_period", 8, mostLayers), r.number("attn_layer_offset", 4, 0, mostLayers)
	r.must(from < attends, "attn_layer_offset", "%d is not below attn_layer_period %d", from, attends)
	every, first := r.size("expert_layer_period", 2, mostLayers), r.number("expert_layer_offset", 1, 0, mostLayers)
	r.must(first < every, "expert_layer_offset", "%d is not below expert_layer_period %d", first, every)
	r.experts(c, 16, "num_experts", "num_local_experts", 2, c.Inner, "intermediate_size")
	c.Experts.Dense = layers(c, func(i int64) bool { return c.Experts.Count == 1 || i%every != first })
	r.refuse("use_mambapy", "false")
	s := llama.Selective{
		Inner: r.size("mamba_expand", 2, mostMerged) * c.Width, State: r.size("mamba_d_state", 16, mostState),
		Kernel:   r.size("mamba_d_conv", 4, mostKernel),
		ConvBias: r.flag("mamba_conv_bias", true), Bias: r.flag("mamba_proj_bias", false), Norms: true,
		Rank: ceil.Div(c.Width, 16), Layers: layers(c, func(i int64) bool { return i%attends != from }),
	}
	s.Rank = r.automatic("mamba_dt_rank", s.Rank)
	c.Selective = s
}

// readMamba reads a model that has selective state spaces and nothing else.
func readMamba(r *reader, c *llama.Config) {
	c.Activation = r.word("hidden_act", "silu", []string{"silu"})
	r.refuse("use_mambapy", "false")
	c.ResidualFloat = r.flag("residual_in_fp32", true)
	c.Selective = llama.Selective{
		Inner: r.size("expand", 2, mostMerged) * c.Width, State: r.size("state_size", 16, mostState),
		Kernel:   r.size("conv_kernel", 4, mostKernel),
		ConvBias: r.flag("use_conv_bias", true), Bias: r.flag("use_bias", false), Whole: true,
		Rank: ceil.Div(c.Width, 16), Layers: layers(c, func(int64) bool { return true }),
	}
	c.Selective.Rank = r.automatic("time_step_rank", c.Selective.Rank)
}

// readNemotronH reads a decoder whose layers have a mixer, attention, experts or a feed-forward
// half after a norm each.
func readNemotronH(r *reader, c *llama.Config) {
	c.Activation, c.MLPBias = r.word("mlp_hidden_act", "relu2", hf.Activations()), r.flag("mlp_bias", false)
	r.word("mamba_hidden_act", "silu", []string{"silu"})
	c.Blocks = r.layerBlocks()
	c.Layers = int64(len(c.Blocks))
	r.experts(c, 8, "n_routed_experts", "num_local_experts", 2, 7688, "moe_intermediate_size")
	c.Experts.Shared, c.Experts.LatentWidth = r.size("moe_shared_expert_intermediate_size", 7688, mostInner),
		r.sizeOr("moe_latent_size", 0, 0, mostWidth)
	c.Experts.Normalized = r.flag("norm_topk_prob", true)
	r.expertGroups(&c.Experts, llama.Groups{Count: 1, Chosen: 1})
	groups := r.size(r.either("mamba_n_groups", "n_groups"), 8, mostState)
	m := llama.Mamba{
		Heads: r.size("mamba_num_heads", 128, mostWidth), HeadSize: r.size("mamba_head_dim", 64, mostWidth),
		Groups: groups, State: r.size("ssm_state_size", 128, mostState),
		Kernel:   r.size(r.either("mamba_d_conv", "conv_kernel"), 4, mostKernel),
		Chunk:    r.size(r.either("mamba_chunk_size", "chunk_size"), 128, mostChunk),
		ConvBias: r.flag(r.either("mamba_conv_bias", "use_conv_bias"), true), InBias: r.flag("use_bias", false),
		Norm: true, Bare: true,
	}
	m.OutBias = m.InBias
	r.must(m.Heads%m.Groups == 0 && m.Heads*m.HeadSize%m.Groups == 0, "n_groups", "%d do not divide mamba_num_heads %d",
		m.Groups, m.Heads)
	c.Mamba = m
}

// either returns the first of two keys that the file has, or the second.
func (r *reader) either(first, second string) string {
	if _, ok := r.raw[first]; ok {
		return first
	}
	return second
}

// layerBlocks reads what layers have after their norm: hybrid_override_pattern says so by a letter
// each, or layers_block_type by names.
func (r *reader) layerBlocks() []llama.Block {
	kinds := map[string]llama.Block{
		"M": llama.MixerBlock, "mamba": llama.MixerBlock, "linear_attention": llama.MixerBlock, "E": llama.ExpertsBlock,
		"moe": llama.ExpertsBlock,
		"*":   llama.AttentionBlock, "attention": llama.AttentionBlock, fullAttention: llama.AttentionBlock,
		"-": llama.FeedBlock, "mlp": llama.FeedBlock,
	}
	key := r.either("layer_types", "layers_block_type")
	names := r.words(key)
	if value, _, ok := r.get("hybrid_override_pattern"); ok && names == nil {
		key = "hybrid_override_pattern"
		names = strings.Split(unquoted(value), "")
	}
	if names == nil {
		names = []string{"M", "E", "*", "-"}
	}
	if len(names) > mostLayers {
		r.wrong(key, "has %d layers; vprof takes %d at the most", len(names), mostLayers)
		names = names[:mostLayers]
	}
	out := make([]llama.Block, len(names))
	for i, name := range names {
		kind, ok := kinds[name]
		r.must(ok, key,
			"vprof does not know %q; it knows linear_attention, full_attention, moe and mlp, or M, *, E and -", name)
		out[i] = kind
	}
	r.must(len(out) > 0, key, "names no layer")
	return out
}

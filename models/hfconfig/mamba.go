package hfconfig

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
)

// addKernelNote adds a note to every result: layers are recorded as transformers runs them without the optional kernels
// of other packages.
func (a *architecture) addKernelNote(what, packages string) {
	a.addNote(fmt.Sprintf("%s is recorded as transformers runs it in PyTorch alone; with the kernels of %s a step "+
		"needs less", what, packages))
}

// addLayerSettings adds the settings and notes of layers with experts and of layers without attention.
func (d llamaType) addLayerSettings(c llama.Config, a *architecture) {
	d.addAttentionSettings(c, a)
	switch {
	case c.Llama4.Enabled:
		addLlama4Settings(a)
	case c.Experts.Count > 0:
		d.addExpertSettings(c, a)
	}
	if len(c.DeltaNet.Layers) > 0 {
		a.addKernelNote("linear attention", "fla and causal_conv1d")
	}
	if c.Order == llama.NemotronBlock {
		a.excludeFromAdapters("model.layers.0.mixer.out_proj")
		a.addKernelNote("Mamba", "mamba_ssm and causal_conv1d")
	}
}

// readDeltaNets reads the sizes of linear attention (gated DeltaNet), and which layers have it.
func (r *reader) readDeltaNets(c *llama.Config) {
	d := llama.DeltaNet{Fused: c.DeltaNet.Fused}
	r.setFields(&d, "KeyHeads=linear_num_key_heads:16 ValueHeads=linear_num_value_heads:32 "+
		"KeySize=linear_key_head_dim:128 ValueSize=linear_value_head_dim:128 Kernel=linear_conv_kernel_dim:4")
	r.must(d.ValueHeads%d.KeyHeads == 0, "linear_num_key_heads", "%d do not divide linear_num_value_heads %d",
		d.KeyHeads, d.ValueHeads)
	every := r.size("full_attention_interval", 4, mostLayers)
	d.Layers = r.layersOfKind("layer_types", c, linearAttention, fullAttention, func(i int64) bool {
		return (i+1)%every != 0
	})
	c.DeltaNet = d
}

func readQwen35MoE(r *reader, c *llama.Config) {
	r.readDeltaNets(c)
	r.readExperts(c, 256, "num_experts", "num_local_experts", 8, 512, "moe_intermediate_size")
	c.Experts.Shared = r.size("shared_expert_intermediate_size", 512, mostInner)
}

func readQwen3Next(r *reader, c *llama.Config) {
	r.readDeltaNets(c)
	r.readExperts(c, 512, "num_experts", "num_local_experts", 10, 512, "moe_intermediate_size")
	c.Experts.Normalized = r.boolean("norm_topk_prob", true)
	c.Experts.Shared = r.size("shared_expert_intermediate_size", 512, mostInner)
	r.readDenseLayers(c)
}

// excludeFromAdapters refuses adapters of a layer, as peft does: Mamba's kernels read the layer's weight directly and
// would ignore an adapter.
func (a *architecture) excludeFromAdapters(path string) {
	a.addRefusal("lora", fmt.Sprintf("peft adds no adapters to %s of Mamba models; name other layers, such as "+
		"target=in_proj", path[strings.LastIndexByte(path, '.')+1:]),
		func(c models.Case) bool { return c.LoRA != nil && c.LoRA.AdaptsPath()(path) })
}

// Limits of the sizes of Mamba layers.
const (
	mostState = 1 << 12
	mostChunk = 1 << 14
)

// positiveNumber returns a number above 0 and up to most; otherwise if the value is absent.
func (r *reader) positiveNumber(value json.RawMessage, name string, most, otherwise float64) float64 {
	var p float64
	if json.Unmarshal(value, &p) != nil || !(p > 0 && p <= most) {
		r.fail(name, "%s is not a number above 0, up to %g", excerpt(value), most)
		return otherwise
	}
	return p
}

// readNemotronH reads NemotronH, whose layers are a norm and one block: Mamba, attention, experts or feed-forward.
func readNemotronH(r *reader, c *llama.Config) {
	c.Activation, c.MLPBias = r.choice("mlp_hidden_act", "relu2", hf.Activations()), r.boolean("mlp_bias", false)
	r.choice("mamba_hidden_act", "silu", []string{"silu"})
	c.Blocks = r.layerBlocks()
	c.Layers = int64(len(c.Blocks))
	r.readExperts(c, 8, "n_routed_experts", "num_local_experts", 2, 7688, "moe_intermediate_size")
	c.Experts.Shared, c.Experts.LatentWidth = r.size("moe_shared_expert_intermediate_size", 7688, mostInner),
		r.sizeOr("moe_latent_size", 0, 0, mostWidth)
	c.Experts.Normalized = r.boolean("norm_topk_prob", true)
	r.readExpertGroups(&c.Experts, llama.Groups{Count: 1, Chosen: 1})
	groups := r.size(r.presentKey("mamba_n_groups", "n_groups"), 8, mostState)
	m := llama.Mamba{
		Heads: r.size("mamba_num_heads", 128, mostWidth), HeadSize: r.size("mamba_head_dim", 64, mostWidth),
		Groups: groups, State: r.size("ssm_state_size", 128, mostState),
		Kernel:         r.size(r.presentKey("mamba_d_conv", "conv_kernel"), 4, mostKernel),
		Chunk:          r.size(r.presentKey("mamba_chunk_size", "chunk_size"), 128, mostChunk),
		ConvBias:       r.boolean(r.presentKey("mamba_conv_bias", "use_conv_bias"), true),
		ProjectionBias: r.boolean("use_bias", false),
	}
	r.must(m.Heads%m.Groups == 0 && m.Heads*m.HeadSize%m.Groups == 0, "n_groups", "%d do not divide mamba_num_heads %d",
		m.Groups, m.Heads)
	c.Mamba = m
}

// presentKey returns the first key if the file has it, else the second.
func (r *reader) presentKey(first, second string) string {
	if _, ok := r.raw[first]; ok {
		return first
	}
	return second
}

// layerBlocks reads the kind of each layer's block: a letter in hybrid_override_pattern, or a name in
// layers_block_type.
func (r *reader) layerBlocks() []llama.Block {
	kinds := map[string]llama.Block{
		"M": llama.MixerBlock, "mamba": llama.MixerBlock, "linear_attention": llama.MixerBlock, "E": llama.ExpertsBlock,
		"moe": llama.ExpertsBlock,
		"*":   llama.AttentionBlock, "attention": llama.AttentionBlock, fullAttention: llama.AttentionBlock,
		"-": llama.FeedBlock, "mlp": llama.FeedBlock,
	}
	key := r.presentKey("layer_types", "layers_block_type")
	names := r.names(key)
	if value, _, ok := r.get("hybrid_override_pattern"); ok && names == nil {
		key = "hybrid_override_pattern"
		names = strings.Split(unquoted(value), "")
	}
	if names == nil {
		names = []string{"M", "E", "*", "-"}
	}
	if len(names) > mostLayers {
		r.fail(key, "has %d layers; vprof takes %d at the most", len(names), mostLayers)
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

package hfconfig

import "github.com/vprof/vprof/models/llama"

// readLatentAttention reads the sizes of multi-head latent attention; c has the defaults.
func (r *reader) readLatentAttention(c *llama.Config) {
	s := &c.Latent
	s.QueryRank, s.Rank = r.sizeOr("q_lora_rank", s.QueryRank, 0, mostWidth), r.size("kv_lora_rank", s.Rank, mostWidth)
	s.NoPE, s.RoPE = r.size("qk_nope_head_dim", s.NoPE, mostWidth), r.size("qk_rope_head_dim", s.RoPE, mostWidth)
	s.Value, s.Interleaved = r.size("v_head_dim", s.Value, mostWidth), r.boolean("rope_interleave", s.Interleaved)
	r.checkEven("qk_rope_head_dim", s.RoPE)
	r.must(c.KVHeads == c.Heads, "num_key_value_heads",
		"%d: need as many as num_attention_heads, because latent attention shares no heads", c.KVHeads)
	r.setFields(c, biasKeys)
	c.Rotary.Size = s.RoPE
}

// readGroupedExperts reads a mixture of experts by DeepSeek's keys. c has the defaults, and shared is the default
// number of experts that run on all tokens.
func (r *reader) readGroupedExperts(c *llama.Config, shared int64) {
	e := &c.Experts
	r.readExperts(c, e.Count, "n_routed_experts", "num_local_experts", e.PerToken, e.Inner, "moe_intermediate_size")
	e.SharedLast, e.Shared = true, e.Inner*r.size("n_shared_experts", shared, mostExperts)
	e.Normalized = r.boolean("norm_topk_prob", e.Normalized) && e.Routing != llama.RouteGreedy
	if e.Routing == llama.RouteGreedy &&
		r.choice("topk_method", "greedy", []string{"greedy", "group_limited_greedy"}) == "greedy" {
		e.Groups = llama.Groups{}
		return
	}
	r.readExpertGroups(e, e.Groups)
}

func (r *reader) readExpertGroups(e *llama.Experts, usual llama.Groups) {
	g := llama.Groups{
		Count:  r.size("n_group", usual.Count, mostExperts),
		Chosen: r.size("topk_group", usual.Chosen, mostExperts),
	}
	e.Groups = g
	r.must(e.Count%g.Count == 0, "n_group", "%d groups: need a number that divides the %d experts", g.Count, e.Count)
	r.must(g.Chosen <= g.Count, "topk_group", "%d groups: need at most the %d groups of n_group", g.Chosen, g.Count)
	r.must(e.Routing == llama.RouteGreedy || e.Count/g.Count >= 2, "n_group",
		"%d groups are too many for %d experts: need at least two experts in each", g.Count, e.Count)
}

// readFirstDense reads the number of first layers that have no experts (first_k_dense_replace).
func (r *reader) readFirstDense(c *llama.Config, usual int64) {
	first := r.number("first_k_dense_replace", usual, 0, mostLayers)
	c.Experts.Dense = layersWhere(c, func(i int64) bool { return i < first })
}

func readDeepseekV2(r *reader, c *llama.Config) {
	r.readLatentAttention(c)
	c.MLPBias = r.boolean("mlp_bias", false)
	r.readGroupedExperts(c, 2)
	r.readFirstDense(c, 0)
}

func readDeepseekV3(r *reader, c *llama.Config) {
	r.readLatentAttention(c)
	r.readGroupedExperts(c, 1)
	r.readFirstDense(c, 3)
}

func readSolarOpen(r *reader, c *llama.Config) { r.readGroupedExperts(c, 1) }

func readGLM4MoELite(r *reader, c *llama.Config) {
	r.readLatentAttention(c)
	r.readGroupedExperts(c, 1)
	c.Experts.Dense = r.layersOfKind("mlp_layer_types", c, "dense", "sparse", func(i int64) bool {
		return i == 0
	})
}

// readGLM4MoE reads a decoder with experts like DeepSeek's and attention like GLM's.
func readGLM4MoE(r *reader, c *llama.Config) {
	c.QKVBias = r.boolean("attention_bias", false)
	if r.boolean("use_qk_norm", false) {
		c.QKNorm = llama.HeadsNorm
	}
	r.readGroupedExperts(c, 1)
	r.readFirstDense(c, 1)
}

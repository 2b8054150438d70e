package hfconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/llama"
)

// mostExperts is the largest accepted number of experts.
const mostExperts = 1 << 12

// addExpertSettings adds the notes, settings and adapter rules of a mixture of experts.
func (d llamaType) addExpertSettings(c llama.Config, a *architecture) {
	a.notes = append(a.notes, "experts run by grouped products, transformers' grouped_mm: no size depends on how "+
		"tokens are routed; before transformers 5, most run one by one, planned with equal shares of the tokens")
	a.addCaveat(func(c models.Case) []string {
		if c.Quantize == "" || c.QuantizesExperts() || d.hasExpertLayers(c) {
			return nil
		}
		return []string{
			"quantize: the experts are not packed, since bitsandbytes packs linear layers and transformers 5 holds " +
				"experts in parameters; --quantize " + c.ExpertQuantization() +
				" packs them, too (quantize_moe_experts of axolotl)",
		}
	})
	const unshared = "experts of transformers 4 are not shared; leave out ep= and tp="
	a.addRefusal("strategy", unshared, func(c models.Case) bool {
		return c.Strategy != nil && max(c.Strategy.EP, c.Strategy.TP) > 1 && d.hasExpertLayers(c)
	})
	if len(d.Fused) == 0 {
		return
	}
	// listed reports whether some linear layers share the experts' names: a shared expert's, which sees all tokens, or
	// the dense layers'.
	listed := c.Experts.Shared > 0 || slices.Contains(c.Experts.Dense, true)
	a.addCheck(func(c models.Case) (setting, reason string) {
		if c.LoRA != nil && !d.hasExpertLayers(c) {
			if _, err := d.convertedAdapters(*c.LoRA, listed); err != "" {
				return "lora", err
			}
		}
		return "", ""
	})
	a.adapters = func(c models.Case) models.LoRA {
		if d.hasExpertLayers(c) {
			return *c.LoRA
		}
		l, _ := d.convertedAdapters(*c.LoRA, listed)
		return l
	}
	a.addCaveat(func(c models.Case) (notes []string) {
		if c.LoRA == nil || d.hasExpertLayers(c) {
			return notes
		}
		if l, _ := d.convertedAdapters(*c.LoRA, listed); c.QuantizesExperts() && len(l.Parameters) > 1 {
			notes = append(notes,
				"of two adapters beside packed experts, the experts see that of down_proj alone: peft unpacks "+
					"gate_up_proj before its adapter is there, and the cache keeps that; its adapter stays as it is")
		}
		return notes
	})
}

// hasExpertLayers reports whether each expert has linear layers of its own in the case's release of transformers.
func (d llamaType) hasExpertLayers(c models.Case) bool {
	return d.Listed != nil && !c.Libraries().FusedExperts
}

// convertedAdapters returns the adapters that peft creates if the target layers are parameters of all experts in
// transformers 5 (convert_peft_config_for_transformers). peft then adapts those parameters, with twice the rank if one
// parameter holds two layers, and no other layers with the same names. all-linear and a list of all linear layers'
// names include them.
func (d llamaType) convertedAdapters(l models.LoRA, listed bool) (out models.LoRA, reason string) {
	if l.Match != "" || l.Method != "" {
		return l, d.matchRefusal(l)
	}
	out, found := l, map[string]bool{}
	if names := d.Fused; l.TargetsAllLinear() {
		if l.ListsTargets() {
			names = names[1:]
		}
		if !l.ListsTargets() || listed {
			out.Excluded = append(slices.Clone(l.Excluded), d.Fused...)
			l.Targets = append([]string{models.LinearLayers}, names...)
		}
	}
	out.Targets = nil
	for _, target := range l.Targets {
		name := target[strings.LastIndexByte(target, '.')+1:]
		if !slices.Contains(d.Fused, name) {
			out.Targets = append(out.Targets, target)
			continue
		}
		found[name] = true
	}
	router, gate, up, down := d.Fused[0], d.Fused[1], d.Fused[2], d.Fused[3]
	switch {
	case len(found) == 0:
		return l, ""
	case found[gate] != found[up]:
		if found[up] {
			gate, up = up, gate
		}
		return l, fmt.Sprintf("target %s: peft cannot convert it without %s, since both are in the experts' "+
			"gate_up_proj", gate, up)
	}
	add := func(parameter string) {
		if !slices.Contains(out.Parameters, parameter) {
			out.Parameters = append(slices.Clone(out.Parameters), parameter)
		}
	}
	if found[router] {
		add("gate.weight")
	}
	if found[gate] {
		add("gate_up_proj")
		out.Ranks = map[string]int64{"gate_up_proj": 2 * l.Rank}
	}
	if found[down] {
		add("down_proj")
	}
	return out, ""
}

// matchRefusal returns why a regular expression that matches experts' layers is refused: peft converts its matches to
// names, and these match more layers.
func (d llamaType) matchRefusal(l models.LoRA) string {
	if l.Method != "" { // which peft converts nothing of
		return ""
	}
	adapts := l.AdaptsPath()
	for _, name := range d.Fused {
		for _, module := range []string{"", ".experts", ".shared_expert", ".shared_experts"} {
			for _, layer := range []string{"0", "1", "10"} {
				if adapts("model.layers." + layer + ".mlp" + module + "." + name) {
					return "match reaches " + name +
						", which is in a parameter of the experts, and peft makes names of what it matches; list " +
						"names with target="
				}
			}
		}
	}
	return ""
}

// readExperts reads the number of experts (from the key also, if the file has it), their number per token and width.
func (r *reader) readExperts(c *llama.Config, count int64, key, also string, each, inner int64, innerKey string) {
	if _, given := r.raw[also]; given {
		key = also
	}
	c.Experts.Count = r.size(key, count, mostExperts)
	c.Experts.PerToken = r.size("num_experts_per_tok", each, mostExperts)
	c.Experts.Inner = r.size(innerKey, inner, mostInner)
	r.refuse("output_router_logits", "false")
	r.checkExperts("num_experts_per_tok", c.Experts.PerToken, c.Experts.Count)
}

// checkExperts checks the number of experts per token, and that experts_implementation is the default.
func (r *reader) checkExperts(key string, perToken, count int64) {
	r.must(perToken <= count, key, "%d experts for each token: need at most the %d experts of the model",
		perToken, count)
	for _, key := range []string{"experts_implementation", "_experts_implementation"} {
		r.refuse(key, `"grouped_mm"`)
	}
}

func readMixtral(r *reader, c *llama.Config) {
	r.readExperts(c, 8, "num_local_experts", "num_experts", 2, c.Inner, "intermediate_size")
	r.refuse("router_jitter_noise", "0", "0.0")
	r.setWindow(c, 0)
}

// readDenseLayers reads which layers have no experts, from the keys of Qwen's configurations.
func (r *reader) readDenseLayers(c *llama.Config) {
	step, dense := r.size("decoder_sparse_step", 1, mostLayers), map[int64]bool{}
	for _, i := range r.numbers("mlp_only_layers", mostLayers) {
		dense[i] = true
	}
	c.Experts.Dense = layersWhere(c, func(i int64) bool { return dense[i] || (i+1)%step != 0 })
}

func readQwen2MoE(r *reader, c *llama.Config) {
	r.readExperts(c, 60, "num_experts", "num_experts", 4, 1408, "moe_intermediate_size")
	c.Experts.Normalized = r.boolean("norm_topk_prob", false)
	c.Experts.Shared, c.Experts.SharedGate = r.size("shared_expert_intermediate_size", 5632, mostInner), true
	c.QKVBias = r.boolean("qkv_bias", true)
	r.readDenseLayers(c)
	// transformers creates this mask although its window of no tokens hides everything.
	c.AlwaysFullMask, c.AlwaysWindowMask = true, true
	r.refuse("use_sliding_window", "false")
}

func readQwen3MoE(r *reader, c *llama.Config) {
	r.readExperts(c, 128, "num_experts", "num_local_experts", 8, 768, "moe_intermediate_size")
	c.Experts.Normalized = r.boolean("norm_topk_prob", false)
	r.readDenseLayers(c)
	r.refuse("use_sliding_window", "false")
}

func readQwen3VLMoE(r *reader, c *llama.Config) {
	r.readExperts(c, 60, "num_experts", "num_local_experts", 4, 1408, "moe_intermediate_size")
	r.readDenseLayers(c)
}

func readGPTOSS(r *reader, c *llama.Config) {
	c.QKVBias = r.boolean("attention_bias", true)
	c.OutputBias, c.AlwaysFullMask = c.QKVBias, true
	r.readExperts(c, 128, "num_local_experts", "num_experts", 4, c.Inner, "intermediate_size")
	r.readWindows(c, 128, func(i int64) bool { return i%2 == 0 })
}

package hfconfig

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/tower"
)

// linearizedSetting is the setting that chooses one linear layer per expert in Llama 4.
const linearizedSetting = "linearized-experts"

// readLlama4 reads Llama 4, whose layers attend within chunks or have no position embeddings.
func readLlama4(r *reader, c *llama.Config) {
	c.Experts.Count = r.size("num_local_experts", 16, mostExperts)
	c.Experts.PerToken = r.size("num_experts_per_tok", 1, mostExperts)
	c.Experts.Inner, c.Inner = c.Inner, r.size("intermediate_size_mlp", 16384, mostInner)
	r.must(c.Experts.PerToken <= c.Experts.Count, "num_experts_per_tok",
		"%d experts for each token: need at most the %d experts of the model", c.Experts.PerToken, c.Experts.Count)
	r.refuse("output_router_logits", "false")
	c.Llama4.QKNorm = r.boolean("use_qk_norm", true)
	c.Llama4.TemperatureTuning = r.hasTemperatureTuning()
	every := r.size("no_rope_layer_interval", 4, mostLayers)
	c.Unrotated = layersWhere(c, func(i int64) bool { return (i+1)%every == 0 })
	if turned := r.numbers("no_rope_layers", 1); len(turned) > 0 {
		if int64(len(turned)) < c.Layers {
			r.fail("no_rope_layers", "the list has %d layers: need one value for each of the %d layers of "+
				"num_hidden_layers", len(turned), c.Layers)
			return
		}
		c.Unrotated = layersWhere(c, func(i int64) bool { return turned[i] == 0 })
	}
	c.Window = r.size("attention_chunk_size", 8192, mostPositions)
	c.Windowed = r.slidingLayers(c, chunkedAttention, func(i int64) bool { return !c.Unrotated[i] })
	step := r.size("interleave_moe_layer_step", 1, mostLayers)
	c.Experts.Dense = layersWhere(c, func(i int64) bool { return (i+1)%step != 0 })
	if some := r.numbers("moe_layers", mostLayers); some != nil {
		c.Experts.Dense = layersWhere(c, func(i int64) bool { return !slices.Contains(some, i) })
	}
}

// hasTemperatureTuning reads attn_temperature_tuning, which is a number in Meta's own files.
func (r *reader) hasTemperatureTuning() bool {
	const key = "attn_temperature_tuning"
	var n float64
	if value, _, ok := r.get(key); ok && json.Unmarshal(value, &n) == nil {
		return n != 0
	}
	return r.boolean(key, true)
}

func addLlama4Settings(a *architecture) {
	a.settings = append(a.settings, models.SwitchSetting(linearizedSetting, 0, "1 if experts are lists of linear "+
		"layers, as axolotl's llama4_linearized_experts has them, 0 if they are parameters of all"))
	a.settings = append(a.settings, hf.Flash.Setting())
	a.addRefusal("lora", "peft would also adapt the router, a linear layer with two results, and the step would "+
		"fail; name the layers, such as target=q_proj+k_proj+v_proj+o_proj", func(c models.Case) bool {
		return c.LoRA != nil && c.LoRA.Match == "" &&
			(len(c.LoRA.Targets) == 0 || slices.ContainsFunc(c.LoRA.Targets, isRouter))
	})
	a.addRefusal("flash", "transformers has no FlashAttention for Llama 4 and raises \"does not support Flash "+
		"Attention\"; leave out --set flash", hf.Flash.IsChosen)
	a.addNote("all experts see all tokens, weighed by zeros where they are not chosen: no size depends on how tokens " +
		"are routed")
}

// isRouter reports whether a module path ends in router.
func isRouter(name string) bool { return name[strings.LastIndexByte(name, '.')+1:] == "router" }

// withoutLigerLoss refuses liger-kernel's fused loss, which liger-kernel applies only to the decoder without towers.
func withoutLigerLoss(a *architecture) {
	a.addRefusal("liger", "the output of liger-kernel's fused loss has no router_logits, which "+
		"Llama4ForConditionalGeneration of transformers 5.23 reads; use PyTorch's loss with "+
		"--set plain-loss=1", hf.HasLigerLoss)
}

func towersLlama4(r *reader, text llama.Config) func() llama.Wrapper {
	v, s, _ := r.visionConfig(tower.Size{Width: 768, Inner: 5632, Layers: 34, Heads: 16, Image: 448, Patch: 14},
		"llama4_vision_model")
	out, hidden := v.size("vision_output_dim", 7680, mostWidth), v.size("projector_input_dim", 4096, mostWidth)
	s.Out = v.size("projector_output_dim", 4096, mostWidth)
	r.must(hidden == s.Out, "vision_config.projector_input_dim",
		"%d: need the value of projector_output_dim, %d", hidden, s.Out)
	return func() llama.Wrapper {
		p := (&nn.NamedModule{}).Add("vision_model", tower.Llama4(s))
		p.AddChild("multi_modal_projector").Add("linear_1", nn.NewLinear(out, text.Width, false))
		return llama.Wrapper{Before: p, WithHead: true}
	}
}

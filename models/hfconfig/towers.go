package hfconfig

import (
	"encoding/json"

	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/tower"
)

// unquoted returns the content of a JSON string, or another JSON value unchanged.
func unquoted(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) != nil {
		return excerpt(value)
	}
	return s
}

// visionConfig reads vision_config, whose model_type must be one of kinds (the first by default). s has default sizes.
func (r *reader) visionConfig(s tower.Size, kinds ...string) (v *reader, size tower.Size, kind string) {
	v = r.sub("vision_config")
	kind = v.choice("model_type", kinds[0], kinds)
	s.Width = v.size("hidden_size", s.Width, mostWidth)
	s.Inner = v.size("intermediate_size", s.Inner, mostInner)
	s.Channels = v.size("num_channels", 3, mostChannels)
	s.Layers = v.size("num_hidden_layers", s.Layers, mostLayers)
	s.Heads = v.size("num_attention_heads", s.Heads, mostWidth)
	s.Image, s.Patch = v.squareSize("image_size", s.Image), v.squareSize("patch_size", s.Patch)
	v.checkHeads("num_attention_heads", s.Heads, "hidden_size", s.Width)
	v.must(s.Patch <= s.Image, "patch_size", "%d is larger than image_size %d", s.Patch, s.Image)
	s.Positions = (s.Image / s.Patch) * (s.Image / s.Patch)
	return v, s, kind
}

// qwenVisionConfig reads a vision_config with the keys of Qwen and GLM (depth, num_heads).
func (r *reader) qwenVisionConfig(s tower.Size, kinds ...string) (v *reader, size tower.Size) {
	v = r.sub("vision_config")
	v.choice("model_type", kinds[0], kinds)
	s.Layers, s.Heads = v.size("depth", s.Layers, mostLayers), v.size("num_heads", s.Heads, mostWidth)
	s.Channels = v.size("in_channels", v.size("in_chans", 3, mostChannels), mostChannels)
	s.Patch, s.Merge, s.Frames = v.size("patch_size", s.Patch, mostImage), v.size("spatial_merge_size", 2, mostMerged),
		v.size("temporal_patch_size", 2, mostMerged)
	return v, s
}

// addProjector adds two linear layers with an activation between them.
func addProjector(p *nn.NamedModule, in, width int64, bias bool) {
	p.Add("linear_1", nn.NewLinear(in, width, bias)).Add("linear_2", nn.NewLinear(width, width, bias))
}

func towersMistral3(r *reader, text llama.Config) func() llama.Wrapper {
	usual := tower.Size{Width: 1024, Inner: 4096, Layers: 24, Heads: 16, Image: 1540, Patch: 14}
	_, s, _ := r.visionConfig(usual, "pixtral")
	merge := r.size("spatial_merge_size", 2, mostMerged)
	r.refuse("vision_feature_layer", "-1", "-2")
	bias := r.boolean("multimodal_projector_bias", false)
	return func() llama.Wrapper {
		p := (&nn.NamedModule{}).Add("vision_tower", tower.Pixtral(s))
		m := p.AddChild("multi_modal_projector")
		m.AddChild("norm").AddParameter("weight", s.Width)
		m.AddChild("patch_merger").Add("merging_layer", nn.NewLinear(s.Width*merge*merge, s.Width, false))
		addProjector(m, s.Width, text.Width, bias)
		return llama.Wrapper{Before: p}
	}
}

func towersGemma3(r *reader, text llama.Config) func() llama.Wrapper {
	s := r.gemma3Vision()
	return func() llama.Wrapper {
		p := (&nn.NamedModule{}).Add("vision_tower", tower.Siglip(s))
		p.AddChild("multi_modal_projector").AddParameter("mm_input_projection_weight", s.Width,
			text.Width).Add("mm_soft_emb_norm", tower.NewGemmaNorm(s.Width))
		return llama.Wrapper{Before: p}
	}
}

func (r *reader) gemma3Vision() tower.Size {
	v, s, _ := r.visionConfig(tower.Size{Width: 768, Inner: 3072, Layers: 12, Heads: 12, Image: 224, Patch: 16},
		"siglip_vision_model")
	s.Pooled, s.Activation = v.boolean("vision_use_head", true),
		v.choice("hidden_act", "gelu_pytorch_tanh", hf.Activations())
	return s
}

func towersLlava(r *reader, text llama.Config) func() llama.Wrapper {
	s, kind := r.llavaVision()
	made := tower.CLIP
	if kind == "pixtral" {
		made = tower.Pixtral
	}
	bias := r.boolean("multimodal_projector_bias", true)
	return func() llama.Wrapper {
		p := (&nn.NamedModule{}).Add("vision_tower", made(s))
		addProjector(p.AddChild("multi_modal_projector"), s.Width, text.Width, bias)
		return llama.Wrapper{Before: p}
	}
}

func (r *reader) llavaVision() (s tower.Size, kind string) {
	v, s, kind := r.visionConfig(tower.Size{Width: 1024, Inner: 4096, Layers: 24, Heads: 16, Image: 336, Patch: 14},
		"clip_vision_model", "pixtral")
	r.refuse("vision_feature_layer", "-1", "-2")
	s.FeatureLayer = -2
	if value, _, ok := r.get("vision_feature_layer"); ok && string(value) == "-1" {
		s.FeatureLayer = -1
	}
	if kind == "clip_vision_model" {
		s.Activation = v.choice("hidden_act", "quick_gelu", hf.Activations())
	}
	return s, kind
}

func newQwenTower(read func(*reader) tower.Size, made func(tower.Size) *nn.NamedModule) func(*reader,
	llama.Config) func() llama.Wrapper {
	return func(r *reader, _ llama.Config) func() llama.Wrapper {
		s := read(r)
		return func() llama.Wrapper { return llama.Wrapper{Before: (&nn.NamedModule{}).Add("visual", made(s))} }
	}
}

func readQwen2Vision(r *reader) tower.Size {
	v, s := r.qwenVisionConfig(tower.Size{Layers: 32, Heads: 16, Patch: 14}, "qwen2_vl_vision", "qwen2_vl")
	s.Width = v.size("embed_dim", 1280, mostWidth)
	s.Inner, s.Out = v.size("mlp_ratio", 4, mostMerged)*s.Width, v.size("hidden_size", 3584, mostWidth)
	s.Activation = v.choice("hidden_act", "quick_gelu", hf.Activations())
	return s
}

func readQwen25Vision(r *reader) tower.Size {
	v, s := r.qwenVisionConfig(tower.Size{Layers: 32, Heads: 16, Patch: 14}, "qwen2_5_vl_vision", "qwen2_5_vl")
	s.Width, s.Inner, s.Out = v.size("hidden_size", 3584, mostWidth), v.size("intermediate_size", 3420, mostInner),
		v.size("out_hidden_size", 3584, mostWidth)
	s.Activation, s.Gated = v.choice("hidden_act", "silu", hf.Activations()), true
	s.Window = v.size("window_size", 112, mostImage)
	s.FullAttentionLayers = v.numbers("fullatt_block_indexes", mostLayers, 7, 15, 23, 31)
	v.must(s.Window >= s.Patch*s.Merge, "window_size", "%d has no room for a square of %d patches of %d pixels",
		s.Window, s.Merge, s.Patch)
	return s
}

func readQwen3Vision(r *reader) tower.Size {
	v, s := r.qwenVisionConfig(tower.Size{Layers: 27, Heads: 16, Patch: 16},
		"qwen3_vl_vision", "qwen3_vl", "qwen3_vl_moe_vision", "qwen3_vl_moe")
	s.Width, s.Inner, s.Out = v.size("hidden_size", 1152, mostWidth), v.size("intermediate_size", 4304, mostInner),
		v.size("out_hidden_size", 3584, mostWidth)
	s.Positions, s.Activation = v.size("num_position_embeddings", 2304, mostPositions),
		v.choice("hidden_act", "gelu_pytorch_tanh", hf.Activations())
	s.DeepLayers = v.numbers("deepstack_visual_indexes", mostLayers, 8, 16, 24)
	s.Deep = int64(len(s.DeepLayers))
	return s
}

func readQwen35Vision(r *reader) tower.Size {
	v, s := r.qwenVisionConfig(tower.Size{Layers: 27, Heads: 16, Patch: 16},
		"qwen3_5_vision", "qwen3_5", "qwen3_5_moe_vision", "qwen3_5_moe")
	s.Width, s.Inner, s.Out = v.size("hidden_size", 1152, mostWidth), v.size("intermediate_size", 4304, mostInner),
		v.size("out_hidden_size", 3584, mostWidth)
	s.Positions = v.size("num_position_embeddings", 2304, mostPositions)
	return s
}

func towersSmolVLM(r *reader, text llama.Config) func() llama.Wrapper {
	_, s, _ := r.visionConfig(tower.Size{Width: 1152, Inner: 3072, Layers: 12, Heads: 16, Image: 224, Patch: 32},
		"smolvlm_vision")
	scale := r.size("scale_factor", 2, mostMerged)
	return func() llama.Wrapper {
		p := (&nn.NamedModule{}).Add("vision_model", tower.SmolVLM(s))
		p.AddChild("connector").AddChild("modality_projection").Add("proj",
			nn.NewLinear(s.Width*scale*scale, text.Width, false))
		return llama.Wrapper{Decoder: "text_model", Before: p}
	}
}

func towersGLM4V(r *reader, _ llama.Config) func() llama.Wrapper {
	v, s := r.qwenVisionConfig(tower.Size{Layers: 24, Heads: 12, Patch: 14}, "glm4v_vision", "glm4v")
	image := v.size("image_size", 336, mostImage)
	s.Width, s.Out = v.size("hidden_size", 1536, mostWidth), v.size("out_hidden_size", 4096, mostWidth)
	s.Positions, s.Inner, s.Bias = (image/s.Patch)*(image/s.Patch), s.Out, v.boolean("attention_bias", false)
	v.must(s.Positions > 0, "patch_size", "%d is larger than image_size %d", s.Patch, image)
	inner := v.size("intermediate_size", 13696, mostInner)
	return func() llama.Wrapper {
		return llama.Wrapper{Before: (&nn.NamedModule{}).Add("visual", tower.GLM4V(s, inner))}
	}
}

func towersPaddleOCR(r *reader, text llama.Config) func() llama.Wrapper {
	v, s, _ := r.visionConfig(tower.Size{Width: 1152, Inner: 4304, Layers: 27, Heads: 16, Image: 384, Patch: 14},
		"paddleocr_vl_vision", "paddleocr_vl")
	merge := v.size("spatial_merge_size", 2, mostMerged)
	return func() llama.Wrapper {
		before, after := &nn.NamedModule{}, &nn.NamedModule{}
		before.AddChild("visual").Add("vision_model", tower.PaddleOCR(s))
		square := s.Width * merge * merge
		after.AddChild("projector").Add("pre_norm", nn.NewLayerNorm(s.Width)).Add("linear_1",
			nn.NewLinear(square, square, true)).Add("linear_2", nn.NewLinear(square, text.Width, true))
		return llama.Wrapper{Before: before, After: after}
	}
}

func towersMllama(r *reader, text llama.Config) func() llama.Wrapper {
	s, t, _ := r.mllamaVision()
	out := r.sub("vision_config").size("vision_output_dim", 7680, mostWidth)
	return func() llama.Wrapper {
		after := (&nn.NamedModule{}).Add("multi_modal_projector", nn.NewLinear(out, text.Width, true))
		return llama.Wrapper{Before: (&nn.NamedModule{}).Add("vision_model", tower.Mllama(s, t)), After: after}
	}
}

// mllamaVision reads a vision tower that processes images in tiles, and the layers whose hidden states it returns.
func (r *reader) mllamaVision() (s tower.Size, t tower.Tiled, states []int64) {
	v := r.sub("vision_config")
	v.aliases = map[string]string{"num_attention_heads": "attention_heads"}
	v, s, _ = r.visionConfig(tower.Size{Width: 1280, Inner: 5120, Layers: 32, Heads: 16, Image: 448, Patch: 14},
		"mllama_vision_model")
	s.Activation = v.choice("hidden_act", "gelu", hf.Activations())
	t = tower.Tiled{
		Tiles:  v.size("max_num_tiles", 4, mostMerged),
		Global: v.size("num_global_layers", 8, mostLayers), Shapes: 8,
	}
	if value, _, ok := v.get("supported_aspect_ratios"); ok && !null(value) {
		var shapes []json.RawMessage
		v.must(json.Unmarshal(value, &shapes) == nil && len(shapes) <= mostMerged, "supported_aspect_ratios",
			"%s is not a list of up to %d shapes", excerpt(value), mostMerged)
		t.Shapes = int64(len(shapes))
	}
	return s, t, v.numbers("intermediate_layers_indices", mostLayers, 3, 7, 15, 23, 30)
}

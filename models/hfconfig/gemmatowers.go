package hfconfig

import (
	"github.com/vprof/vprof/models/gemma"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/tower"
)

func towersGemma4(r *reader, c *gemma.Config) func() llama.Wrapper {
	sees, hears := r.has("vision_config"), r.has("audio_config")
	v, a := r.sub("vision_config"), r.sub("audio_config")
	v.choice("model_type", "gemma4_vision", []string{"gemma4_vision"})
	var s tower.GemmaVision
	v.setFields(&s, "Width=hidden_size:768 Inner=intermediate_size:3072 Layers=num_hidden_layers:16 "+
		"Heads=num_attention_heads:12 Patch=patch_size:16 Positions=position_embedding_size:10240 "+
		"HeadSize=head_dim:64 KVHeads=num_key_value_heads:12 "+
		"Clipped=use_clipped_linears:false Standardized=standardize:false")
	a.choice("model_type", "gemma4_audio", []string{"gemma4_audio"})
	h := readConformer(a)
	h.Bins, h.Out, h.Clipped = h.Channels[0]/4, a.size("output_proj_dims", 1536, mostWidth),
		a.boolean("use_clipped_linears", true)
	return func() llama.Wrapper {
		before, after := &nn.NamedModule{}, &nn.NamedModule{}
		if sees {
			before.Add("vision_tower", tower.Gemma4(s))
		}
		if hears {
			after.Add("audio_tower", tower.Gemma4Audio(h))
		}
		if sees {
			after.AddChild("embed_vision").Add("embedding_projection", nn.NewLinear(s.Width, c.Width, false))
		}
		if hears {
			after.AddChild("embed_audio").Add("embedding_projection", nn.NewLinear(h.Out, c.Width, false))
		}
		return llama.Wrapper{Before: before, After: after}
	}
}

func readConformer(a *reader) tower.Conformer {
	const channels = "subsampling_conv_channels"
	h := tower.Conformer{
		Width: a.size("hidden_size", 1024, mostWidth), Layers: a.size("num_hidden_layers", 12, mostLayers),
		Heads:    a.size("num_attention_heads", 8, mostWidth),
		Channels: a.sizes(channels, []int64{128, 32}, mostChannels),
		Kernel:   a.size("conv_kernel_size", 5, mostKernel),
	}
	a.checkHeads("num_attention_heads", h.Heads, "hidden_size", h.Width)
	if len(h.Channels) != 2 {
		a.fail(channels, "the list has %d sizes of convolutions: need 2", len(h.Channels))
		h.Channels = []int64{128, 32}
	}
	return h
}

// towersGemma4Unified reads the modules that Gemma 4 Unified has in place of towers.
func towersGemma4Unified(r *reader, c *gemma.Config) func() llama.Wrapper {
	sees, hears := r.has("vision_config"), r.has("audio_config")
	v, a := r.sub("vision_config"), r.sub("audio_config")
	side := v.size("patch_size", 16, mostImage) * v.size("pooling_kernel_size", 3, mostMerged)
	width, places, out := v.size("mm_embed_dim", 3840, mostWidth), v.size("mm_posemb_size", 1120, mostPositions),
		v.size("output_proj_dims", 3840, mostWidth)
	sound := a.size("audio_embed_dim", 640, mostWidth)
	c.Blocks = r.sub("text_config").notNull("use_bidirectional_attention")
	return func() llama.Wrapper {
		after := &nn.NamedModule{}
		if sees {
			e := after.AddChild("embed_vision").AddParameter("pos_embedding", places, 2, width)
			e.Add("patch_ln1", nn.NewLayerNorm(3*side*side)).Add("patch_dense", nn.NewLinear(3*side*side, width, true)).
				Add("patch_ln2", nn.NewLayerNorm(width))
			e.Add("pos_norm", nn.NewLayerNorm(width)).AddChild("multimodal_embedder").Add("embedding_projection",
				nn.NewLinear(out, c.Width, false))
		}
		if hears {
			after.AddChild("embed_audio").Add("embedding_projection", nn.NewLinear(sound, c.Width, false))
		}
		return llama.Wrapper{After: after}
	}
}

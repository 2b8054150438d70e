package tower

import "github.com/vprof/vprof/models/nn"

// Qwen2VL returns the modules of Qwen2VisionTransformerPretrainedModel.
func Qwen2VL(s Size) *nn.NamedModule {
	norm := func() nn.Layer { return nn.NewLayerNorm(s.Width) }
	return newQwen2Tower(s, norm, func(m *nn.NamedModule) {
		m.Add("fc1", nn.NewLinear(s.Width, s.Inner, true)).Add("fc2", nn.NewLinear(s.Inner, s.Width, true))
	})
}

// Qwen25VL returns the modules of Qwen2_5_VisionTransformerPretrainedModel.
func Qwen25VL(s Size) *nn.NamedModule {
	norm := func() nn.Layer { return newRMSNorm(s.Width) }
	return newQwen2Tower(s, norm, func(m *nn.NamedModule) { addGatedMLP(m, s.Width, s.Inner, s.Width, true) })
}

func newQwen2Tower(s Size, norm func() nn.Layer, mlp func(m *nn.NamedModule)) *nn.NamedModule {
	p := &nn.NamedModule{}
	p.AddChild("patch_embed").Add("proj", newPatchConv(s.Channels, s.Width, false, s.Frames, s.Patch, s.Patch))
	addRotaryBuffer(p.AddChild("rotary_pos_emb"), s.Width/s.Heads/4)
	addLayers(p.AddChild("blocks"), s.Layers, func(l *nn.NamedModule) {
		l.Add("norm1", norm()).Add("norm2", norm())
		addFusedAttention(l, s.Width, true)
		mlp(l.AddChild("mlp"))
	})
	square := s.Width * s.Merge * s.Merge // the patches that become one token
	m := p.AddChild("merger").Add("ln_q", norm())
	m.AddChild("mlp").Add("0", nn.NewLinear(square, square, true)).Add("2", nn.NewLinear(square, s.Out, true))
	return p
}

// addFusedAttention adds an attention module with one projection for query, key and value.
func addFusedAttention(l *nn.NamedModule, width int64, bias bool) {
	l.AddChild("attn").Add("qkv", nn.NewLinear(width, 3*width, bias)).Add("proj", nn.NewLinear(width, width, bias))
}

// Qwen3VL returns the modules of Qwen3VLVisionModel, or of Qwen3.5's tower, which has no deepstack features.
func Qwen3VL(s Size) *nn.NamedModule {
	p := &nn.NamedModule{}
	p.AddChild("patch_embed").Add("proj", newPatchConv(s.Channels, s.Width, true, s.Frames, s.Patch, s.Patch))
	p.Add("pos_embed", nn.NewEmbedding(s.Positions, s.Width))
	addRotaryBuffer(p.AddChild("rotary_pos_emb"), s.Width/s.Heads/4)
	addLayers(p.AddChild("blocks"), s.Layers, func(l *nn.NamedModule) {
		l.Add("norm1", nn.NewLayerNorm(s.Width)).Add("norm2", nn.NewLayerNorm(s.Width))
		addFusedAttention(l, s.Width, true)
		l.AddChild("mlp").Add("linear_fc1", nn.NewLinear(s.Width, s.Inner, true)).Add("linear_fc2",
			nn.NewLinear(s.Inner, s.Width, true))
	})
	square := s.Width * s.Merge * s.Merge
	merge := func(m *nn.NamedModule, norm int64) {
		m.Add("norm", nn.NewLayerNorm(norm)).Add("linear_fc1", nn.NewLinear(square, square, true)).Add("linear_fc2",
			nn.NewLinear(square, s.Out, true))
	}
	merge(p.AddChild("merger"), s.Width)
	if s.Deep > 0 {
		addLayers(p.AddChild("deepstack_merger_list"), s.Deep, func(m *nn.NamedModule) { merge(m, square) })
	}
	return p
}

// GLM4V returns the modules of Glm4vVisionModel. inner is the feed-forward width of its merger.
func GLM4V(s Size, inner int64) *nn.NamedModule {
	p := &nn.NamedModule{}
	p.AddChild("embeddings").Add("position_embedding", nn.NewEmbedding(s.Positions, s.Width))
	p.AddChild("patch_embed").Add("proj", newPatchConv(s.Channels, s.Width, true, s.Frames, s.Patch, s.Patch))
	addRotaryBuffer(p.AddChild("rotary_pos_emb"), s.Width/s.Heads/4)
	addLayers(p.AddChild("blocks"), s.Layers, func(l *nn.NamedModule) {
		l.Add("norm1", newRMSNorm(s.Width)).Add("norm2", newRMSNorm(s.Width))
		l.AddChild("attn").Add("qkv", nn.NewLinear(s.Width, 3*s.Width, s.Bias)).Add("proj",
			nn.NewLinear(s.Width, s.Width, false))
		addGatedMLP(l.AddChild("mlp"), s.Width, s.Inner, s.Width, false)
	})
	m := p.AddChild("merger").Add("proj", nn.NewLinear(s.Out, s.Out, false)).Add("post_projection_norm",
		nn.NewLayerNorm(s.Out))
	addGatedMLP(m, s.Out, inner, s.Out, false)
	return p.Add("post_conv_layernorm", newRMSNorm(s.Width)).
		Add("downsample", newConv(s.Width, s.Out, true, s.Merge, s.Merge)).
		Add("post_layernorm", newRMSNorm(s.Width))
}

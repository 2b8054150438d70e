package tower

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// GemmaVision holds the sizes of Gemma4VisionModel.
type GemmaVision struct {
	Size
	HeadSize, KVHeads int64
	// Clipped: linear layers clamp their inputs and outputs. Standardized: the tower scales its output.
	Clipped, Standardized bool
}

// addClippable adds linear layers that may clamp their inputs and outputs (Gemma4ClippableLinear).
func addClippable(p *nn.NamedModule, clipped bool, in, out int64, names ...string) {
	for _, name := range names {
		l := p.AddChild(name).Add("linear", nn.NewLinear(in, out, false))
		for range 4 {
			if clipped {
				l.AddWeightBuffer()
			}
		}
	}
}

// Gemma4 returns the modules of Gemma4VisionModel.
func Gemma4(s GemmaVision) *nn.NamedModule {
	p := &nn.NamedModule{}
	p.AddChild("patch_embedder").AddParameter("position_embedding_table", 2, s.Positions, s.Width).Add("input_proj",
		nn.NewLinear(3*s.Patch*s.Patch, s.Width, false))
	e := p.AddChild("encoder")
	addRotaryBuffer(e.AddChild("rotary_emb"), s.HeadSize/4)
	addLayers(e.AddChild("layers"), s.Layers, func(l *nn.NamedModule) {
		a := l.AddChild("self_attn")
		addClippable(a, s.Clipped, s.Width, s.Heads*s.HeadSize, "q_proj")
		addClippable(a, s.Clipped, s.Width, s.KVHeads*s.HeadSize, "k_proj", "v_proj")
		addClippable(a, s.Clipped, s.Heads*s.HeadSize, s.Width, "o_proj")
		a.Add("q_norm", newRMSNorm(s.HeadSize)).Add("k_norm", newRMSNorm(s.HeadSize))
		m := l.AddChild("mlp")
		addClippable(m, s.Clipped, s.Width, s.Inner, "gate_proj", "up_proj")
		addClippable(m, s.Clipped, s.Inner, s.Width, "down_proj")
		addRMSNorms(l, s.Width, "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
			"post_feedforward_layernorm")
	})
	if s.Standardized {
		p.AddWeightBuffer(s.Width).AddWeightBuffer(s.Width)
	}
	return p
}

// addRMSNorms adds norms that have only a weight.
func addRMSNorms(p *nn.NamedModule, width int64, names ...string) {
	for _, name := range names {
		p.Add(name, newRMSNorm(width))
	}
}

// Conformer holds the sizes of Gemma 4's audio tower.
type Conformer struct {
	Width, Layers, Heads int64
	// Channels are the channels of the two first convolutions, Bins the number of frequency bins after them, and Kernel
	// the kernel size of the convolution in each layer.
	Channels     []int64
	Bins, Kernel int64
	Out          int64
	Clipped      bool
}

// addSubsampling adds the two first convolutions, which shorten the sequence of audio frames.
func (s Conformer) addSubsampling(p *nn.NamedModule) {
	c := p.AddChild("subsample_conv_projection")
	in := int64(1)
	for i, name := range []string{"layer0", "layer1"} {
		c.AddChild(name).Add("conv", newConv(in, s.Channels[i], false, 3, 3)).Add("norm", newRMSNorm(s.Channels[i]))
		in = s.Channels[i]
	}
	c.Add("input_proj_linear", nn.NewLinear(s.Bins*s.Channels[1], s.Width, false))
}

// Gemma4Audio returns the modules of Gemma4AudioModel.
func Gemma4Audio(s Conformer) *nn.NamedModule {
	p := &nn.NamedModule{}
	s.addSubsampling(p)
	p.AddChild("rel_pos_enc").AddBuffer(trace.F32, 1, 1, s.Width/2)
	addLayers(p.AddChild("layers"), s.Layers, func(l *nn.NamedModule) {
		for _, name := range []string{"feed_forward1", "feed_forward2"} {
			f := l.AddChild(name)
			addClippable(f, s.Clipped, s.Width, 4*s.Width, "ffw_layer_1")
			addClippable(f, s.Clipped, 4*s.Width, s.Width, "ffw_layer_2")
			addRMSNorms(f, s.Width, "pre_layer_norm", "post_layer_norm")
		}
		a := l.AddChild("self_attn").AddParameter("per_dim_scale", s.Width/s.Heads).AddBuffer(trace.F32)
		addClippable(a, s.Clipped, s.Width, s.Width, "q_proj", "k_proj", "v_proj", "post")
		a.Add("relative_k_proj", nn.NewLinear(s.Width, s.Width, false))
		c := l.AddChild("lconv1d")
		addClippable(c, s.Clipped, s.Width, 2*s.Width, "linear_start")
		addClippable(c, s.Clipped, s.Width, s.Width, "linear_end")
		c.Add("depthwise_conv1d",
			nn.NewConv(s.Width, s.Width, nn.ConvOptions{Kernel: []int64{s.Kernel}, Groups: s.Width, NoBias: true}))
		addRMSNorms(c, s.Width, "pre_layer_norm", "conv_norm")
		addRMSNorms(l, s.Width, "norm_pre_attn", "norm_post_attn", "norm_out")
	})
	return p.Add("output_proj", nn.NewLinear(s.Width, s.Out, true))
}

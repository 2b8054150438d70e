// Package tower has the image and audio encoders (towers) of multimodal models and the projectors after them, with
// module names of transformers 5.23. A text-only step holds their weights and never calls them; a [Vision] calls the
// encoder of images.
package tower

import (
	"strconv"

	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Size holds the sizes of a tower. Sizes that a kind of tower does not have are zero.
type Size struct {
	Width, Inner, Layers, Heads int64
	// Channels, Patch and Image describe the input: color channels, and pixels along a side of a patch and of an image.
	// Frames is the number of images that a patch covers, Bins the number of frequency bins of audio.
	Channels, Patch, Image, Frames, Bins int64
	// Positions is the number of position embeddings, Merge the number of patches along a token's side, Out the width
	// out.
	Positions, Merge, Out int64
	// Deep is the number of layers whose outputs are added to the decoder's first layers (deepstack).
	Deep int64
	// Pooled reports whether the tower has a pooling head, Bias whether projections have a bias.
	Pooled, Bias bool
	// Activation is the name of an activation function, see [hf.Activations]. Window is the side in pixels of the
	// square within which most layers attend, FullAttentionLayers are the others; zero for no windows.
	Activation          string
	Window              int64
	FullAttentionLayers []int64
	// DeepLayers are the layers whose outputs are added to the decoder's first layers. Gated reports whether
	// feed-forward layers are gated.
	DeepLayers []int64
	Gated      bool
	// FeatureLayer is the layer whose output the decoder gets, counted from the last, -1. Zero: the tower's output.
	FeatureLayer int64
}

// rmsNorm is a norm with only a weight, like LlamaRMSNorm.
type rmsNorm struct {
	nn.Module
	Weight *nn.Parameter
}

func newRMSNorm(width int64) *rmsNorm { return &rmsNorm{Weight: nn.NewParameter(width)} }

// Forward returns the normalized x, of the same shape.
func (n *rmsNorm) Forward(f *frame, x *tensor) *tensor {
	d := x.DType()
	hf.RMSNormalize(f, &x)
	return n.Weight.Mul(x.To(d))
}

// newPatchConv returns a convolution whose stride is its kernel size, over adjacent patches.
func newPatchConv(in, out int64, bias bool, kernel ...int64) nn.Layer {
	return nn.NewConv(in, out, nn.ConvOptions{Kernel: kernel, Stride: kernel, NoBias: !bias})
}

func newConv(in, out int64, bias bool, kernel ...int64) nn.Layer {
	return nn.NewConv(in, out, nn.ConvOptions{Kernel: kernel, NoBias: !bias})
}

// addGatedMLP adds a gated feed-forward layer.
func addGatedMLP(p *nn.NamedModule, width, inner, out int64, bias bool) {
	p.Add("gate_proj", nn.NewLinear(width, inner, bias)).Add("up_proj", nn.NewLinear(width, inner, bias)).
		Add("down_proj", nn.NewLinear(inner, out, bias))
}

// elementPath returns the path of an element of a module list: "layers.3".
func elementPath(list string, i int64) string { return list + "." + strconv.FormatInt(i, 10) }

// addLayers adds n layers to a module list and calls add for each.
func addLayers(p *nn.NamedModule, n int64, add func(l *nn.NamedModule)) {
	for i := range n {
		add(p.AddChild(strconv.FormatInt(i, 10)))
	}
}

// addProjections adds linear layers of equal input and output width.
func addProjections(p *nn.NamedModule, width int64, bias bool, names ...string) {
	for _, name := range names {
		p.Add(name, nn.NewLinear(width, width, bias))
	}
}

// addRotaryBuffer adds the inv_freq buffer of rotary embeddings for heads of a size.
func addRotaryBuffer(p *nn.NamedModule, size int64) {
	p.AddBuffer(trace.F32, size).AddBuffer(trace.F32, size)
}

// addEncoder adds the encoder layers that CLIP and SigLIP share.
func addEncoder(p *nn.NamedModule, s Size) {
	addLayers(p.AddChild("encoder").AddChild("layers"), s.Layers, func(l *nn.NamedModule) {
		l.Add("layer_norm1", nn.NewLayerNorm(s.Width))
		addProjections(l.AddChild("self_attn"), s.Width, true, "k_proj", "v_proj", "q_proj", "out_proj")
		l.Add("layer_norm2", nn.NewLayerNorm(s.Width))
		l.AddChild("mlp").Add("fc1", nn.NewLinear(s.Width, s.Inner, true)).Add("fc2",
			nn.NewLinear(s.Inner, s.Width, true))
	})
}

// Siglip returns the modules of SiglipVisionModel. s.Positions is the number of patches of an image.
func Siglip(s Size) *nn.NamedModule {
	p := &nn.NamedModule{}
	p.AddChild("embeddings").Add("patch_embedding", newPatchConv(s.Channels, s.Width, true, s.Patch, s.Patch)).
		Add("position_embedding", nn.NewEmbedding(s.Positions, s.Width)).AddBuffer(trace.I64, s.Positions)
	addSiglipEncoder(p, s)
	return p
}

// PaddleOCR returns the modules of PaddleOCRVisionTransformer: SigLIP's, and rotary embeddings.
func PaddleOCR(s Size) *nn.NamedModule {
	p := Siglip(s)
	addRotaryBuffer(p, s.Width/s.Heads/4)
	return p
}

// SmolVLM returns the modules of SmolVLMVisionTransformer, which computes position ids instead of storing them.
func SmolVLM(s Size) *nn.NamedModule {
	p := &nn.NamedModule{}
	p.AddChild("embeddings").Add("patch_embedding", newConv(s.Channels, s.Width, true, s.Patch, s.Patch)).
		Add("position_embedding", nn.NewEmbedding(s.Positions, s.Width))
	addSiglipEncoder(p, s)
	return p
}

func addSiglipEncoder(p *nn.NamedModule, s Size) {
	addEncoder(p, s)
	p.Add("post_layernorm", nn.NewLayerNorm(s.Width))
	if !s.Pooled {
		return
	}
	head := p.AddChild("head").AddParameter("probe", 1, 1, s.Width)
	head.AddChild("attention").AddParameter("in_proj_weight", 3*s.Width, s.Width).AddParameter("in_proj_bias",
		3*s.Width).Add("out_proj", nn.NewLinear(s.Width, s.Width, true))
	head.Add("layernorm", nn.NewLayerNorm(s.Width))
	head.AddChild("mlp").Add("fc1", nn.NewLinear(s.Width, s.Inner, true)).Add("fc2",
		nn.NewLinear(s.Inner, s.Width, true))
}

// CLIP returns the modules of CLIPVisionModel, which has a class token for each image.
func CLIP(s Size) *nn.NamedModule {
	p := &nn.NamedModule{}
	p.AddChild("embeddings").AddParameter("class_embedding", s.Width).Add("patch_embedding",
		newPatchConv(s.Channels, s.Width, false, s.Patch, s.Patch)).
		Add("position_embedding", nn.NewEmbedding(s.Positions+1, s.Width)).AddBuffer(trace.I64, s.Positions+1)
	p.Add("pre_layrnorm", nn.NewLayerNorm(s.Width))
	addEncoder(p, s)
	return p.Add("post_layernorm", nn.NewLayerNorm(s.Width))
}

// Pixtral returns the modules of PixtralVisionModel.
func Pixtral(s Size) *nn.NamedModule {
	p := &nn.NamedModule{}
	p.Add("patch_conv", newConv(s.Channels, s.Width, false, s.Patch, s.Patch)).Add("ln_pre", newRMSNorm(s.Width))
	addLayers(p.AddChild("transformer").AddChild("layers"), s.Layers, func(l *nn.NamedModule) {
		l.Add("attention_norm", newRMSNorm(s.Width))
		addGatedMLP(l.AddChild("feed_forward"), s.Width, s.Inner, s.Width, false)
		addProjections(l.AddChild("attention"), s.Width, false, "k_proj", "v_proj", "q_proj", "o_proj")
		l.Add("ffn_norm", newRMSNorm(s.Width))
	})
	addRotaryBuffer(p.AddChild("patch_positional_embedding"), s.Width/s.Heads/2)
	return p
}

// Llama4 returns the modules of Llama4VisionModel, with a class token per image. s.Inner is its adapter's width, too.
func Llama4(s Size) *nn.NamedModule {
	places := s.Positions + 1
	p := (&nn.NamedModule{}).AddParameter("class_embedding", s.Width).AddParameter("positional_embedding_vlm", places,
		s.Width)
	p.AddChild("patch_embedding").Add("linear", nn.NewLinear(s.Channels*s.Patch*s.Patch, s.Width, false))
	p.AddChild("rotary_embedding").AddBuffer(trace.C64, places, 1, s.Width/s.Heads/2)
	p.Add("layernorm_pre", nn.NewLayerNorm(s.Width)).Add("layernorm_post", nn.NewLayerNorm(s.Width))
	addLayers(p.AddChild("model").AddChild("layers"), s.Layers, func(l *nn.NamedModule) {
		addProjections(l.AddChild("self_attn"), s.Width, true, "q_proj", "k_proj", "v_proj", "o_proj")
		l.AddChild("mlp").Add("fc1", nn.NewLinear(s.Width, s.Inner, true)).Add("fc2",
			nn.NewLinear(s.Inner, s.Width, true))
		l.Add("input_layernorm", nn.NewLayerNorm(s.Width)).Add("post_attention_layernorm", nn.NewLayerNorm(s.Width))
	})
	p.AddChild("vision_adapter").AddChild("mlp").Add("fc1", nn.NewLinear(s.Inner, s.Out, false)).Add("fc2",
		nn.NewLinear(s.Out, s.Out, false))
	return p
}

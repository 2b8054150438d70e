package tower

import "github.com/vprof/vprof/models/nn"

// Tiled is how MllamaVisionModel cuts images into tiles: at most Tiles of them, in one of as
// many arrangements as Shapes, all of which Global layers see at once.
type Tiled struct{ Tiles, Shapes, Global int64 }

// Mllama is MllamaVisionModel; s.Positions are the patches of a tile.
func Mllama(s Size, t Tiled) *nn.Parts {
	p := (&nn.Parts{}).Own("class_embedding", s.Width).Add("patch_embedding",
		patches(s.Channels, s.Width, false, s.Patch, s.Patch))
	places := s.Positions + 1
	p.In("gated_positional_embedding").Own("gate", 1).Own("embedding", places, s.Width).Add("tile_embedding",
		nn.NewEmbedding(t.Shapes+1, t.Tiles*places*s.Width))
	for _, name := range []string{"pre_tile_positional_embedding", "post_tile_positional_embedding"} {
		p.In(name).Own("gate", 1).Add("embedding", nn.NewEmbedding(t.Shapes+1, t.Tiles*s.Width))
	}
	p.Add("layernorm_pre", nn.NewLayerNorm(s.Width)).Add("layernorm_post", nn.NewLayerNorm(s.Width))
	mllamaLayers(p.In("transformer"), s, s.Layers, false)
	mllamaLayers(p.In("global_transformer"), s, t.Global, true)
	return p
}

func mllamaLayers(p *nn.Parts, s Size, n int64, gated bool) {
	layers(p.In("layers"), n, func(l *nn.Parts) {
		if gated {
			l.Own("gate_attn", 1).Own("gate_ffn", 1)
		}
		attention(l.In("self_attn"), s.Width, false, "q_proj", "k_proj", "v_proj", "o_proj")
		l.In("mlp").Add("fc1", nn.NewLinear(s.Width, s.Inner, true)).Add("fc2", nn.NewLinear(s.Inner, s.Width, true))
		l.Add("input_layernorm", nn.NewLayerNorm(s.Width)).Add("post_attention_layernorm", nn.NewLayerNorm(s.Width))
	})
}

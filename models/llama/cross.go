package llama

import "github.com/vprof/vprof/models/nn"

// crossAttention is MllamaTextCrossAttention, known by what it holds: a step on text alone
// leaves out the layers that look at images.
type crossAttention struct {
	nn.Module
	QProj, KProj, VProj, OProj nn.Layer
	QNorm, KNorm               nn.Layer
}

// crosses reports whether layer i looks at images.
func (c *Config) crosses(i int) bool { return i < len(c.Crossing) && c.Crossing[i] }

// newCrossing is MllamaCrossAttentionDecoderLayer.
func newCrossing(c *Config) *layer {
	query, shared := c.Heads*c.HeadSize, c.KVHeads*c.HeadSize
	return &layer{
		Names: c.Names, c: c,
		CrossAttn: &crossAttention{
			QProj: nn.NewLinear(c.Width, query, false), KProj: nn.NewLinear(c.Width, shared, false), VProj: nn.NewLinear(c.Width, shared, false),
			OProj: nn.NewLinear(query, c.Width, false), QNorm: newNorm(c, c.HeadSize), KNorm: newNorm(c, c.HeadSize),
		},
		CrossAttnAttnGate: nn.NewParameter(1), CrossAttnMlpGate: nn.NewParameter(1),
		Mlp: newMLP(c), InputLayernorm: newNorm(c, c.Width), PostAttentionLayernorm: newNorm(c, c.Width),
	}
}

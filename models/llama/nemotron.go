package llama

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Block is the kind of module in a layer with one norm and one module.
type Block int

const (
	// AttentionBlock is attention.
	AttentionBlock Block = iota
	// MixerBlock is a Mamba 2 mixer.
	MixerBlock
	// ExpertsBlock is a mixture of experts.
	ExpertsBlock
	// FeedBlock is a feed-forward layer.
	FeedBlock
)

func (c *Config) blockKind(i int) (kind Block, ok bool) {
	if i >= len(c.Blocks) {
		return 0, false
	}
	return c.Blocks[i], true
}

// newBlock returns NemotronHBlock.
func newBlock(c *Config, i int, kind Block) *layer {
	l := &layer{TorchNames: c.Names, c: c, InputLayernorm: newNorm(c, c.Width)}
	switch kind {
	case AttentionBlock:
		l.SelfAttn = newSelfAttention(c, i)
	case MixerBlock:
		l.Mamba = newMambaMixer(c)
	case ExpertsBlock:
		l.Mlp = newNemotronMoE(c)
	default:
		l.Mlp = newMLP(c)
	}
	return l
}

// nemotronForward records NemotronHBlock.forward.
func (l *layer) nemotronForward(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.InputLayernorm, x.To(l.InputLayernorm.(*norm).Weight.DType)))
	switch {
	case l.Mamba != nil:
		f.Set(&x, l.Mamba.call(f, x, in.rows))
	case l.SelfAttn != nil:
		f.Set(&x, l.runAttention(f, x, in))
	default:
		f.Set(&x, f.Call(l.Mlp, x))
	}
	return f.Set(&x, residual.Add(x))
}

// nemotronMoE is NemotronHMoE: experts without gates, optionally on tokens projected to a smaller width.
type nemotronMoE struct {
	nn.Module
	Experts       *ExpertWeights
	Gate          *router
	SharedExperts *mlp
	In, Out       nn.Layer
}

// TorchName returns PyTorch's names of the linear layers that project tokens before and after the experts.
func (s *nemotronMoE) TorchName(own string) string {
	switch own {
	case "in":
		return "fc1_latent_proj"
	case "out":
		return "fc2_latent_proj"
	}
	return own
}

func newNemotronMoE(c *Config) *nemotronMoE {
	s := &nemotronMoE{
		Experts: NewExperts(c), Gate: &router{Weight: nn.NewParameter(c.Experts.Count, c.Width), c: c},
		SharedExperts: newMLPOf(c, c.Experts.Shared),
	}
	s.Gate.ScoreBias = nn.NewBuffer(trace.F32, c.Experts.Count)
	if n := c.Experts.LatentWidth; n > 0 {
		s.In, s.Out = nn.NewLinear(c.Width, n, c.MLPBias), nn.NewLinear(n, c.Width, c.MLPBias)
	}
	return s
}

// Forward records the module's forward over [batch, length, width].
func (s *nemotronMoE) Forward(f *frame, x *tensor) *tensor {
	shape, all := x.Shape(), f.Bind(x)
	scores, weights, chosen := s.Gate.call(f, x)
	f.BindAll([]*tensor{scores, weights, chosen})
	f.Set(&x, x.View(-1, x.Size(-1)))
	if s.In != nil {
		f.Set(&x, f.Call(s.In, x))
	}
	f.Set(&x, s.Experts.Call(f, x, chosen, weights))
	if s.Out != nil {
		f.Set(&x, f.Call(s.Out, x))
	}
	f.Set(&x, x.View(shape...))
	return f.Set(&x, x.Add(f.Call(s.SharedExperts, all)))
}

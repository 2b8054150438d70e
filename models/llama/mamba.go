package llama

import (
	"slices"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// Mamba holds the sizes of a Mamba 2 mixer; zero heads mean no mixer.
type Mamba struct {
	Heads, HeadSize, Groups, State int64
	// Kernel is the kernel size of the convolution over tokens. Chunk is the number of tokens scanned at a time.
	Kernel, Chunk int64
	// ConvBias and ProjectionBias report whether the convolution and the projections have biases.
	ConvBias, ProjectionBias bool
}

// mambaMixer is NemotronHMamba2Mixer.
type mambaMixer struct {
	nn.Module
	DtBias, ALog, D *nn.Parameter
	Conv1d          *nn.Conv
	InProj          nn.Layer
	Norm            *gatedNorm
	OutProj         nn.Layer
	c               *Config
}

func newMambaMixer(c *Config) *mambaMixer {
	s := c.Mamba
	inner, channels := s.Heads*s.HeadSize, s.Heads*s.HeadSize+2*s.Groups*s.State
	return &mambaMixer{
		DtBias: nn.NewParameter(s.Heads), ALog: nn.NewParameter(s.Heads), D: nn.NewParameter(s.Heads),
		Conv1d:  newCausalConv(channels, s.Kernel, s.ConvBias),
		InProj:  nn.NewLinear(c.Width, inner+channels+s.Heads, s.ProjectionBias),
		Norm:    &gatedNorm{Weight: nn.NewParameter(inner), groups: s.Groups},
		OutProj: nn.NewLinear(inner, c.Width, s.ProjectionBias), c: c,
	}
}

// call records the module's forward; mask is the padding mask, or nil.
func (m *mambaMixer) call(f *frame, x, mask *tensor) *tensor {
	g := f.ModuleFrame(m, x, mask)
	s, d := m.c.Mamba, x.DType()
	batch, length, inner := x.Size(0), x.Size(1), s.Heads*s.HeadSize
	g.Set(&x, zeroPadding(g, x, mask))
	all := g.Bind(g.Call(m.InProj, x))
	a := g.Bind(m.ALog.To(trace.F32).Exp().Neg())
	parts := g.BindAll(all.SplitSizes([]int64{inner, inner + 2*s.Groups*s.State, s.Heads}, -1))
	gate, mixed, steps := parts[0], parts[1], parts[2]
	g.Set(&mixed, mixed.Transpose(1, 2))
	g.Set(&mixed, causalConv(g, mixed, m.Conv1d))
	g.Set(&mixed, zeroPadding(g, mixed.Transpose(1, 2), mask))
	split := g.BindAll(mixed.SplitSizes([]int64{inner, s.Groups * s.State, s.Groups * s.State}, -1))
	g.Set(&x, split[0])
	y := g.Bind(m.scan(g, x.View(batch, length, -1, s.HeadSize), steps, a,
		split[1].View(batch, length, s.Groups, -1), split[2].View(batch, length, s.Groups, -1)))
	g.Set(&y, y.View(batch, length, -1))
	g.Set(&y, m.Norm.call(g, y, gate))
	return g.Return(g.Bind(g.Call(m.OutProj, y.To(d))))
}

// zeroPadding records apply_mask_to_padding_states of transformers' Mamba 2.
func zeroPadding(f *frame, x, mask *tensor) *tensor {
	g := f.FunctionFrame(x, mask)
	if mask != nil {
		d := x.DType()
		g.Set(&x, x.Mul(mask.Unsqueeze(-1)).To(d))
	}
	return g.Return(x)
}

// newCausalConv returns a depthwise convolution over the current and earlier tokens.
func newCausalConv(channels, kernel int64, bias bool) *nn.Conv {
	return nn.NewConv(channels, channels, nn.ConvOptions{
		Kernel: []int64{kernel}, Padding: []int64{kernel - 1}, Groups: channels, NoBias: !bias,
	})
}

// causalConv records transformers' torch fallback of causal_conv1d_fn over x [batch, channels, length].
func causalConv(f *frame, x *tensor, conv *nn.Conv) *tensor {
	g := f.FunctionFrame(x)
	length, d := x.Size(2), x.DType()
	args := conv.Args()
	y := g.Bind(x.To(conv.Weight.DType).Conv(conv.Weight.Squeeze(1).Unsqueeze(1), conv.Bias.TensorOrNil(), args).
		Slice(2, 0, length))
	g.Set(&y, y.SiLU())
	return g.Return(y.To(d))
}

// scan records PyTorch's form of mamba2_chunk_scan: x is [batch, length, heads, size], steps [batch, length, heads],
// b and c [batch, length, groups, state].
func (m *mambaMixer) scan(f *frame, x, steps, a, b, c *tensor) *tensor {
	g := f.FunctionFrame(x, steps, a, b, c)
	s := m.c.Mamba
	batch, length := x.Size(0), x.Size(1)
	g.Set(&steps, steps.Add(m.DtBias.To(steps.DType())))
	g.Set(&steps, steps.Softplus())
	g.Set(&steps, steps.Clamp())
	g.Set(&x, x.To(trace.F32))
	g.Set(&b, b.To(trace.F32).RepeatInterleave(s.Heads/s.Groups, 2))
	g.Set(&c, c.To(trace.F32).RepeatInterleave(s.Heads/s.Groups, 2))
	pad := (s.Chunk - length%s.Chunk) % s.Chunk
	residual := g.Bind(m.D.Unsqueeze(-1).Mul(padLength(g, x, pad)))
	g.Set(&x, x.Mul(steps.Unsqueeze(-1).To(trace.F32)))
	g.Set(&a, a.To(trace.F32).Mul(steps.To(trace.F32)))
	for _, p := range []**tensor{&x, &a, &b, &c} {
		g.Set(p, m.intoChunks(g, *p, pad))
	}
	g.Set(&a, a.Permute(0, 3, 1, 2))
	summed := g.Bind(a.CumSum(-1))
	decay := g.Bind(segmentSum(g, a).Exp())
	scores := g.Bind(ops.Einsum("bclhn,bcshn->bclsh", c, b))
	weights := g.Bind(scores.Mul(decay.Permute(0, 2, 3, 4, 1)))
	within := g.Bind(ops.Einsum("bclsh,bcshp->bclhp", weights, x))
	states, across := m.passStates(g, x, b, c, summed)
	g.BindAll([]*tensor{states, across})
	y := g.Bind(within.Add(across).Contiguous())
	g.Set(&y, y.Reshape(batch, -1, s.Heads, s.HeadSize))
	g.Set(&y, y.Add(residual))
	if pad > 0 {
		g.Set(&y, y.Slice(1, 0, length))
	}
	return g.Return(y)
}

// passStates returns the states passed between chunks, and the output computed from them.
func (m *mambaMixer) passStates(f *frame, x, b, c, summed *tensor) (states, across *tensor) {
	decay := f.Bind(summed.Slice(-1, summed.Size(-1)-1, summed.Size(-1)).Sub(summed).Exp())
	decayed := f.Bind(b.Mul(decay.Permute(0, -2, -1, 1).Unsqueeze(-1)))
	states = f.Bind(ops.Einsum("bclhn,bclhp->bchpn", decayed, x))
	before := f.Bind(states.Slice(1, 0, 1).ZerosLike())
	f.Set(&states, trace.Cat(1, before, states))
	chunk := f.Bind(segmentSum(f, summed.Select(-1, summed.Size(-1)-1).Pad(1, 0)).Exp().Transpose(1, 3))
	fresh := f.Bind(ops.Einsum("bzch,bzhpn->bchpn", chunk, states))
	f.Set(&states, fresh.Slice(1, 0, fresh.Size(1)-1))
	out := f.Bind(summed.Exp())
	from := f.Bind(ops.Einsum("bclhn,bchpn->bclhp", c, states))
	return states, from.Mul(out.Permute(0, 2, 3, 1).Unsqueeze(-1))
}

// padLength records pad_tensor_by_size of transformers' Mamba 2, which appends tokens to x.
func padLength(f *frame, x *tensor, pad int64) *tensor {
	g := f.FunctionFrame(x)
	pads := []int64{0, 0, 0, pad, 0, 0}
	if len(x.Shape()) == 4 {
		pads = []int64{0, 0, 0, 0, 0, pad, 0, 0}
	}
	return g.Return(x.Pad(pads...))
}

// intoChunks records reshape_into_chunks of transformers' Mamba 2.
func (m *mambaMixer) intoChunks(f *frame, x *tensor, pad int64) *tensor {
	g := f.FunctionFrame(x)
	g.Set(&x, padLength(g, x, pad))
	shape := append([]int64{x.Size(0), -1, m.c.Mamba.Chunk}, x.Shape()[2:]...)
	return g.Return(x.Reshape(shape...))
}

// segmentSum records segment_sum of transformers' Mamba 2: sums of x [..., length] between any two positions.
func segmentSum(f *frame, x *tensor) *tensor {
	g := f.FunctionFrame(x)
	t, n := g.Tape(), x.Size(-1)
	g.Set(&x, x.Unsqueeze(-1).Expand(append(slices.Clone(x.Shape()), n)...))
	mask := g.Bind(t.Filled("ones", trace.Bool, n, n).Tril())
	g.Set(&x, x.MaskedFill(trace.Compare("bitwise_not", mask)))
	sums := g.Bind(x.CumSum(-2))
	g.Set(&mask, t.Filled("ones", trace.Bool, n, n).Tril())
	return g.Return(g.Set(&sums, sums.MaskedFill(trace.Compare("bitwise_not", mask))))
}

// gatedNorm is MambaRMSNormGated of Nemotron H, which normalizes groups of channels.
type gatedNorm struct {
	nn.Module
	Weight *nn.Parameter
	groups int64
}

func (n *gatedNorm) call(f *frame, x, gate *tensor) *tensor {
	g := f.ModuleFrame(n, x, gate)
	d, batch, length, width := x.DType(), x.Size(0), x.Size(1), x.Size(2)
	g.Set(&x, x.To(trace.F32))
	g.Set(&x, x.Mul(gate.To(trace.F32).SiLU()))
	g.Set(&x, x.View(batch, length, n.groups, width/n.groups))
	variance := g.Bind(x.Pow(2).Mean(true, -1))
	g.Set(&x, x.Mul(variance.AddScalar().Rsqrt()))
	return g.Return(n.Weight.Mul(x.View(batch, length, width).To(d)))
}

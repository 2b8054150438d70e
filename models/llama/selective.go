package llama

import (
	"errors"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// ShortConv says of layers that they have a convolution over a few tokens in the place of
// attention.
type ShortConv struct {
	Layers LayerFlags
	Kernel int64
	Bias   bool
}

// shortConv is Lfm2ShortConv.
type shortConv struct {
	nn.Module
	Conv            *nn.Conv
	InProj, OutProj nn.Layer
}

func newShortConv(c *Config) *shortConv {
	s := c.ShortConv
	return &shortConv{
		Conv:   newCausalConv(c.Width, s.Kernel, s.Bias),
		InProj: nn.NewLinear(c.Width, 3*c.Width, s.Bias), OutProj: nn.NewLinear(c.Width, c.Width, s.Bias),
	}
}

// call maps hidden states to the same shape; mask is that of padded rows, or nil.
func (s *shortConv) call(f *frame, x, mask *tensor) *tensor {
	g := f.ModuleFrame(s, x, mask)
	g.Set(&x, unpadded(g, x, mask))
	all := g.Let(g.Call(s.InProj, x).Transpose(-1, -2))
	parts := g.LetAll(all.Chunk(3, -2))
	g.Set(&x, parts[0].Mul(parts[2]))
	g.Set(&x, causalConv(g, x, s.Conv, false))
	y := g.Let(parts[1].Mul(x))
	g.Set(&y, y.Transpose(-1, -2).Contiguous())
	return g.Return(g.Set(&y, g.Call(s.OutProj, y)))
}

// Selective is the size of the first Mamba's mixer, a selective state space; no width inside
// means none.
type Selective struct {
	// Inner is the width inside, State how many states each of its channels has, Rank how many
	// elements time steps are made of, Kernel how many tokens the convolution reaches over.
	Inner, State, Rank, Kernel int64
	// ConvBias and Bias are the biases of convolution and projections.
	ConvBias, Bias bool
	// Whole has mamba_ssm compute all that is after the first projection in one, where it
	// can, as transformers' own Mamba does.
	Whole bool
	// Norms are of time steps and of what goes in and out of states, as Jamba has them.
	Norms bool
	// Layers says of each layer whether it has the mixer in the place of attention.
	Layers LayerFlags
	// Quantized says that linear layers hold quantized weights: time steps are made by the
	// layer then, and not by its weight alone.
	Quantized bool
	// Kernels has those of mamba_ssm and causal_conv1d.
	Kernels bool
}

// selective is JambaMambaMixer, and MambaMixer without norms.
type selective struct {
	nn.Module
	ALog, D                             *nn.Parameter
	Conv1d                              *nn.Conv
	InProj, XProj, DtProj, OutProj      nn.Layer
	DtLayernorm, BLayernorm, CLayernorm nn.Layer
	c                                   *Config
}

func newSelective(c *Config) *selective {
	s := c.Selective
	m := &selective{
		ALog: nn.NewParameter(s.Inner, s.State), D: nn.NewParameter(s.Inner),
		Conv1d: newCausalConv(s.Inner, s.Kernel, s.ConvBias),
		InProj: nn.NewLinear(c.Width, 2*s.Inner, s.Bias), XProj: nn.NewLinear(s.Inner, s.Rank+2*s.State, false),
		DtProj: nn.NewLinear(s.Rank, s.Inner, true), OutProj: nn.NewLinear(s.Inner, c.Width, s.Bias), c: c,
	}
	if s.Norms {
		m.DtLayernorm, m.BLayernorm, m.CLayernorm = newNorm(c, s.Rank), newNorm(c, s.State), newNorm(c, s.State)
	}
	return m
}

// call maps hidden states to the same shape; mask is that of padded rows, or nil.
func (m *selective) call(f *frame, x, mask *tensor) *tensor {
	g := f.ModuleFrame(m, x, mask)
	s, d := m.c.Selective, x.DType()
	g.Set(&x, unpadded(g, x, mask))
	all := g.Let(g.Call(m.InProj, x).Transpose(1, 2))
	a := g.Let(m.ALog.To(trace.F32).Exp().Neg())
	if s.Kernels && s.Whole {
		return g.Return(g.Let(m.inner(g, all, a)))
	}
	parts := g.LetAll(all.Chunk(2, 1))
	mixed, gate := parts[0], parts[1]
	if s.Kernels {
		g.Set(&mixed, fusedConv(g, mixed, m.Conv1d))
	} else {
		g.Set(&mixed, causalConv(g, mixed, m.Conv1d, true))
	}
	g.Set(&mixed, unpadded(g, mixed.Transpose(1, 2), mask))
	split := g.LetAll(g.Call(m.XProj, mixed).SplitSizes([]int64{s.Rank, s.State, s.State}, -1))
	steps, b, c := split[0], split[1], split[2]
	if s.Norms {
		g.Set(&steps, g.Call(m.DtLayernorm, steps))
		g.Set(&b, g.Call(m.BLayernorm, b))
		g.Set(&c, g.Call(m.CLayernorm, c))
	}
	bias := m.steps(g, &steps)
	scan := m.scan
	if s.Kernels {
		scan = fusedScan
	}
	y := g.Let(scan(g, scanned{
		mixed.Transpose(1, 2), steps, a, b.Transpose(1, 2), c.Transpose(1, 2),
		m.D.To(trace.F32), gate, bias,
	}))
	return g.Return(g.Let(g.Call(m.OutProj, y.Transpose(1, 2).To(d))))
}

// steps makes time steps [batch, inner, length] of their elements, and gives their bias.
func (m *selective) steps(f *frame, steps **tensor) *tensor {
	if m.c.Selective.Quantized {
		y := f.Call(m.DtProj, *steps)
		bias := nn.BiasOf(m.DtProj) // which the call may have brought to another type
		f.Set(steps, y.Sub(bias).Transpose(1, 2))
		return f.Let(bias.To(trace.F32))
	}
	f.Set(steps, nn.OutputWeight(nn.Base(m.DtProj)).Matmul((*steps).Transpose(1, 2)))
	return f.Let(nn.BiasOf(m.DtProj).To(trace.F32))
}

// scanned is what a scan goes over: x, steps and gate are [batch, inner, length], a is
// [inner, state], b and c are [batch, state, length], d and bias [inner].
type scanned struct{ x, steps, a, b, c, d, gate, bias *tensor }

// scan is mamba_selective_scan in PyTorch, token after token.
func (m *selective) scan(f *frame, o scanned) *tensor {
	x, steps, b, c := o.x, o.steps, o.b, o.c
	g := f.FuncFrame(x, steps, o.a, b, c, o.d, o.gate, o.bias)
	length, d := x.Size(2), x.DType()
	g.Set(&steps, steps.Add(o.bias.To(steps.DType()).Unsqueeze(-1)))
	g.Set(&steps, steps.Softplus())
	g.Set(&b, b.Transpose(1, 2))
	g.Set(&c, c.Transpose(1, 2))
	decay := g.Let(o.a.Unsqueeze(0).Unsqueeze(2).Mul(steps.Unsqueeze(3)).Exp())
	in := g.Let(steps.Unsqueeze(3).Mul(b.Unsqueeze(1).To(trace.F32)))
	fed := g.Let(in.Mul(x.Unsqueeze(3).To(trace.F32)))
	state := g.Let(g.Tape().Zeros(d, x.Size(0), x.Size(1), o.a.Size(1)))
	outs := make([]*tensor, length)
	var y *tensor
	for i := range length {
		g.Set(&state, decay.Select(2, i).Mul(state).Add(fed.Select(2, i)))
		g.Set(&y, state.To(d).Matmul(c.Select(1, i).Unsqueeze(-1)))
		outs[i] = g.Let(y.Select(2, 0))
	}
	g.Set(&y, trace.Stack(-1, outs...))
	g.Set(&y, y.Add(x.Mul(o.d.Unsqueeze(0).Unsqueeze(-1))))
	return g.Return(g.Set(&y, y.Mul(o.gate.SiLU())))
}

// fusedConv is causal_conv1d_fn of causal_conv1d 1.6, over x [batch, channels, length].
func fusedConv(f *frame, x *tensor, conv *nn.Conv) *tensor {
	g := f.FuncFrame(x)
	y := g.Apply(&trace.Function{
		Name: "CausalConv1dFnBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			y := f.Let(in[0].EmptyLike())
			f.Tape().Kernel("causal_conv1d_fwd", 10*y.Numel(), []*tensor{y}, in)
			ctx.SaveForBackward(in...)
			return []*tensor{y}
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			t, x, weight, bias := f.Tape(), ctx.Saved(0), ctx.Saved(1), (*tensor)(nil)
			if ctx.Inputs() > 2 {
				bias = ctx.Saved(2)
			}
			dy := f.Let(laidOutAs(f, grads[0], x))
			out := []*tensor{f.Let(x.EmptyLike()), f.Let(t.Zeros(trace.F32, weight.Shape()...))}
			if bias != nil {
				out = append(out, f.Let(t.Zeros(trace.F32, bias.Shape()...)))
			}
			t.Kernel("causal_conv1d_bwd", 20*x.Numel(), out, []*tensor{dy, x, weight})
			for i, like := range []*tensor{weight, bias} {
				if like != nil {
					f.Set(&out[i+1], out[i+1].To(like.DType()))
				}
			}
			return out
		},
	}, hf.WithoutNil(x, conv.Weight.Squeeze(1), conv.Bias.T())...)[0]
	return g.Return(y)
}

// laidOutAs is x with the dimension of neighbors that another of its shape has, tokens or
// channels.
func laidOutAs(f *frame, x, other *tensor) *tensor {
	last := other.Strides()[1] == 1 && other.Strides()[2] > 1
	switch {
	case last && x.Strides()[1] != 1:
		return f.Let(x.Transpose(-1, -2).Contiguous()).Transpose(-1, -2)
	case !last && x.Strides()[2] != 1:
		return x.Contiguous()
	}
	return x
}

// scanChunk is how many tokens mamba_ssm's kernel keeps a state for.
const scanChunk = 2048

// errMixedScan is what the kernel says of what comes in several types.
var errMixedScan = errors.New(
	"selective_scan_cuda takes hidden states, time steps and states of one type, which norms in fp32 under autocast " +
		"are not; use --weights bf16, or --set mamba-kernels=0")

// fusedScan is selective_scan_fn of mamba_ssm 2.3.
func fusedScan(f *frame, o scanned) *tensor {
	t := f.Tape()
	if d := o.x.DType(); o.steps.DType() != d || o.b.DType() != d || o.c.DType() != d || o.gate.DType() != d {
		t.Raise(errMixedScan)
	}
	g := f.FuncFrame(o.x, o.steps, o.a, o.b, o.c, o.d, o.gate, o.bias)
	y := g.Apply(&trace.Function{Name: "SelectiveScanFnBackward", Forward: scanForward, Backward: scanBackward},
		o.x, o.steps, o.a, o.b, o.c, o.d, o.gate, o.bias)[0]
	return g.Return(y)
}

// scanForward is SelectiveScanFn.forward.
func scanForward(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
	t := f.Tape()
	x, steps, a, b, c, gate := in[0], in[1], in[2], in[3], in[4], in[6]
	for _, p := range []**tensor{&x, &steps, &b, &c, &gate} {
		if (*p).Strides()[2] != 1 {
			f.Set(p, (*p).Contiguous())
		}
	}
	f.Set(&b, b.Unsqueeze(1))
	f.Set(&c, c.Unsqueeze(1))
	gated := f.Let(gate.EmptyLike())
	y := f.Let(steps.EmptyLike())
	length := x.Size(2)
	states := f.Let(t.Empty(trace.F32, x.Size(0), x.Size(1), ceil.Div(length, scanChunk), 2*a.Size(1)))
	t.Kernel("selective_scan_fwd", 10*x.Numel()*a.Size(1), []*tensor{y, states, gated},
		[]*tensor{x, steps, a, b, c, in[5], gate, in[7]})
	ctx.SaveForBackward(x, steps, a, b, c, in[5], gate, in[7], states, y)
	return []*tensor{gated}
}

// scanBackward is SelectiveScanFn.backward.
func scanBackward(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
	t, dy := f.Tape(), grads[0]
	x, steps, a, b, c, d, gate, bias := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2), ctx.Saved(3), ctx.Saved(4),
		ctx.Saved(5), ctx.Saved(6), ctx.Saved(7)
	if dy.Strides()[2] != 1 {
		f.Set(&dy, dy.Contiguous())
	}
	dGate := f.Let(gate.EmptyLike())
	dx, dSteps := f.Let(x.EmptyLike()), f.Let(steps.EmptyLike())
	dA := f.Let(a.ZerosLike())
	dB, dC := f.Let(t.Zeros(trace.F32, b.Shape()...)), f.Let(t.Zeros(trace.F32, c.Shape()...))
	dD, dBias := f.Let(d.ZerosLike()), f.Let(bias.ZerosLike())
	t.Kernel("selective_scan_bwd", 30*x.Numel()*a.Size(1), []*tensor{dx, dSteps, dA, dB, dC, dD, dGate, dBias},
		[]*tensor{dy, x, steps, a, b, c, gate, ctx.Saved(8), ctx.Saved(9)})
	castB, castC := f.Let(dB.To(b.DType())), f.Let(dC.To(c.DType()))
	f.Del(&dB, &dC)
	return []*tensor{dx, dSteps, dA, castB.Squeeze(1), castC.Squeeze(1), dD, dGate, dBias}
}

// newMixing returns the mixer of layer i, nil if it has none.
func newMixing(c *Config, i int) mixing {
	switch {
	case c.Selective.Layers.has(i):
		return newSelective(c)
	case c.KDA.Layers.has(i):
		return newKimiDelta(c)
	case c.Mamba.mixes(i):
		return newMixer(c)
	}
	return nil
}

// mixing is what mixes tokens by states.
type mixing interface {
	call(f *frame, x, mask *tensor) *tensor
}

package llama

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// recurrent is MambaModel.forward after the embeddings: mixers one after the other, and a norm.
func (m *Model) recurrent(f *frame, embeds, padding *tensor, call func(i int, x, rows *tensor) *tensor) *tensor {
	x := f.Let(embeds)
	for i := range m.Layers {
		f.Set(&x, call(i, x, padding))
	}
	return f.Set(&x, f.Call(m.Norm, x))
}

// block is MambaBlock.forward.
func (l *layer) block(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x.To(l.InputLayernorm.(*norm).Weight.DType)))
	if l.c.ResidualFloat {
		f.Set(&residual, residual.To(trace.F32))
	}
	f.Set(&x, l.Mamba.call(f, x, in.rows))
	return f.Set(&x, residual.Add(x))
}

// The inputs of mamba_inner_fn, which has a place for each.
const (
	innerX = iota
	innerConv
	innerConvBias
	innerXProj
	innerDtProj
	innerOutProj
	innerOutBias
	innerA
	innerD
	innerDtBias
)

// What MambaInnerFn keeps; the bias of the convolution is last, if there is one.
const (
	keptX = iota
	keptConv
	keptMixed
	keptXProj
	keptDtProj
	keptOutProj
	keptA
	keptD
	keptDtBias
	keptB
	keptC
	keptStates
	keptScan
	keptConvBias
)

// inner is mamba_inner_fn of mamba_ssm 2.3: everything after the first projection, of x
// [batch, 2 inner, length]. It takes weights alone, whatever adapters their layers have.
func (m *selective) inner(f *frame, x, a *tensor) *tensor {
	s := m.c.Selective
	in := []*tensor{
		x, m.Conv1d.Weight.Tensor, m.Conv1d.Bias.T(), nn.OutputWeight(nn.Base(m.XProj)),
		nn.OutputWeight(nn.Base(m.DtProj)), nn.OutputWeight(nn.Base(m.OutProj)), nil,
		a, m.D.To(trace.F32), nn.BiasOf(m.DtProj).To(trace.F32),
	}
	if s.Bias {
		in[innerOutBias] = nn.BiasOf(m.OutProj).To(trace.F32)
	}
	return f.Apply(&trace.Function{
		Name: "MambaInnerFnBackward", AMP: true, Forward: s.innerForward,
		Backward: s.innerBackward,
	}, in...)[0]
}

// byToken is rearrange(x, "b d l -> (b l) d").
func byToken(x *tensor) *tensor {
	channels := x.Size(1)
	return x.Permute(0, 2, 1).Reshape(-1, channels)
}

// byChannel is rearrange(x, "b d l -> d (b l)").
func byChannel(x *tensor) *tensor {
	channels := x.Size(1)
	return x.Permute(1, 0, 2).Reshape(channels, -1)
}

// byRow is rearrange(x, "d (b l) -> b d l", l=length).
func byRow(x *tensor, length int64) *tensor {
	channels := x.Size(0)
	return x.View(channels, -1, length).Permute(1, 0, 2)
}

// convolve is causal_conv1d_fwd_function.
func convolve(f *frame, x, weight, bias *tensor) *tensor {
	y := x.EmptyLike()
	f.Tape().Kernel("causal_conv1d_fwd", 10*y.Numel(), []*tensor{y}, hf.WithoutNil(x, weight, bias))
	return y
}

// innerForward is MambaInnerFn.forward.
func (s Selective) innerForward(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
	t, x, a, length := f.Tape(), in[innerX], in[innerA], in[innerX].Size(2)
	xProj, dtProj, outProj, outBias := in[innerXProj], in[innerDtProj], in[innerOutProj], in[innerOutBias]
	if d, on := t.Autocasting(); on {
		f.Set(&xProj, xProj.To(d))
		f.Set(&dtProj, dtProj.To(d))
		f.Set(&outProj, outProj.To(d))
		if outBias != nil {
			f.Set(&outBias, outBias.To(d))
		}
	}
	f.Set(&x, x.Contiguous())
	conv := f.Let(in[innerConv].Squeeze(1))
	halves := f.LetAll(x.Chunk(2, 1))
	y := f.Let(convolve(f, halves[0], conv, in[innerConvBias]))
	mixed := f.Let(byToken(y).Linear(xProj, nil))
	steps := f.Let(byRow(dtProj.Matmul(mixed.Slice(1, 0, s.Rank).T()), length))
	b, c := f.Let(s.states(mixed, s.Rank, length)), f.Let(s.states(mixed, s.Rank+s.State, length))
	gated := f.Let(halves[1].EmptyLike())
	scan := f.Let(steps.EmptyLike())
	states := f.Let(t.Empty(trace.F32, x.Size(0), s.Inner, ceil.Div(length, scanChunk), 2*s.State))
	t.Kernel("selective_scan_fwd", 10*y.Numel()*s.State, []*tensor{scan, states, gated},
		[]*tensor{y, steps, a, b, c, in[innerD], halves[1], in[innerDtBias]})
	f.Del(&y, &steps)
	ctx.SaveForBackward(hf.WithoutNil(x, conv, mixed, xProj, dtProj, outProj, a, in[innerD], in[innerDtBias],
		b, c, states, scan, in[innerConvBias])...)
	return []*tensor{gated.Permute(0, 2, 1).Linear(outProj, outBias)}
}

// states returns what goes in or out of states: some columns of mixed [batch*length, rank and
// states], as [batch, 1, state, length].
func (s Selective) states(mixed *tensor, from, length int64) *tensor {
	return mixed.Slice(1, from, from+s.State).View(-1, length, s.State).Permute(0, 2, 1).Unsqueeze(1).Contiguous()
}

// innerBackward is MambaInnerFn.backward.
func (s Selective) innerBackward(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
	t, dy := f.Tape(), grads[0]
	x, conv, xProj, dtProj, outProj := ctx.Saved(keptX), ctx.Saved(keptConv), ctx.Saved(keptXProj),
		ctx.Saved(keptDtProj), ctx.Saved(keptOutProj)
	var convBias *tensor
	if s.ConvBias {
		convBias = ctx.Saved(keptConvBias)
	}
	b, c, mixed, length := ctx.Saved(keptB), ctx.Saved(keptC), ctx.Saved(keptMixed), x.Size(2)
	halves := f.LetAll(x.Chunk(2, 1))
	f.Set(&dy, dy.Contiguous())
	y := f.Let(convolve(f, halves[0], conv, convBias))
	steps := f.Let(byRow(dtProj.Matmul(mixed.Slice(1, 0, s.Rank).T()), length))
	dx := f.Let(x.EmptyLike())
	dHalves := f.LetAll(dx.Chunk(2, 1))
	f.Set(&dy, dy.Permute(2, 0, 1).Reshape(dy.Size(2), -1))
	dScan := f.Let(byRow(outProj.T().Matmul(dy), length))
	g := f.FuncFrame()
	gated := f.Let(ctx.Saved(keptScan).EmptyLike())
	dConv, dSteps := f.Let(y.EmptyLike()), f.Let(steps.EmptyLike())
	dA := f.Let(ctx.Saved(keptA).ZerosLike())
	fresh := []*tensor{g.Let(t.Zeros(trace.F32, b.Shape()...)), g.Let(t.Zeros(trace.F32, c.Shape()...))}
	dD, dDtBias := f.Let(ctx.Saved(keptD).ZerosLike()), f.Let(ctx.Saved(keptDtBias).ZerosLike())
	t.Kernel("selective_scan_bwd", 30*y.Numel()*s.State,
		[]*tensor{dConv, dSteps, dA, fresh[0], fresh[1], dD, dHalves[1], dDtBias, gated},
		[]*tensor{dScan, y, steps, b, c, halves[1], ctx.Saved(keptScan), ctx.Saved(keptStates)})
	dB, dC := f.Let(fresh[0].To(b.DType())), f.Let(fresh[1].To(c.DType()))
	g.End()
	dOut := f.Let(trace.Einsum("eB,dB->ed", dy, byChannel(gated)))
	var dOutBias *tensor
	if s.Bias {
		dOutBias = f.Let(dy.Sum(false, 0, 1))
	}
	dMixed := f.Let(mixed.EmptyLike())
	for i, d := range []**tensor{&dB, &dC} {
		f.Set(d, byToken((*d).Squeeze(1)).Contiguous())
		from := s.Rank + int64(i)*s.State
		f.Discard(dMixed.Slice(1, from, from+s.State).CopyInPlace(*d))
		f.Del(d)
	}
	f.Set(&dSteps, byChannel(dSteps))
	dDt := f.Let(trace.Einsum("dB,Br->dr", dSteps, mixed.Slice(1, 0, s.Rank)))
	f.Discard(dMixed.Slice(1, 0, s.Rank).CopyInPlace(trace.Einsum("dB,dr->Br", dSteps, dtProj)))
	f.Set(&dConv, byChannel(dConv))
	dXProj := f.Let(trace.Einsum("Br,Bd->rd", dMixed, byToken(y)))
	t.Product("addmm_out", 2*dConv.Numel()*dMixed.Size(1), []*tensor{dConv}, []*tensor{xProj, dMixed})
	f.Set(&dConv, byRow(dConv, length))
	dWeight := f.Let(t.Zeros(trace.F32, conv.Shape()...))
	var dBias *tensor
	if convBias != nil {
		dBias = f.Let(t.Zeros(trace.F32, convBias.Shape()...))
	}
	t.Kernel("causal_conv1d_bwd", 20*dConv.Numel(), hf.WithoutNil(dHalves[0], dWeight, dBias),
		[]*tensor{dConv, halves[0], conv})
	f.Set(&dWeight, dWeight.To(conv.DType()))
	if dBias != nil {
		f.Set(&dBias, dBias.To(convBias.DType()))
	}
	return []*tensor{dx, dWeight.Unsqueeze(1), dBias, dXProj, dDt, dOut, dOutBias, dA, dD, dDtBias}
}

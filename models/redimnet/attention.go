package redimnet

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// attentionHeads is the number of attention heads of every 1-D block.
const attentionHeads = 4

// tanhGELU is GELU's tanh approximation, computed by elementary operators.
type tanhGELU struct{ nn.Module }

func (*tanhGELU) Forward(f *frame, x *tensor) *tensor {
	inner := f.Bind(x.Add(x.Pow(3).MulScalar()).MulScalar())
	return x.MulScalar().Mul(inner.Tanh().AddScalar())
}

type feedForward struct {
	nn.Module
	Up   *nn.Linear
	Act  *tanhGELU
	Down *nn.Linear
}

func newFeedForward(d, hidden int64) *feedForward {
	return &feedForward{Up: nn.NewLinear(d, hidden, true), Act: &tanhGELU{}, Down: nn.NewLinear(hidden, d, true)}
}

func (l *feedForward) Forward(f *frame, x *tensor) *tensor {
	return f.Call(l.Down, f.Call(l.Act, f.Call(l.Up, x)))
}

// selfAttention is self-attention that keeps its probabilities [B*heads, T, T].
type selfAttention struct {
	nn.Module
	K, V, Q, Out *nn.Linear
	headWidth    int64
}

func newSelfAttention(d int64) *selfAttention {
	linear := func() *nn.Linear { return nn.NewLinear(d, d, true) }
	return &selfAttention{K: linear(), V: linear(), Q: linear(), Out: linear(), headWidth: d / attentionHeads}
}

// split maps [B, T, d] to a contiguous [B, heads, T, d/heads].
func (a *selfAttention) split(f *frame, x *tensor, b int64) *tensor {
	g := f.FunctionFrame(x)
	return g.Return(x.View(b, -1, attentionHeads, a.headWidth).Transpose(1, 2).Contiguous())
}

func (a *selfAttention) Forward(f *frame, x *tensor) *tensor {
	b, t, d := x.Size(0), x.Size(1), x.Size(2)
	q := f.Bind(f.Call(a.Q, x).MulScalar())
	k := f.Bind(a.split(f, f.Call(a.K, x), b))
	v := f.Bind(a.split(f, f.Call(a.V, x), b))
	f.Set(&q, a.split(f, q, b).View(b*attentionHeads, -1, a.headWidth))
	f.Set(&k, k.View(b*attentionHeads, -1, a.headWidth))
	f.Set(&v, v.View(b*attentionHeads, -1, a.headWidth))
	p := f.Bind(q.BMM(k.Transpose(1, 2)).Softmax(-1))
	o := f.Bind(p.BMM(v).View(b, attentionHeads, t, a.headWidth).Transpose(1, 2).Reshape(b, t, d))
	return f.Call(a.Out, o)
}

// attentionLayer is a post-norm transformer layer on [B, C, T], transposed to [B, T, C] inside.
type attentionLayer struct {
	nn.Module
	Attn  *selfAttention
	Norm1 *nn.LayerNorm
	Ffn   *feedForward
	Norm2 *nn.LayerNorm
}

func newAttentionLayer(d, hidden int64) *attentionLayer {
	return &attentionLayer{
		Attn: newSelfAttention(d), Norm1: nn.NewLayerNorm(d),
		Ffn: newFeedForward(d, hidden), Norm2: nn.NewLayerNorm(d),
	}
}

func (l *attentionLayer) Forward(f *frame, x *tensor) *tensor {
	f.Set(&x, x.Permute(0, 2, 1))
	y := f.Bind(f.Call(l.Attn, x))
	f.Set(&y, x.Add(y))
	f.Set(&y, f.Call(l.Norm1, y))
	f.Set(&y, y.Add(f.Call(l.Ffn, y)))
	f.Set(&y, f.Call(l.Norm2, y))
	return y.Permute(0, 2, 1)
}

// convPosition is a depthwise convolution over time with a residual.
type convPosition struct {
	nn.Module
	Conv *nn.Conv
	Norm *channelNorm
}

func newConvPosition(c, kernel int64) *convPosition {
	return &convPosition{
		Conv: nn.NewConv(c, c, nn.ConvOptions{Kernel: []int64{kernel}, Padding: []int64{kernel / 2}, Groups: c}),
		Norm: newChannelNorm(c),
	}
}

func (l *convPosition) Forward(f *frame, x *tensor) *tensor {
	return x.Add(f.Call(l.Norm, f.Call(l.Conv, x)))
}

// timeContext is the 1-D block: reduction to fewer channels, context over time, expansion to all, and a residual.
type timeContext struct {
	nn.Module
	Reduce  *nn.Sequential
	Context *nn.Sequential
	Expand  *nn.Conv
}

func newTimeContext(channels, hidden int64, kind contextKind) *timeContext {
	point := nn.ConvOptions{Kernel: []int64{1}}
	b := &timeContext{
		Reduce: nn.NewSequential(nn.NewConv(channels, hidden, point), newChannelNorm(hidden)),
		Expand: nn.NewConv(hidden, channels, point),
	}
	if kind == attentionOnly {
		b.Context = nn.NewSequential(newConvPosition(hidden, 59), newAttentionLayer(hidden, 2*hidden))
		return b
	}
	block := func(k int64) trace.Module { return newNextBlock(hidden, []int64{k}, 1) }
	layers := lists.Map([]int64{7, 19, 31, 59}, block)
	b.Context = nn.NewSequential(append(layers, newAttentionLayer(hidden, hidden))...)
	return b
}

func (b *timeContext) Forward(f *frame, x *tensor) *tensor {
	return x.Add(f.Call(b.Expand, f.Call(b.Context, f.Call(b.Reduce, x))))
}

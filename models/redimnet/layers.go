package redimnet

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// channelNorm is a layer norm over dimension 1, made of elementary operators whose results autograd keeps.
type channelNorm struct {
	nn.Module
	Weight, Bias *nn.Parameter
}

func newChannelNorm(channels int64) *channelNorm {
	return &channelNorm{Weight: nn.NewParameter(channels), Bias: nn.NewParameter(channels)}
}

// Forward returns the normalized x [B, channels, ...].
func (n *channelNorm) Forward(f *frame, x *tensor) *tensor {
	shape := slices.Repeat([]int64{1}, x.NDim()-1)
	shape[0] = -1
	mean := f.Bind(x.Mean(true, 1))
	variance := f.Bind(x.Sub(mean).Pow(2).Mean(true, 1))
	y := f.Bind(x.Sub(mean).Div(variance.AddScalar().Sqrt()))
	return n.Weight.View(shape...).Mul(y).Add(n.Bias.View(shape...))
}

// flatten2dTo1d maps [B, c, f, T] to [B, f*c, T].
type flatten2dTo1d struct{ nn.Module }

func (*flatten2dTo1d) Forward(_ *frame, x *tensor) *tensor {
	s := x.Shape()
	return x.Permute(0, 2, 1, 3).Reshape(s[0], s[1]*s[2], s[3])
}

// fold1dTo2d maps [B, f*c, T] to [B, c, f, T].
type fold1dTo2d struct {
	nn.Module
	f, c int64
}

func (l *fold1dTo2d) Forward(_ *frame, x *tensor) *tensor {
	s := x.Shape()
	return x.Reshape(s[0], l.f, l.c, s[2]).Permute(0, 2, 1, 3)
}

// mixPrevious is the softmax-weighted sum of all earlier 1-D outputs. Each output has a weight for each channel.
type mixPrevious struct {
	nn.Module
	W *nn.Parameter
}

func newMixPrevious(n, channels int64, learn bool) *mixPrevious {
	m := &mixPrevious{W: nn.NewParameter(1, n, channels, 1)}
	m.W.Frozen = !learn
	return m
}

// mix returns the weighted sum of outputs [B, channels, T].
func (m *mixPrevious) mix(f *frame, outs []*tensor) *tensor {
	w := f.Bind(m.W.Softmax(1))
	maps := lists.Map(outs, func(o *tensor) *tensor { return o.Unsqueeze(1) })
	stacked := f.Bind(trace.Cat(1, maps...))
	return w.Mul(stacked).Sum(false, 1)
}

func (m *mixPrevious) call(f *frame, outs []*tensor) *tensor {
	g := f.ModuleFrame(m)
	return g.Return(m.mix(g, outs))
}

// nextBlock is ReDimNet's convnext_like block: grouped convolution, batch norm, GELU, pointwise convolution, residual.
type nextBlock struct {
	nn.Module
	Spatial *nn.Conv
	Norm    *nn.BatchNorm
	Act     *nn.FuncLayer
	Point   *nn.Conv
}

func newNextBlock(c int64, kernel []int64, groupDivisor int64) *nextBlock {
	ones := slices.Repeat([]int64{1}, len(kernel))
	return &nextBlock{
		Spatial: nn.NewConv(c, c, nn.ConvOptions{Kernel: kernel, Same: true, Groups: c / groupDivisor}),
		Norm:    nn.NewBatchNorm(c),
		Act:     nn.NewGELU(),
		Point:   nn.NewConv(c, c, nn.ConvOptions{Kernel: ones}),
	}
}

// Forward returns the block's output, shaped like x. The original concatenates a single tensor, which copies it.
func (b *nextBlock) Forward(f *frame, x *tensor) *tensor {
	y := f.Bind(trace.Cat(1, f.Call(b.Spatial, x)))
	return x.Add(f.Call(b.Point, f.Call(b.Act, f.Call(b.Norm, y))))
}

// freqGate is squeeze and excitation over frequency bins.
type freqGate struct {
	nn.Module
	Down *nn.Linear
	Act  *nn.FuncLayer
	Up   *nn.Linear
}

func newFreqGate(bins, hidden int64) *freqGate {
	return &freqGate{Down: nn.NewLinear(bins, hidden, true), Act: nn.NewReLU(), Up: nn.NewLinear(hidden, bins, true)}
}

// Forward scales [B, c, f, T] by a gate of shape [B, 1, f, 1].
func (g *freqGate) Forward(f *frame, x *tensor) *tensor {
	gate := f.Bind(f.Call(g.Up, f.Call(g.Act, f.Call(g.Down, x.Mean(false, 1, 3)))).Sigmoid())
	return x.Mul(gate.Unsqueeze(1).Unsqueeze(3))
}

// resBlock2d is ReDimNet's basic_resnet block: two pairs of grouped 3x3 and pointwise convolutions. Both ReLUs work in
// place, the first one before its batch norm.
type resBlock2d struct {
	nn.Module
	Conv1, Point1 *nn.Conv
	Bn1           *nn.BatchNorm
	Conv2, Point2 *nn.Conv
	Bn2           *nn.BatchNorm
	Relu          *nn.FuncLayer
	Gate          nn.Layer
}

func newResBlock2d(c, bins, groupDivisor int64, gate bool) *resBlock2d {
	conv := func() *nn.Conv {
		return nn.NewConv(c, c, nn.ConvOptions{
			Kernel: []int64{3, 3}, Padding: []int64{1}, Groups: c / groupDivisor,
			NoBias: true,
		})
	}
	point := func() *nn.Conv { return nn.NewConv(c, c, nn.ConvOptions{Kernel: []int64{1, 1}}) }
	b := &resBlock2d{
		Conv1: conv(), Point1: point(), Bn1: nn.NewBatchNorm(c),
		Conv2: conv(), Point2: point(), Bn2: nn.NewBatchNorm(c),
		Relu: nn.NewReLUInPlace(), Gate: nn.NewIdentity(),
	}
	if gate {
		b.Gate = newFreqGate(bins, min(64, max(c, 32)))
	}
	return b
}

func (b *resBlock2d) Forward(f *frame, x *tensor) *tensor {
	y := f.Bind(f.Call(b.Bn1, f.Call(b.Relu, f.Call(b.Point1, f.Call(b.Conv1, x)))))
	f.Set(&y, f.Call(b.Gate, f.Call(b.Bn2, f.Call(b.Point2, f.Call(b.Conv2, y)))))
	f.Set(&y, y.AddInPlace(x))
	return f.Call(b.Relu, y)
}

package redimnet

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// Facts of the training: 16 kHz audio, by default in chunks of 3 s, the speakers of VoxCeleb2's development set, and
// the widths of the Matryoshka embedding.
const (
	perMilli = 16 // samples of a millisecond
	speakers = 5_994
	stftSize = 512
	window   = 400
)

var widths = []int64{64, 128, 192, 256}

// melFrontEnd computes pre-emphasis, power mel spectrogram, log and mean removal, in fp32 and without gradients.
type melFrontEnd struct {
	nn.Module
	Emphasis, Window, Bank *nn.Buffer
	hop                    int64
}

func newMelFrontEnd(bins, hop int64) *melFrontEnd {
	return &melFrontEnd{
		Emphasis: nn.NewBuffer(trace.F32, 1, 1, 2),
		Window:   nn.NewBuffer(trace.F32, window),
		Bank:     nn.NewBuffer(trace.F32, stftSize/2+1, bins),
		hop:      hop,
	}
}

// Forward maps waveforms [B, 1, samples] to spectrograms [B, bins, T].
func (m *melFrontEnd) Forward(f *frame, x *tensor) (y *tensor) {
	f.Set(&x, x.To(trace.F32))
	f.Tape().NoGrad(func() {
		f.Set(&x, x.PadReflect(1, 0))
		f.Set(&x, x.Conv(m.Emphasis.Tensor, nil, trace.ConvArgs{}).Squeeze(1))
		spec := f.Bind(ops.STFT(x, stftSize, m.hop, m.Window.Tensor))
		power := f.Bind(spec.Abs().Pow(2))
		mel := f.Bind(power.Transpose(-1, -2).Matmul(m.Bank.Tensor).Transpose(-1, -2))
		f.Set(&mel, mel.AddScalar().Log())
		y = mel.Sub(mel.Mean(true, -1))
	})
	return y
}

// attentivePool computes the attention-weighted mean and standard deviation over time.
type attentivePool struct {
	nn.Module
	Score1, Score2 *nn.Conv
	globalContext  bool
}

func newAttentivePool(dim int64, globalContext bool) *attentivePool {
	const bottleneck = 128
	in := dim
	if globalContext {
		in = 3 * dim
	}
	point := nn.ConvOptions{Kernel: []int64{1}}
	return &attentivePool{
		Score1: nn.NewConv(in, bottleneck, point), Score2: nn.NewConv(bottleneck, dim, point),
		globalContext: globalContext,
	}
}

// Forward maps [B, dim, T] to [B, 2*dim].
func (p *attentivePool) Forward(f *frame, x *tensor) *tensor {
	ctx := f.Bind(x)
	if p.globalContext {
		m := f.Bind(x.Mean(true, -1).Expand(x.Shape()...))
		s := f.Bind(x.Var(true, -1).AddScalar().Sqrt().Expand(x.Shape()...))
		f.Set(&ctx, trace.Cat(1, x, m, s))
	}
	a := f.Bind(f.Call(p.Score2, f.Call(p.Score1, ctx).Tanh()).Softmax(2))
	mean := f.Bind(a.Mul(x).Sum(false, 2))
	variance := f.Bind(a.Mul(x.Pow(2)).Sum(false, 2).Sub(mean.Pow(2)))
	return trace.Cat(1, mean, variance.ClampMin().Sqrt())
}

// mrlHead computes one embedding. Its prefixes are the narrower embeddings (Matryoshka representation learning, MRL).
type mrlHead struct {
	nn.Module
	Bn     *nn.BatchNorm
	Linear *nn.Linear
}

func newMRLHead(in int64) *mrlHead {
	return &mrlHead{Bn: nn.NewBatchNorm(in), Linear: nn.NewLinear(in, widths[len(widths)-1], true)}
}

// forward maps [B, in] to the embeddings [B, width] for each width.
func (h *mrlHead) forward(f *frame, x *tensor) []*tensor {
	e := f.Bind(f.Call(h.Linear, f.Call(h.Bn, x)))
	return lists.Map(widths, func(d int64) *tensor { return f.Bind(e.Slice(1, 0, d)) })
}

// model is the speaker network with the MRL head.
type model struct {
	nn.Module
	Mel  *melFrontEnd
	Body *body
	Pool *attentivePool
	Head *mrlHead
}

func newModel(c config) *model {
	b := newBody(c)
	return &model{
		Mel: newMelFrontEnd(c.bins, c.hop), Body: b,
		Pool: newAttentivePool(b.width, c.globalContext), Head: newMRLHead(2 * b.width),
	}
}

// call maps waveforms [B, 1, samples] to one embedding for each width.
func (m *model) call(f *frame, wave *tensor, checkpointing bool) []*tensor {
	g := f.CallFrame(wave)
	var x *tensor
	f.Tape().NoAutocast(func() { x = g.Bind(g.Call(m.Mel, wave)) })
	in := x.Unsqueeze(1)
	bodyFrame := g.CallFrame(in)
	y := m.Body.forward(bodyFrame, in, checkpointing)
	bodyFrame.End(y)
	pooled := g.Call(m.Pool, y)
	headFrame := g.CallFrame(pooled)
	out := m.Head.forward(headFrame, pooled)
	headFrame.End(out...)
	g.End(out...)
	return out
}

// angularMargin is the additive angular margin softmax over all speakers. Its weight is cut to the embedding's width.
type angularMargin struct {
	nn.Module
	Weight *nn.Parameter
}

func (a *angularMargin) call(f *frame, embedding, labels *tensor) *tensor {
	g := f.CallFrame(embedding, labels)
	e := g.Bind(embedding.Normalize(1))
	w := g.Bind(a.Weight.Slice(1, 0, embedding.Size(1)).Normalize(1))
	cos := g.Bind(e.Linear(w, nil).Clamp())
	sin := g.Bind(cos.Pow(2).RSubScalar().Sqrt())
	phi := g.Bind(cos.MulScalar().Sub(sin.MulScalar()))
	g.Set(&phi, trace.Where(cos.GtScalar(), phi, cos.AddScalar()))
	hot := g.Bind(cos.ZerosLike())
	hot.ScatterInPlace(labels.View(-1, 1))
	out := g.Bind(hot.Mul(phi).Add(hot.RSubScalar().Mul(cos)).MulScalar())
	return g.Return(out.CrossEntropy(labels))
}

// matryoshkaLoss is the mean of the margin losses of all embedding widths.
type matryoshkaLoss struct {
	nn.Module
	Base *angularMargin
}

func (m *matryoshkaLoss) call(f *frame, embeddings []*tensor, labels *tensor) *tensor {
	g := f.CallFrame(labels)
	var loss, total *tensor
	for _, e := range embeddings {
		g.Set(&loss, m.Base.call(g, e.Normalize(1), labels))
		weighted := loss.MulScalar()
		if total == nil {
			g.Set(&total, weighted.AddScalar())
		} else {
			g.Set(&total, total.Add(weighted))
		}
	}
	return g.Return(total.DivScalar())
}

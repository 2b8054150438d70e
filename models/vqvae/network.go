package vqvae

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Sizes of the model: patches of 64 x 64 mel bins and frames, latents of 64 channels, 128 codes.
const (
	patch  = 64
	latent = 64
	codes  = 128
)

// separableBlock is a depthwise 3x3 and a pointwise convolution, batch norm and SiLU, with a residual if shapes agree.
type separableBlock struct {
	nn.Module
	Dw, Pw *nn.Conv
	Bn     *nn.BatchNorm
	Act    *nn.FuncLayer
	skip   bool
}

func newSeparableBlock(in, out, stride int64) *separableBlock {
	return &separableBlock{
		Dw: nn.NewConv(in, in, nn.ConvOptions{
			Kernel: []int64{3, 3}, Stride: []int64{stride}, Padding: []int64{1},
			Groups: in, NoBias: true,
		}),
		Pw:   nn.NewConv(in, out, nn.ConvOptions{Kernel: []int64{1, 1}}),
		Bn:   nn.NewBatchNorm(out),
		Act:  nn.NewSiLU(),
		skip: in == out && stride == 1,
	}
}

func (b *separableBlock) Forward(f *frame, x *tensor) *tensor {
	y := f.Bind(f.Call(b.Act, f.Call(b.Bn, f.Call(b.Pw, f.Call(b.Dw, x)))))
	if b.skip {
		return y.Add(x)
	}
	return y
}

// encoder maps patches [N, 1, 64, 64] to latents [N, 64, 8, 8].
type encoder struct {
	nn.Module
	Net *nn.Sequential
}

func newEncoder() *encoder {
	return &encoder{Net: nn.NewSequential(
		nn.NewConv(1, 32, nn.ConvOptions{Kernel: []int64{3, 3}, Padding: []int64{1}, NoBias: true}),
		nn.NewBatchNorm(32), nn.NewSiLU(),
		newSeparableBlock(32, 64, 2), newSeparableBlock(64, 96, 2), newSeparableBlock(96, latent, 2),
		newSeparableBlock(latent, latent, 1), nn.NewConv(latent, latent, nn.ConvOptions{Kernel: []int64{1, 1}}))}
}

func (e *encoder) Forward(f *frame, x *tensor) *tensor { return f.Call(e.Net, x).Tanh().MulScalar() }

// codebook is an nn.Embedding of which only the weight is used.
type codebook struct {
	nn.Module
	Weight *nn.Parameter
}

// quantizer finds the nearest code by the matrix of all distances. Moving averages update the codebook.
type quantizer struct {
	nn.Module
	Count, Total *nn.Buffer
	Table        *codebook
}

func newQuantizer() *quantizer {
	return &quantizer{
		Count: nn.NewBuffer(trace.F32, codes), Total: nn.NewBuffer(trace.F32, codes, latent),
		Table: &codebook{Weight: nn.NewParameter(codes, latent)},
	}
}

// call maps latents [N, c, h, w] to quantized latents, the commitment loss and the perplexity.
func (q *quantizer) call(f *frame, z *tensor) (quantized, loss, perplexity *tensor) {
	g := f.ModuleFrame(q, z)
	b, c, h, w := z.Size(0), z.Size(1), z.Size(2), z.Size(3)
	x := g.Bind(z.Permute(0, 2, 3, 1).Reshape(b, h*w, c))
	flat := g.Bind(x.Reshape(-1, latent))
	weight := q.Table.Weight.Tensor
	dist := g.Bind(flat.Pow(2).Sum(true, 1).Add(weight.Pow(2).Sum(false, 1)).Sub(flat.Matmul(weight.T()).MulScalar()))
	index := g.Bind(dist.ArgMin(false, 1).Unsqueeze(1))
	hot := g.Bind(g.Tape().Zeros(trace.F32, index.Size(0), codes))
	hot.ScatterInPlace(index)
	code := g.Bind(hot.Matmul(weight).View(b, h*w, c))
	if q.Training() {
		q.updateAverages(g, hot, flat)
	}
	straight := g.Bind(x.Add(code.Sub(x).Detach()))
	l := g.Bind(x.MSELoss(code.Detach(), trace.ReduceMean).MulScalar())
	use := g.Bind(hot.Mean(false, 0))
	p := g.Bind(use.Mul(use.AddScalar().Log()).Sum(false).Neg().Exp().ClampOneSided())
	quantized = straight.Reshape(b, h, w, c).Permute(0, 3, 1, 2)
	g.End(quantized, l, p)
	return quantized, l, p
}

// updateAverages updates the moving averages with this batch's codes.
func (q *quantizer) updateAverages(f *frame, hot, flat *tensor) {
	n := f.Bind(hot.Sum(false, 0))
	s := f.Bind(hot.T().Matmul(flat))
	f.Tape().NoGrad(func() {
		q.Count.MulScalarInPlace().AddInPlace(n)
		q.Total.MulScalarInPlace().AddInPlace(s.Detach())
		size := f.Bind(q.Count.Unsqueeze(1).ClampMin().AddScalar())
		trace.Update("copy_", 0, q.Table.Weight.Tensor, q.Total.Div(size))
		q.Table.Weight.Detach().ClampInPlace()
	})
}

// decoder maps quantized latents to patches.
type decoder struct {
	nn.Module
	Up  []*nn.Sequential
	Out *nn.Conv
}

func newDecoder() *decoder {
	d := &decoder{Out: nn.NewConv(32, 1, nn.ConvOptions{Kernel: []int64{3, 3}, Padding: []int64{1}})}
	widths := []int64{latent, 96, 64, 32}
	for i, in := range widths[:3] {
		out := widths[i+1]
		d.Up = append(d.Up, nn.NewSequential(
			nn.NewConvTranspose(in, out, nn.ConvOptions{
				Kernel: []int64{4, 4}, Stride: []int64{2},
				Padding: []int64{1},
			}),
			nn.NewBatchNorm(out), nn.NewSiLU()))
	}
	return d
}

func (d *decoder) Forward(f *frame, x *tensor) *tensor {
	for _, block := range d.Up {
		f.Set(&x, f.Call(block, x))
	}
	return f.Call(d.Out, x)
}

// classifierHeads classify the machine and the transformation of a spectrogram.
type classifierHeads struct {
	nn.Module
	Machine, Transform *nn.Sequential
}

func newHeads() *classifierHeads {
	mlp := func(classes int64) *nn.Sequential {
		return nn.NewSequential(nn.NewLinear(latent, 128, true), nn.NewSiLU(), nn.NewDropout(0.3),
			nn.NewLinear(128, classes, true))
	}
	return &classifierHeads{Machine: mlp(machines), Transform: mlp(transforms)}
}

// call maps latents [B, 64, 8, 8] to the logits of both classifications.
func (l *classifierHeads) call(f *frame, x *tensor) (machine, transform *tensor) {
	g := f.CallFrame(x)
	h := g.Bind(x.AdaptiveAvgPool(1, 1).Flatten(1, -1))
	machine, transform = g.Call(l.Machine, h), g.Call(l.Transform, h)
	return g.ReturnPair(machine, transform)
}

// network is the VQ-VAE with its classifier heads.
type network struct {
	nn.Module
	Encoder   *encoder
	Quantizer *quantizer
	Decoder   *decoder
	Heads     *classifierHeads
}

package specgan

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Sizes of the model: of noise and condition, and of the generated spectrograms.
const (
	noise     = 100
	condition = 2
	mels      = 128
	frames    = 1292
)

func newLeakyReLU() *nn.FuncLayer { return nn.NewFunc((*tensor).LeakyReLU) }

// newLeakyReLUInPlace returns LeakyReLU(0.2, inplace=True).
func newLeakyReLUInPlace() *nn.FuncLayer { return nn.NewFunc((*tensor).LeakyReLUInPlace) }

// channelGate scales channels by a gate computed from their means and maxima.
type channelGate struct {
	nn.Module
	Fc *nn.Sequential
}

func newChannelGate(channels int64) *channelGate {
	const reduction = 8
	return &channelGate{Fc: nn.NewSequential(
		nn.NewLinear(channels, channels/reduction, false), nn.NewReLUInPlace(),
		nn.NewLinear(channels/reduction, channels, false), nn.NewFunc((*tensor).Sigmoid))}
}

func (l *channelGate) Forward(f *frame, x *tensor) *tensor {
	b, c := x.Size(0), x.Size(1)
	mean := f.Call(l.Fc, x.AdaptiveAvgPool(1, 1).View(b, c))
	peak := f.Call(l.Fc, x.AdaptiveMaxPool(1, 1).View(b, c))
	g := f.Bind(mean.Add(peak))
	return x.Mul(g.View(b, c, 1, 1))
}

// newUpsampling returns a block that doubles height and width.
func newUpsampling(in, out int64) *nn.Sequential {
	return nn.NewSequential(
		nn.NewConvTranspose(in, out, nn.ConvOptions{Kernel: []int64{4, 4}, Stride: []int64{2}, Padding: []int64{1}}),
		nn.NewBatchNorm(out), newLeakyReLU())
}

// generator maps noise [B, 100] and condition [B, 2] to spectrograms [B, 1, 128, 1292].
type generator struct {
	nn.Module
	Cond, Fc *nn.Sequential
	Up1, Up2 *nn.Sequential
	Gate     *channelGate
	Up3, Out *nn.Sequential
}

func newGenerator() *generator {
	const start = 256 * 16 * 20
	return &generator{
		Cond: nn.NewSequential(
			nn.NewLinear(condition, 128, true), newLeakyReLU(), nn.NewLinear(128, 256, true), newLeakyReLU()),
		Fc:  nn.NewSequential(nn.NewLinear(noise+256, start, true), nn.NewBatchNorm(start), newLeakyReLU()),
		Up1: newUpsampling(256, 128),
		Up2: newUpsampling(128, 64), Gate: newChannelGate(64), Up3: newUpsampling(64, 32),
		Out: nn.NewSequential(
			nn.NewConvTranspose(32, 1, nn.ConvOptions{Kernel: []int64{1, 8}, Stride: []int64{1, 8}}),
			nn.NewFunc((*tensor).Tanh)),
	}
}

func (g *generator) call(f *frame, z, c *tensor) *tensor {
	in := f.ModuleFrame(g, z, c)
	x := in.Bind(in.Call(g.Fc, trace.Cat(1, z, in.Call(g.Cond, c))).View(-1, 256, 16, 20))
	in.Set(&x, in.Call(g.Out, in.Call(g.Up3, in.Call(g.Gate, in.Call(g.Up2, in.Call(g.Up1, x))))))
	return in.Return(in.Set(&x, ops.Upsample("upsample_bilinear2d", x, mels, frames)))
}

// discriminator maps spectrograms and conditions to one logit each.
type discriminator struct {
	nn.Module
	Cond *nn.Sequential
	Conv *nn.Sequential
	Fc   *nn.Sequential
}

func newDiscriminator() *discriminator {
	var layers []trace.Module
	in := int64(1)
	for i, out := range []int64{32, 64, 128, 256} {
		layers = append(layers, nn.NewSpectralNorm(nn.NewConv(in, out,
			nn.ConvOptions{Kernel: []int64{4, 4}, Stride: []int64{2}, Padding: []int64{1}})))
		if i > 0 {
			layers = append(layers, nn.NewBatchNorm(out))
		}
		layers = append(layers, newLeakyReLUInPlace())
		in = out
	}
	flat := in * (mels / 16) * (frames / 16)
	return &discriminator{
		Cond: nn.NewSequential(nn.NewLinear(condition, 64, true), newLeakyReLU()),
		Conv: nn.NewSequential(layers...),
		Fc: nn.NewSequential(
			nn.NewFunc(func(x *tensor) *tensor { return x.Flatten(1, -1) }), nn.NewLinear(flat+64, 256, true),
			newLeakyReLUInPlace(), nn.NewDropout(0.3), nn.NewLinear(256, 1, true)),
	}
}

func (d *discriminator) call(f *frame, spec, c *tensor) *tensor {
	in := f.ModuleFrame(d, spec, c)
	e := in.Bind(in.Call(d.Cond, c))
	x := in.Bind(in.Call(d.Conv, spec))
	return in.Return(in.Call(d.Fc, trace.Cat(1, x.View(x.Size(0), -1), e)))
}

// gan holds the generator and the discriminator.
type gan struct {
	nn.Module
	Generator     *generator
	Discriminator *discriminator
}

package redimnet

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// stageLayers are the modules of a stage. The first mixes the outputs of all earlier stages, the others process that.
type stageLayers struct {
	nn.Module
	Layers []any `torch:""`
}

// run maps the outputs of earlier stages to this stage's output.
func (s *stageLayers) run(f *frame, outs []*tensor) *tensor {
	x := f.Bind(s.Layers[0].(*mixPrevious).call(f, outs))
	for _, l := range s.Layers[1:] {
		f.Set(&x, f.Call(l.(nn.Layer), x))
	}
	return x
}

func (s *stageLayers) call(f *frame, outs []*tensor) *tensor {
	g := f.ModuleFrame(s)
	return g.Return(s.run(g, outs))
}

// body is the part of ReDimNet between the mel spectrogram and the pooling.
type body struct {
	nn.Module
	Stem   *nn.Sequential
	Stages []*stageLayers
	Mix    *mixPrevious
	Head   nn.Layer
	width  int64 // channels of the result
}

func newBody(c config) *body {
	flat := c.channels * c.bins
	b := &body{
		Stem: nn.NewSequential(
			nn.NewConv(1, c.channels, nn.ConvOptions{Kernel: []int64{3, 3}, Same: true}),
			newChannelNorm(c.channels), &flatten2dTo1d{}),
		Head:  nn.NewIdentity(),
		width: flat,
	}
	channels, bins := c.channels, c.bins
	for i, s := range c.stages {
		b.Stages = append(b.Stages, newStage(c, s, int64(i), &channels, &bins))
	}
	n := int64(len(c.stages))
	b.Mix = newMixPrevious(n+1, flat, n > 1)
	if c.outChannels > 0 {
		b.Head = nn.NewSequential(
			nn.NewConv(flat, c.outChannels, nn.ConvOptions{Kernel: []int64{1}, Same: true}),
			nn.NewBatchNorm(c.outChannels))
		b.width = c.outChannels
	}
	return b
}

// newStage returns stage i. It changes channels and bins from the stage's input sizes to its output sizes.
func newStage(c config, s stage, i int64, channels, bins *int64) *stageLayers {
	flat := c.channels * c.bins
	mixed := flat
	if i == 0 {
		mixed = 1
	}
	layers := []any{
		newMixPrevious(i+1, mixed, i > 0),
		&fold1dTo2d{f: *bins, c: *channels},
		nn.NewConv(*channels, s.stride**channels*s.expansion,
			nn.ConvOptions{Kernel: []int64{s.stride, 1}, Stride: []int64{s.stride, 1}}),
	}
	*channels, *bins = s.stride**channels, *bins/s.stride
	wide := *channels * s.expansion
	for range s.blocks {
		if c.block == convNext {
			layers = append(layers, newNextBlock(wide, []int64{3, 3}, c.groupDivisor))
		} else {
			layers = append(layers, newResBlock2d(wide, *bins, c.groupDivisor, c.block == gatedResNet))
		}
	}
	if s.expansion != 1 {
		layers = append(layers, nn.NewSequential(
			nn.NewConv(wide, *channels, nn.ConvOptions{
				Kernel: []int64{3, 3}, Same: true,
				Groups: *channels / c.groupDivisor,
			}),
			nn.NewBatchNorm(*channels), nn.NewGELU(),
			nn.NewConv(*channels, *channels, nn.ConvOptions{Kernel: []int64{1, 1}})))
	}
	layers = append(layers, &flatten2dTo1d{})
	if s.reduction > 0 {
		layers = append(layers, newTimeContext(flat, flat/s.reduction, c.context))
	}
	return &stageLayers{Layers: layers}
}

// forward maps a spectrogram [B, 1, bins, T] to [B, width, T].
func (b *body) forward(f *frame, x *tensor, checkpointing bool) *tensor {
	outs := []*tensor{f.Bind(f.Call(b.Stem, x))}
	for _, s := range b.Stages {
		var y *tensor
		if checkpointing {
			y = f.Checkpoint(func(g *trace.Frame, prev []*tensor) *tensor { return s.call(g, prev) }, outs...)
		} else {
			y = s.call(f, outs)
		}
		outs = append(outs, f.Bind(y))
	}
	return f.Call(b.Head, b.Mix.call(f, outs))
}

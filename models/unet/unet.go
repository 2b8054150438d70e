// Package unet is the U-Net of five levels with padded convolutions, for segmentation.
package unet

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// levels is the number of resolutions; each is half the previous one.
const levels = 5

// Models returns the U-Net.
func Models() []models.Model {
	return []models.Model{train.CompleteModel(models.Model{
		Name:      "unet",
		Summary:   "U-Net of five levels, 64 to 1024 channels, for segmentation",
		Source:    "Ronneberger et al. 2015, with padded convolutions, batch norm and transposed convolutions",
		Batches:   []int{1, 2, 4, 8, 16, 32},
		BatchUnit: "image",
		Settings: []models.Setting{
			{Name: "image-size", Usage: "pixels of a side, in steps of 16", Default: 256, Min: 16, Max: 8192},
			{Name: "classes", Usage: "classes of a pixel", Default: 2, Min: 1, Max: 1 << 16},
			{Name: "width", Usage: "channels of the first level", Default: 64, Min: 1, Max: 1 << 12},
		},
		Check:    check,
		Supports: models.MemoryOptionSupport{Loop: models.LoopTrainer},
		Notes:    []string{"checkpointing recomputes pairs of convolutions"},
	}, 8, segmentation)}
}

// check returns an error for image sizes that cannot be halved at every level, since skip connections would not match.
func check(c models.Case) error {
	if c.Settings["image-size"]%(1<<(levels-1)) != 0 {
		return c.FieldError("image-size", "it must be a multiple of 16: the image is halved four times")
	}
	return nil
}

// doubleConv returns two 3x3 convolutions with batch norm and ReLU.
func doubleConv(in, out int64) *nn.Sequential {
	conv := func(in int64) *nn.Conv {
		return nn.NewConv(in, out, nn.ConvOptions{Kernel: []int64{3, 3}, Padding: []int64{1}, NoBias: true})
	}
	return nn.NewSequential(
		conv(in), nn.NewBatchNorm(out), nn.NewReLUInPlace(),
		conv(out), nn.NewBatchNorm(out), nn.NewReLUInPlace())
}

// uNet is a U-Net with five resolutions and a skip connection at each.
type uNet struct {
	nn.Module
	Down  []*nn.Sequential
	Up    []*nn.Conv
	Merge []*nn.Sequential
	Out   *nn.Conv
}

func newUNet(width, classes int64) *uNet {
	m := &uNet{Out: nn.NewConv(width, classes, nn.ConvOptions{Kernel: []int64{1, 1}})}
	in := int64(3)
	for i := range levels {
		w := width << i
		m.Down = append(m.Down, doubleConv(in, w))
		in = w
		if i < levels-1 {
			m.Up = append(m.Up, nn.NewConvTranspose(2*w, w, nn.ConvOptions{Kernel: []int64{2, 2}, Stride: []int64{2}}))
			m.Merge = append(m.Merge, doubleConv(2*w, w))
		}
	}
	return m
}

// call maps images [B, 3, H, W] to logits [B, classes, H, W].
func (m *uNet) call(f *frame, x *tensor, checkpointing bool) *tensor {
	g := f.ModuleFrame(m, x)
	x = g.Argument(x)
	var skips []*tensor
	for i, block := range m.Down {
		g.Set(&x, nn.CallCheckpointed(g, block, x, checkpointing))
		if i < levels-1 {
			skips = append(skips, g.Bind(x))
			g.Set(&x, x.MaxPool(trace.PoolArgs{Kernel: []int64{2}}))
		}
	}
	for i := levels - 2; i >= 0; i-- {
		g.Set(&x, nn.CallCheckpointed(g, m.Merge[i], trace.Cat(1, skips[i], g.Call(m.Up[i], x)), checkpointing))
	}
	return g.Return(g.Call(m.Out, x))
}

// segmentation returns the training task: cross entropy of every pixel.
func segmentation(c models.Case) train.Task {
	net, size := newUNet(c.Settings["width"], c.Settings["classes"]), c.Settings["image-size"]
	return &train.SupervisedTask{
		Net: net, Last: net.Out,
		Sample: func(t *trace.Tape, n int64) (x, labels *tensor) {
			return t.New("randn", program.Batch, trace.F32, n, 3, size, size),
				t.New("randint", program.Batch, trace.I64, n, size, size)
		},
		Learn: func(f *frame, x, labels *tensor, loss **tensor) {
			train.BindCrossEntropy(f, net.call(f, x, c.Checkpointing), labels, loss)
		},
	}
}

// Package resnet is the ResNet family for image classification, as timm builds it.
package resnet

import (
	"fmt"

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

func newConv(in, out, kernel, stride int64) *nn.Conv {
	return nn.NewConv(in, out, nn.ConvOptions{
		Kernel: []int64{kernel, kernel}, Stride: []int64{stride}, Padding: []int64{kernel / 2}, NoBias: true,
	})
}

// newShortcut returns the projection of a block's input; nil if the input is added unchanged.
func newShortcut(in, out, stride int64) *nn.Sequential {
	if in == out && stride == 1 {
		return nil
	}
	return nn.NewSequential(newConv(in, out, 1, stride), nn.NewBatchNorm(out))
}

// block is timm's BasicBlock (two 3x3 convolutions) or Bottleneck (a 3x3 convolution between two 1x1 ones).
type block struct {
	nn.Module
	Conv1      *nn.Conv
	Bn1        *nn.BatchNorm
	Act1       *nn.FuncLayer
	Conv2      *nn.Conv
	Bn2        *nn.BatchNorm
	Act2       *nn.FuncLayer
	Conv3      *nn.Conv
	Bn3        *nn.BatchNorm
	Act3       *nn.FuncLayer
	Downsample *nn.Sequential
	out        int64 // channels of the result
}

func newBasicBlock(in, planes, stride int64) *block {
	return &block{
		Conv1: newConv(in, planes, 3, stride), Bn1: nn.NewBatchNorm(planes), Act1: nn.NewReLUInPlace(),
		Conv2: newConv(planes, planes, 3, 1), Bn2: nn.NewBatchNorm(planes), Act2: nn.NewReLUInPlace(),
		Downsample: newShortcut(in, planes, stride), out: planes,
	}
}

// expansion is the ratio of a bottleneck block's output channels to its inner channels.
const expansion = 4

func newBottleneck(in, planes, stride int64) *block {
	out := expansion * planes
	return &block{
		Conv1: newConv(in, planes, 1, 1), Bn1: nn.NewBatchNorm(planes), Act1: nn.NewReLUInPlace(),
		Conv2: newConv(planes, planes, 3, stride), Bn2: nn.NewBatchNorm(planes), Act2: nn.NewReLUInPlace(),
		Conv3: newConv(planes, out, 1, 1), Bn3: nn.NewBatchNorm(out), Act3: nn.NewReLUInPlace(),
		Downsample: newShortcut(in, out, stride), out: out,
	}
}

func (b *block) Forward(f *frame, x *tensor) *tensor {
	skip, last := f.Bind(x), b.Act2
	f.Pass(&x, b.Conv1, b.Bn1, b.Act1, b.Conv2, b.Bn2)
	if b.Conv3 != nil {
		f.Pass(&x, b.Act2, b.Conv3, b.Bn3)
		last = b.Act3
	}
	if b.Downsample != nil {
		f.Set(&skip, f.Call(b.Downsample, skip))
	}
	f.Set(&x, x.AddInPlace(skip))
	return f.Set(&x, f.Call(last, x))
}

// resNet is a ResNet: the stem, four stages of blocks and a classifier.
type resNet struct {
	nn.Module
	Conv1                          *nn.Conv
	Bn1                            *nn.BatchNorm
	Act1                           *nn.FuncLayer
	Layer1, Layer2, Layer3, Layer4 *nn.Sequential
	GlobalPool                     *nn.FuncLayer
	Fc                             *nn.Linear
}

// newResNet returns a network with the given number of blocks in each stage.
func newResNet(blocks [4]int64, classes int64, newBlock func(in, planes, stride int64) *block) *resNet {
	const stem = 64
	m := &resNet{
		Conv1:      newConv(3, stem, 7, 2),
		Bn1:        nn.NewBatchNorm(stem),
		Act1:       nn.NewReLUInPlace(),
		GlobalPool: nn.NewFunc(func(x *tensor) *tensor { return x.AdaptiveAvgPool(1, 1).Flatten(1, -1) }),
	}
	in, planes := int64(stem), int64(stem)
	for i, stage := range []**nn.Sequential{&m.Layer1, &m.Layer2, &m.Layer3, &m.Layer4} {
		stride := int64(2)
		if i == 0 {
			stride = 1
		}
		*stage = nn.NewSequential()
		for range blocks[i] {
			b := newBlock(in, planes, stride)
			(*stage).Layers = append((*stage).Layers, b)
			in, stride = b.out, 1
		}
		planes *= 2
	}
	m.Fc = nn.NewLinear(in, classes, true)
	return m
}

// call maps images [B, 3, H, W] to logits [B, classes].
func (m *resNet) call(f *frame, x *tensor, checkpointing bool) *tensor {
	g := f.ModuleFrame(m, x)
	x = g.Argument(x)
	y := g.Bind(m.features(g, x, checkpointing))
	return g.Return(g.Set(&y, m.head(g, y)))
}

func (m *resNet) features(f *frame, x *tensor, checkpointing bool) *tensor {
	g := f.FunctionFrame(x)
	g.Pass(&x, m.Conv1, m.Bn1, m.Act1)
	pool := trace.PoolArgs{Kernel: []int64{3}, Stride: []int64{2}, Padding: []int64{1}}
	g.Set(&x, x.MaxPool(pool))
	for _, stage := range []*nn.Sequential{m.Layer1, m.Layer2, m.Layer3, m.Layer4} {
		if !checkpointing {
			g.Set(&x, g.Call(stage, x))
			continue
		}
		for _, b := range stage.Layers {
			g.Set(&x, nn.CallCheckpointed(g, b, x, true))
		}
	}
	return g.Return(x)
}

func (m *resNet) head(f *frame, x *tensor) *tensor {
	g := f.FunctionFrame(x)
	g.Set(&x, g.Call(m.GlobalPool, x))
	return g.Return(g.Call(m.Fc, x))
}

// variant is the configuration of a ResNet of a certain depth.
type variant struct {
	depth    int
	blocks   [4]int64
	newBlock func(in, planes, stride int64) *block
}

var variants = []variant{
	{18, [4]int64{2, 2, 2, 2}, newBasicBlock},
	{34, [4]int64{3, 4, 6, 3}, newBasicBlock},
	{50, [4]int64{3, 4, 6, 3}, newBottleneck},
	{101, [4]int64{3, 4, 23, 3}, newBottleneck},
	{152, [4]int64{3, 8, 36, 3}, newBottleneck},
}

// Models returns resnet18 to resnet152 of timm.
func Models() []models.Model {
	var all []models.Model
	for _, v := range variants {
		name := fmt.Sprintf("resnet%d", v.depth)
		all = append(all, train.CompleteModel(models.Model{
			Name:      name,
			Summary:   fmt.Sprintf("ResNet-%d image classifier", v.depth),
			Source:    "timm 1.0.31, resnet.py",
			Batches:   []int{8, 16, 32, 64, 128, 256},
			BatchUnit: "image",
			Settings: []models.Setting{
				{Name: "image-size", Usage: "pixels of a side", Default: 224, Min: 32, Max: 4096},
				{Name: "classes", Usage: "classes", Default: 1000, Min: 1, Max: 1 << 20},
			},
			Class: func(s models.Settings) models.LibraryClass {
				return models.LibraryClass{Spec: "timm:" + name, Size: int(s["image-size"])}
			},
			Supports: models.MemoryOptionSupport{Loop: models.LoopTrainer},
			Notes:    []string{"checkpointing recomputes block by block"},
		}, 32, v.classification))
	}
	return all
}

// classification returns the task of image classification by cross entropy.
func (v variant) classification(c models.Case) train.Task {
	net, size := newResNet(v.blocks, c.Settings["classes"], v.newBlock), c.Settings["image-size"]
	return &train.SupervisedTask{
		Net: net, Last: net.Fc,
		Sample: func(t *trace.Tape, n int64) (x, labels *tensor) {
			return t.New("randn", program.Batch, trace.F32, n, 3, size, size),
				t.New("randint", program.Batch, trace.I64, n)
		},
		Learn: func(f *frame, x, labels *tensor, loss **tensor) {
			train.BindCrossEntropy(f, net.call(f, x, c.Checkpointing), labels, loss)
		},
	}
}

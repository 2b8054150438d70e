package resnet

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// variant is a member of the family.
type variant struct {
	depth    int
	blocks   [4]int64
	newBlock func(in, planes, stride int64) block
}

var variants = []variant{
	{18, [4]int64{2, 2, 2, 2}, newBasicBlock},
	{34, [4]int64{3, 4, 6, 3}, newBasicBlock},
	{50, [4]int64{3, 4, 6, 3}, newBottleneck},
	{101, [4]int64{3, 4, 23, 3}, newBottleneck},
	{152, [4]int64{3, 8, 36, 3}, newBottleneck},
}

// Models are resnet18 to resnet152.
func Models() []models.Model {
	var all []models.Model
	for _, v := range variants {
		name := fmt.Sprintf("resnet%d", v.depth)
		all = append(all, train.Model(models.Model{
			Name:      name,
			Summary:   fmt.Sprintf("ResNet-%d image classifier", v.depth),
			Source:    "timm 1.0.31, resnet.py",
			Batches:   []int{8, 16, 32, 64, 128, 256},
			BatchUnit: "image",
			Settings: []models.Setting{
				{Name: "image-size", Usage: "pixels of a side", Default: 224, Min: 32, Max: 4096},
				{Name: "classes", Usage: "classes", Default: 1000, Min: 1, Max: 1 << 20},
			},
			Notes: []string{"checkpointing recomputes block by block"},
		}, 32, func(c models.Case) train.Task {
			net := newResNet(v.blocks, c.Settings["classes"], v.newBlock)
			return &classification{net: net, size: c.Settings["image-size"], checkpointing: c.Checkpointing}
		}))
	}
	return all
}

// classification is the task of the family: cross entropy over the classes.
type classification struct {
	net           *resNet
	size          int64
	checkpointing bool
	x, labels     *tensor
}

func (t *classification) Model() any { return t.net }
func (t *classification) Head() any  { return t.net.Fc }

// Load implements [train.Task].
func (t *classification) Load(tape *trace.Tape, n int64) {
	t.x = tape.Hold(tape.New("randn", program.Batch, trace.F32, n, 3, t.size, t.size))
	t.labels = tape.Hold(tape.New("randint", program.Batch, trace.I64, n))
}

// Loss implements [train.Task].
func (t *classification) Loss(f *frame, loss **tensor) {
	out := f.Let(t.net.call(f, t.x, t.checkpointing))
	f.Tape().Mark("forward")
	f.Set(loss, out.CrossEntropy(t.labels))
	f.Del(&out)
}

package vit

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// imageSetting is the name of the setting of the size.
const imageSetting = "image-size"

// ImageSetting returns the size of images.
func ImageSetting(usual int64) models.Setting {
	return models.Setting{Name: imageSetting, Usage: "pixels of a side", Default: usual, Min: 1, Max: 1 << 13}
}

// imageClassifier is ViTForImageClassification.
type imageClassifier struct {
	nn.Module
	Vit        *Model
	Classifier nn.Layer
}

// call returns the loss of classifying images.
func (m *imageClassifier) call(f *frame, pixels, labels *tensor, classes hf.Classes, checkpointing bool) *tensor {
	g := f.ModuleFrame(m, pixels, labels)
	pixels = g.Argument(pixels)
	x := g.Let(m.Vit.Call(g, pixels, checkpointing))
	class := g.Let(x.Select(1, 0))
	logits := g.Let(g.Call(m.Classifier, class))
	loss := g.Let(classes.Loss(logits, labels))
	return hf.EndWithLoss(g, loss, logits)
}

// Classification returns the task of telling something of each image.
func Classification(c Config, classes hf.Classes, checkpointing bool) train.Adaptable {
	net := &imageClassifier{Vit: New(c, false), Classifier: nn.NewLinear(c.Width, classes.Count, true)}
	return &train.Supervised{
		Net: net, Last: net.Classifier, RequireGrads: func() { net.Vit.Embeddings.PatchEmbeddings.requireGrads = true },
		Sample: func(t *trace.Tape, n int64) (x, labels *tensor) {
			return t.New("randn", program.Batch, trace.F32, n, c.Channels, c.Image, c.Image), classes.Labels(t, n)
		},
		Learn: func(f *frame, x, labels *tensor, loss **tensor) {
			f.Set(loss, net.call(f, x, labels, classes, checkpointing))
			f.Tape().Mark("forward")
		},
	}
}

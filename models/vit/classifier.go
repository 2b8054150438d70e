package vit

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Models returns vit-b16-224 as the notebook trains it, and image classifiers of
// the sizes of the paper.
func Models() []models.Model {
	return []models.Model{
		notebook(),
		classifier("vit-ti16-224", Config{Patch: 16, Width: 192, Layers: 12, Heads: 3}),
		classifier("vit-s16-224", Config{Patch: 16, Width: 384, Layers: 12, Heads: 6}),
		classifier("vit-b32-224", Config{Patch: 32, Width: 768, Layers: 12, Heads: 12}),
		classifier("vit-l16-224", Config{Patch: 16, Width: 1024, Layers: 24, Heads: 16}),
		classifier("vit-h14-224", Config{Patch: 14, Width: 1280, Layers: 32, Heads: 16}),
	}
}

// imageSetting is the name of the setting of the size.
const imageSetting = "image-size"

// ImageSetting returns the size of images.
func ImageSetting(usual int64) models.Setting {
	return models.Setting{Name: imageSetting, Usage: "pixels of a side", Default: usual, Min: 1, Max: 1 << 13}
}

// wholePatches finds sizes that patches do not fill.
func wholePatches(patch int64) func(models.Case) error {
	return func(c models.Case) error {
		if size := c.Settings[imageSetting]; size%patch != 0 {
			return c.Wrong(imageSetting, "%d is not a multiple of the patch size %d", size, patch)
		}
		return nil
	}
}

// complete fills in what all sizes have in common.
func (c Config) complete(size int64) Config {
	c.Image, c.Channels, c.Inner = size, 3, 4*c.Width
	return c
}

func classifier(name string, config Config) models.Model {
	return train.Model(models.Model{
		Name: name,
		Summary: fmt.Sprintf("Vision Transformer, %d layers of width %d, patches of %d, as image classifier",
			config.Layers, config.Width, config.Patch),
		Source:    "transformers 5.23, ViTForImageClassification",
		Batches:   []int{8, 16, 32, 64, 128, 256},
		BatchUnit: "image",
		Settings: []models.Setting{
			ImageSetting(224),
			hf.ClassesSetting(1000),
		},
		Check: wholePatches(config.Patch),
		Class: func(s models.Settings) models.Class {
			return models.OfTransformers("ViTForImageClassification", s, map[string]any{
				"model_type": "vit", "hidden_size": config.Width, "num_hidden_layers": config.Layers,
				"num_attention_heads": config.Heads, "intermediate_size": 4 * config.Width,
				"patch_size": config.Patch, "image_size": s[imageSetting], "num_labels": s["classes"],
			})
		},
		Adapts: true,
		Levers: models.LeverSet{Loop: models.LoopTrainer},
	}, 32, func(c models.Case) train.Task {
		n := hf.ClassesOf(c)
		classes := hf.Classes{Count: n, Problem: hf.UsualProblem(n)}
		return Classification(config.complete(c.Settings[imageSetting]), classes, c.Checkpointing)
	})
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

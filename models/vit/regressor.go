package vit

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// predictedValues is the number of values that the model predicts for an image: valence and arousal.
const predictedValues = 2

// trainedLayers is the number of last layers that each freeze stage trains besides the head; -1 for all.
var trainedLayers = map[string]int{"full": -1, "unfreeze-3": 3, "unfreeze-2": 2, "unfreeze-1": 1, "frozen": 0}

// Models returns vit-b16-224 as a music-emotion notebook trains it.
func Models() []models.Model { return []models.Model{notebookModel()} }

func notebookModel() models.Model {
	b16 := Config{Patch: 16, Channels: 3, Width: 768, Layers: 12, Heads: 12, Inner: 3072}
	return models.Model{
		Name:    "vit-b16-224",
		Summary: "Vision Transformer B/16 with a two-value regression head, as a music-emotion notebook trains it",
		Source:  "transformers 5.23, ViTModel; notebook of the music-emotion ViT",
		Stages:  []string{"full", "unfreeze-3", "unfreeze-2", "unfreeze-1", "frozen"},
		TrainedByStage: map[string]string{
			"full":       "all parameters: epochs 0 to 7",
			"unfreeze-1": "the last block and the head: epochs 8 to 11",
			"unfreeze-2": "the last two blocks and the head: epochs 12 to 15",
			"unfreeze-3": "the last three blocks and the head: from epoch 16",
			"frozen":     "the head alone, as the notebook's text plans its beginning",
		},
		Default:   models.Case{Model: "vit-b16-224", Stage: "full", Batch: 12, AMP: "fp16", Accumulate: 1},
		Batches:   []int{4, 8, 12, 16, 32, 64, 128},
		BatchUnit: "image",
		Settings:  []models.Setting{ImageSetting(224)},
		Check: func(c models.Case) error {
			if size := c.Settings[imageSetting]; size%b16.Patch != 0 {
				return c.FieldError(imageSetting, "%d is not a multiple of the patch size %d", size, b16.Patch)
			}
			return nil
		},
		Notes: []string{
			"full is the first epochs, before the schedule freezes all but the last layers: it is the peak of a run",
			"gradients are cleared at the start of a step and live until then",
		},
		Build: func(c models.Case) (models.Trainer, error) {
			own := b16
			own.Image = c.Settings[imageSetting]
			return newTrainer(own, c), nil
		},
	}
}

// regressor is ViTModel with the notebook's head on the class token.
type regressor struct {
	nn.Module
	Vit  *Model
	Head *nn.Sequential
}

func newRegressor(c Config) *regressor {
	const hidden = 256
	return &regressor{
		Vit: New(c, true),
		Head: nn.NewSequential(nn.NewLayerNorm(c.Width), nn.NewLinear(c.Width, hidden, true), nn.NewGELU(),
			nn.NewDropout(0.1),
			nn.NewLinear(hidden, predictedValues, true)),
	}
}

// call maps images to values [batch, 2].
func (m *regressor) call(f *frame, pixels *tensor, checkpointing bool) *tensor {
	g := f.ModuleFrame(m, pixels)
	pixels = g.Argument(pixels)
	return g.Return(g.Call(m.Head, m.Vit.Call(g, pixels, checkpointing).Select(1, 0)))
}

// trainer records training steps of the notebook.
type trainer struct {
	train.OwnLoopModel[batch]
	config Config
	model  *regressor
}

// batch is a batch of images and the values to predict.
type batch struct{ x, y *tensor }

func newTrainer(config Config, c models.Case) *trainer {
	t := &trainer{config: config, model: newRegressor(config)}
	if n := trainedLayers[c.Stage]; n >= 0 {
		nn.Freeze(t.model.Vit)
		layers := t.model.Vit.Layers
		for _, p := range nn.NewTree(layers[len(layers)-n:]).Parameters {
			p.Frozen = false
		}
	}
	t.OwnLoopModel = train.OwnLoopModel[batch]{
		Case: c, Groups: t.parameterGroups(), Net: nn.NewTree(t.model), Load: t.load, Step: t.step,
		ComputeLosses: func(f *trace.Frame, b batch) { t.losses(f, new(*tensor), new(*tensor), b) },
	}
	return t
}

// load copies n images and their values to the device.
func (t *trainer) load(tape *trace.Tape, images int) (b batch) {
	n := int64(images)
	b.x = tape.Hold(tape.New("randn", program.Batch, trace.F32, n, t.config.Channels, t.config.Image, t.config.Image))
	tape.WithClass(program.Batch, func() {
		b.y = tape.Hold(tape.New("rand", program.Batch, trace.F32, n, predictedValues).MulScalar().AddScalar())
	})
	return b
}

// losses records the forward pass and the weighted sum of the two squared errors.
func (t *trainer) losses(f *trace.Frame, out, loss **tensor, b batch) {
	f.Set(out, t.model.call(f, b.x, t.Case.Checkpointing))
	f.Tape().Mark("forward")
	part := func(i int64) *tensor {
		return (*out).Select(1, i).MSELoss(b.y.Select(1, i), trace.ReduceMean).MulScalar()
	}
	f.Set(loss, part(0).Add(part(1)))
	f.Set(loss, (*loss).DivScalar())
	f.Tape().Mark("loss")
}

// parameterGroups returns the parameters of the head and, if any are trained, of the layers.
func (t *trainer) parameterGroups() [][]*nn.Parameter {
	groups := [][]*nn.Parameter{nn.NewTree(t.model.Head).Parameters}
	if body := train.Trainable(nn.NewTree(t.model.Vit).Parameters); len(body) > 0 {
		groups = append(groups, body)
	}
	return groups
}

// step records one update of the notebook's loop.
func (t *trainer) step(s *train.Session, opt *optim.Optimizer, b batch) {
	f := s.Tape.Frame()
	t.Net.SetTraining(true)
	opt.ZeroGrad()
	s.Tape.Mark("zero_grad")
	var out, loss *tensor
	for range t.Case.Accumulate {
		s.Autocast(func() { t.losses(f, &out, &loss, b) })
		s.Backward(loss)
		s.Tape.Mark("backward")
	}
	s.Step(opt, t.Net.Parameters)
	s.Tape.Mark("optimizer")
	f.End()
}

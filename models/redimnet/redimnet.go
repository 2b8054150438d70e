// Package redimnet records the training of MRL-ReDimNet, a speaker embedding network: a mel front end, the ReDimNet
// body, attentive pooling, an MRL head and angular-margin losses.
package redimnet

import (
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Models returns redimnet-b0 to redimnet-b6 and redimnet-M as the MRL trainer builds them, and under -orig the
// published bodies with the same head.
func Models() []models.Model {
	var all []models.Model
	for _, original := range []bool{false, true} {
		for _, size := range sizeOrder {
			all = append(all, entry(size, original))
		}
	}
	return all
}

func entry(size string, original bool) models.Model {
	name, summary := "redimnet-"+size, "MRL-ReDimNet "+size+" speaker embedding, as its trainer builds it"
	c := trainedConfig(sizes[size])
	if original {
		name, summary, c = name+"-orig", "published ReDimNet "+size+" body with the MRL head", sizes[size]
	}
	return models.Model{
		Name:    name,
		Summary: summary,
		Source:  "sappho192/redimnet-mrl, IDRnD/ReDimNet, stage tables of wespeaker",
		Stages:  []string{"frozen", "full"},
		TrainedByStage: map[string]string{
			"frozen": "the MRL head alone, the backbone without gradients: stage 1, and all that the published " +
				"configuration runs",
			"full": "all parameters: stage 2",
		},
		Default:   models.Case{Model: name, Stage: "frozen", Batch: 64, Accumulate: 1},
		Batches:   []int{8, 16, 32, 64, 128, 256},
		BatchUnit: "clip",
		Settings: []models.Setting{
			{Name: "chunk-ms", Usage: "milliseconds of a clip", Default: 3000, Min: 500, Max: 60_000},
		},
		Notes: []string{
			"the trainer runs in fp32: it never reads mixed_precision from its config",
			"the weight of the margin loss is outside the optimizer; its gradient is never cleared",
			"batch norm statistics keep moving while the backbone is frozen",
			"checkpointing recomputes whole stages; the original has none",
		},
		Caveat: caveats,
		Build:  func(k models.Case) (models.Trainer, error) { return newTrainer(c, k), nil },
	}
}

func caveats(c models.Case) (all []string) {
	if c.AMP != "" {
		all = append(all, "the system's trainer has no autocast: it reads no mixed_precision and trains in fp32")
	}
	if c.Checkpointing {
		all = append(all,
			"the system has no checkpointing; these figures are for recomputing each stage of the backbone")
	}
	return all
}

// trainer records training steps of one case.
type trainer struct {
	train.OwnLoopModel[batch]
	model     *model
	criterion *matryoshkaLoss
}

// batch is a batch of audio clips and their speakers.
type batch struct{ wave, labels *tensor }

func newTrainer(c config, k models.Case) *trainer {
	margin := &angularMargin{Weight: nn.NewParameter(speakers, widths[len(widths)-1])}
	t := &trainer{model: newModel(c), criterion: &matryoshkaLoss{Base: margin}}
	frozen := k.Stage == "frozen"
	if frozen {
		nn.Freeze(t.model.Mel, t.model.Body, t.model.Pool)
	}
	t.OwnLoopModel = train.OwnLoopModel[batch]{
		Case: k, Net: nn.NewTree(t.model), Criterion: nn.NewTree(t.criterion), Load: t.load, Step: t.step,
		ComputeLosses: func(f *trace.Frame, b batch) { t.losses(f, new([]*tensor), new(*tensor), b) },
	}
	if !frozen {
		for _, p := range t.Net.Parameters {
			p.Frozen = false // also the one constant weight of the first stage
		}
	}
	return t
}

// load copies n clips and their labels to the device.
func (t *trainer) load(tape *trace.Tape, n int) batch {
	wave := tape.Hold(tape.New("randn", program.Batch, trace.F32, int64(n), 1, perMilli*t.Case.Settings["chunk-ms"]))
	return batch{wave, tape.Hold(tape.New("randint_low", program.Batch, trace.I64, int64(n)))}
}

// losses records the forward pass and the loss over all embedding widths.
func (t *trainer) losses(f *trace.Frame, embeddings *[]*tensor, loss **tensor, b batch) {
	f.SetAll(embeddings, t.model.call(f, b.wave, t.Case.Checkpointing))
	f.Tape().Mark("forward")
	f.Set(loss, t.criterion.call(f, slices.Clone(*embeddings), b.labels))
	f.Tape().Mark("loss")
}

// step records one optimizer step. The MRL trainer clips gradients after every backward and does not divide the loss.
func (t *trainer) step(s *train.Session, opt *optim.Optimizer, b batch) {
	f := s.Tape.Frame()
	t.Net.SetTraining(true)
	var embeddings []*tensor
	var loss *tensor
	for micro := range t.Case.Accumulate {
		s.Autocast(func() { t.losses(f, &embeddings, &loss, b) })
		s.Backward(loss)
		s.Tape.Mark("backward")
		if micro+1 < t.Case.Accumulate {
			if s.Scaler == nil {
				train.Clip(s.Tape, t.Net.Parameters)
			}
			continue
		}
		s.Step(opt, t.Net.Parameters)
		s.Tape.Mark("optimizer")
		opt.ZeroGrad()
		s.Tape.Mark("zero_grad")
	}
	train.EndTrainingStep(f, loss)
}

// contextKind is the kind of context over time in a 1-D block.
type contextKind int

const (
	convAndAttention contextKind = iota
	attentionOnly
)

// blockKind is the kind of a 2-D block.
type blockKind int

const (
	convNext blockKind = iota
	basicResNet
	gatedResNet
)

// stage holds the sizes of one stage: frequency stride, number of 2-D blocks, channel expansion, and the 1-D block's
// channel reduction (0: no 1-D block).
type stage struct{ stride, blocks, expansion, reduction int64 }

// config describes a ReDimNet body.
type config struct {
	bins, channels int64
	context        contextKind
	block          blockKind
	groupDivisor   int64
	globalContext  bool
	hop            int64
	outChannels    int64 // 0: no output convolution
	stages         []stage
}

// sizes are the published bodies. Sources: the stage tables of wespeaker's port of ReDimNet (b0, b1, b3 to b6), the
// class defaults of IDRnD/ReDimNet (M); b2's gives the 5,016,305 parameters that its trainer reports.
var sizes = map[string]config{
	"b0": {
		60, 10, convAndAttention, basicResNet, 1, true, 160, 0,
		[]stage{{1, 2, 1, 30}, {2, 3, 2, 30}, {1, 3, 3, 30}, {2, 4, 2, 10}, {1, 3, 1, 10}},
	},
	"b1": {
		72, 12, convAndAttention, convNext, 8, false, 160, 0,
		[]stage{{1, 2, 1, 0}, {2, 3, 1, 0}, {3, 4, 1, 12}, {2, 5, 1, 12}, {2, 3, 1, 8}},
	},
	"b2": {
		72, 16, convAndAttention, convNext, 4, false, 160, 0,
		[]stage{{1, 2, 1, 12}, {2, 2, 1, 12}, {1, 3, 1, 12}, {3, 4, 1, 8}, {1, 4, 1, 8}, {2, 4, 1, 4}},
	},
	"b3": {
		72, 16, convAndAttention, gatedResNet, 1, true, 160, 0,
		[]stage{{1, 6, 4, 32}, {2, 6, 2, 32}, {1, 8, 2, 32}, {2, 10, 2, 16}, {1, 10, 1, 16}, {2, 8, 1, 16}},
	},
	"b4": {
		72, 32, convAndAttention, gatedResNet, 1, true, 160, 0,
		[]stage{{1, 4, 2, 48}, {2, 4, 2, 48}, {1, 6, 2, 48}, {2, 6, 1, 32}, {1, 8, 1, 24}, {2, 4, 1, 16}},
	},
	"b5": {
		72, 32, convAndAttention, gatedResNet, 16, true, 240, 0,
		[]stage{{1, 4, 2, 48}, {2, 4, 2, 48}, {1, 6, 2, 48}, {2, 6, 1, 32}, {1, 8, 1, 24}, {2, 4, 1, 16}},
	},
	"b6": {
		72, 32, convAndAttention, basicResNet, 32, true, 160, 0,
		[]stage{{1, 4, 4, 32}, {2, 6, 2, 32}, {1, 6, 2, 24}, {3, 8, 1, 24}, {1, 8, 1, 16}, {2, 8, 1, 16}},
	},
	"M": {
		72, 16, attentionOnly, convNext, 4, false, 160, 0,
		[]stage{{1, 2, 1, 12}, {2, 2, 1, 12}, {1, 3, 1, 12}, {2, 4, 1, 8}, {1, 4, 1, 8}, {2, 4, 1, 4}},
	},
}

// sizeOrder is the order in which sizes are listed.
var sizeOrder = []string{"b0", "b1", "b2", "b3", "b4", "b5", "b6", "M"}

// trainedConfig returns the configuration that the MRL trainer builds from a size's checkpoint: channels, bins, block
// kinds and stages are the checkpoint's, the rest the trainer's defaults.
func trainedConfig(c config) config {
	c.groupDivisor, c.globalContext, c.hop, c.outChannels = 4, false, 160, 512
	return c
}

// Package naics records the training of the NAICS text embedder: four MiniLM encoders with LoRA, a mixture of experts
// and a hyperbolic projection. A sample is an anchor with a positive and several negatives.
package naics

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Models returns the model as its project's configuration file trains it, and as stage 01 of the curriculum does.
func Models() []models.Model {
	entry := func(name, summary string, negatives, positives int64) models.Model {
		return models.Model{
			Name:           name,
			Summary:        summary,
			Source:         "lowmason/naics-embedder at 95fe372",
			Stages:         []string{"full"},
			TrainedByStage: map[string]string{"full": "adapters, experts, gate, projections; the encoders are frozen"},
			Default:        models.Case{Model: name, Stage: "full", Batch: 4, Accumulate: 4, AMP: "fp16"},
			Batches:        []int{1, 2, 4, 8, 16, 32, 64, 128},
			BatchUnit:      "anchor",
			Settings: []models.Setting{
				{
					Name: "n-negatives", Usage: "negatives of an anchor", Default: negatives, Min: 1, Max: 1024,
					Lower: models.Fraction{Num: 2, Den: 3},
				},
				{
					Name: "n-positives", Usage: "positives of an anchor, of which a batch holds one",
					Default: positives, Min: 1, Max: 1024,
					Inert: "a batch holds one positive of each anchor; the others make further triplets of the epoch",
				},
				{
					Name: "max-length", Usage: "tokens of a text", Length: true, Default: maxPositions, Min: 1,
					Max: maxPositions,
				},
				models.SwitchSetting("adapter-dropout", 0,
					"1 if adapters drop out beside frozen encoders in evaluation mode, 0 if they do not"),
			},
			Notes: []string{
				"an anchor brings one positive and n-negatives negatives, each with four texts of max-length tokens",
				"n-positives does not change memory: it multiplies the triplets of an epoch, and each batch holds " +
					"one positive an anchor",
				"the system sets the checkpointing flag of its encoders, but they stay in evaluation mode, where it " +
					"does nothing: this is the default here; with --checkpointing they are in training mode and it " +
					"works",
				"gradients of the step before live through the forward pass: they are dropped between forward and " +
					"backward",
				"rows are spread evenly over the experts",
			},
			Caveat: func(c models.Case) []string {
				if c.Checkpointing {
					return []string{"as shipped, the system's checkpointing does nothing; these figures are for " +
						"encoders in training mode, where it works"}
				}
				return []string{"the system's checkpointing does nothing, since its encoders stay in evaluation " +
					"mode; --checkpointing shows what it would save in training mode"}
			},
			Curriculum: &curriculum,
			Build:      func(c models.Case) (models.Trainer, error) { return newTrainer(c), nil },
		}
	}
	return []models.Model{
		entry("naics-embedder", "four MiniLM encoders with LoRA, mixture of experts, hyperbolic embedding; 8 negatives",
			8, 16),
		entry("naics-embedder-stage01", "the NAICS embedder in stage 01 of its curriculum; 24 negatives", 24, 64),
	}
}

// trainer records training steps of one case.
type trainer struct {
	train.OwnLoopModel[*batch]
	negatives, length int64
	model             *network
}

func newTrainer(c models.Case) *trainer {
	m := newNetwork(c.Checkpointing, c.IsSwitchOn("adapter-dropout"))
	t := &trainer{negatives: c.Settings["n-negatives"], length: c.Settings["max-length"], model: m}
	t.OwnLoopModel = train.OwnLoopModel[*batch]{
		Case: c, Net: nn.NewTree(m), Load: t.load, Step: t.step,
		ComputeLosses: func(f *frame, b *batch) { t.losses(f, new(loopVariables), b) },
	}
	return t
}

type batch struct{ anchor, positive, negatives tokens }

// load copies n anchors with their positives and negatives to the device.
func (t *trainer) load(tape *trace.Tape, anchors int) *batch {
	n := int64(anchors)
	return &batch{t.tokens(tape, n), t.tokens(tape, n), t.tokens(tape, n*t.negatives)}
}

func (t *trainer) tokens(tape *trace.Tape, n int64) (x tokens) {
	for c := range x {
		x[c].ids = tape.Hold(tape.New("randint", program.Batch, trace.I64, n, t.length))
		x[c].mask = tape.Hold(tape.New("ones", program.Batch, trace.I64, n, t.length))
	}
	return x
}

// loopVariables are the local variables of the training loop.
type loopVariables struct {
	a, p, n                          outputs
	near, far, logits, contrast      *tensor
	probs, idx, share, balance, loss *tensor
}

// del records the loop's del statement.
func (n *loopVariables) del(f *frame) {
	n.a.del(f)
	n.p.del(f)
	n.n.del(f)
	for _, x := range []**tensor{&n.near, &n.far, &n.logits, &n.probs, &n.idx, &n.share} {
		f.Del(x)
	}
}

// step records one update: micro-batches, then unscaling of gradients, clipping and the optimizer's step.
func (t *trainer) step(s *train.Session, opt *optim.Optimizer, b *batch) {
	f := s.Tape.Frame()
	var n loopVariables
	for micro := range t.Case.Accumulate {
		s.Autocast(func() { t.losses(f, &n, b) })
		if micro == 0 {
			opt.ZeroGrad() // after the forward pass, before the backward pass
		}
		s.Backward(n.loss)
		n.del(f)
		s.Tape.Mark("backward")
	}
	s.Step(opt, t.Net.Parameters)
	s.Tape.Mark("optimizer")
	f.End()
}

// losses records the forward pass and all losses of a micro-batch.
func (t *trainer) losses(f *frame, n *loopVariables, b *batch) {
	size := b.anchor[0].ids.Size(0)
	n.a = t.model.call(f, &b.anchor)
	n.a.bind(f)
	n.p = t.model.call(f, &b.positive)
	n.p.bind(f)
	n.n = t.model.call(f, &b.negatives)
	n.n.bind(f)
	f.Tape().Mark("forward")
	f.Set(&n.near, lorentzDistance(f, n.a.embedding, n.p.embedding).Neg().DivScalar())
	f.Set(&n.far, lorentzDistance(f, n.a.embedding, n.n.embedding.View(size, t.negatives, -1)).Neg().DivScalar())
	f.Set(&n.logits, trace.Cat(1, n.near.Unsqueeze(1), n.far))
	f.Set(&n.contrast, n.logits.CrossEntropy(f.Tape().Zeros(trace.I64, size)))
	f.Set(&n.probs, trace.Cat(0, n.a.probs, n.p.probs, n.n.probs))
	f.Set(&n.idx, trace.Cat(0, n.a.idx, n.p.idx, n.n.idx))
	f.Set(&n.share, f.Tape().Zeros(trace.F32, experts))
	for i := range int64(experts) {
		f.Discard(n.share.Select(0, i).CopyInPlace(n.idx.EqScalar().Any(false, 1).Sum(false)))
	}
	f.Set(&n.balance, n.share.DivScalar().Mul(n.probs.Mean(false, 0)).Sum(false).MulScalar())
	f.Set(&n.loss, n.contrast.Add(n.balance).DivScalar())
	f.Tape().Mark("loss")
}

// curriculum holds the two profiles of scripts/optimize_gpu_config.py in the project, for stages of its curriculum.
var curriculum = models.Curriculum{
	EffectiveBatch: 256,
	Parts: []models.CurriculumPart{
		{Name: "01_stage (Early)", Model: "naics-embedder-stage01", Settings: models.Settings{"n-negatives": 24}},
		{Name: "02-05_stage (Later)", Model: "naics-embedder", Settings: models.Settings{"n-negatives": 8}},
	},
}

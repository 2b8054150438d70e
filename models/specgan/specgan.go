// Package specgan records the training of a conditional spectrogram GAN: a generator and a discriminator with spectral
// norm, trained in turn.
package specgan

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// discriminatorSteps is the number of discriminator steps for each generator step while the discriminator's accuracy is
// below 80 %.
const discriminatorSteps = 2

// Models returns the spectrogram GAN.
func Models() []models.Model {
	const name = "spectrogram-gan"
	return []models.Model{{
		Name:           name,
		Summary:        "conditional GAN for 128 x 1292 mel spectrograms; generator and discriminator step in turn",
		Source:         "winzerprince/sentio, notebook vit_with_gans_emotion_prediction at 5839958",
		Stages:         []string{"full"},
		TrainedByStage: map[string]string{"full": "generator and discriminator, in alternating steps"},
		Default:        models.Case{Model: name, Stage: "full", Batch: 24, Accumulate: 2},
		Batches:        []int{4, 8, 12, 16, 24, 32, 48, 64},
		BatchUnit:      "spectrogram",
		Settings: []models.Setting{
			{
				Name: "n-mels", Usage: "mel bins of the real spectrograms; the networks are made for the default",
				Default: mels, Min: 1, Max: 1 << 12,
			},
			{
				Name: "empty-cache", Usage: "batches from one torch.cuda.empty_cache() to the next, 0 for never",
				Default: 0, Min: 0, Max: 1 << 20,
			},
		},
		Notes: []string{
			"two discriminator steps and one generator step are recorded: the branch taken below 80 % accuracy, and " +
				"the larger one",
			"the tensors of the no_grad probe stay alive as local variables of the loop",
			"the GAN's loop has no autocast; the notebook's mixed precision covers the ViT alone",
			"the notebook calls torch.cuda.empty_cache() every 5 batches: --set empty-cache=5; by default the steps " +
				"are those between two calls",
			"the notebook switches cudnn.benchmark on: while it tries engines, its first steps may need more " +
				"workspace than these figures, which are with it off",
			"two Adam optimizers, and spectral norm by the old hook; the data set may lie on the GPU: --dataset-on-gpu",
		},
		Caveat: func(c models.Case) []string {
			if c.AMP != "" {
				return []string{"the system's GAN loop has no autocast: it trains in fp32"}
			}
			return nil
		},
		Build: func(c models.Case) (models.Trainer, error) { return newTrainer(c), nil },
	}}
}

// trainer records training steps of one case.
type trainer struct {
	c                  models.Case
	model              *gan
	net                *nn.Tree
	generator, critics []*nn.Parameter
}

func newTrainer(c models.Case) *trainer {
	m := &gan{Generator: newGenerator(), Discriminator: newDiscriminator()}
	return &trainer{
		c: c, model: m, net: nn.NewTree(m),
		generator: nn.NewTree(m.Generator).Parameters, critics: nn.NewTree(m.Discriminator).Parameters,
	}
}

func (t *trainer) Counts() models.Counts { return train.Counts(t.net, nil) }

// loop is a training loop in progress.
type loop struct {
	*train.Session
	t            *trainer
	batches      int64 // so far
	optG, optD   *optim.Optimizer
	spec, cond   *tensor
	f            *frame
	ones, zeros  *tensor
	probe        [4]*tensor // z0, fake0, real0, out0
	realOut, z   *tensor
	fake         *tensor
	fakeOut      *tensor
	real, fakeD  *tensor // the two losses of the discriminator
	lossD, lossG *tensor
}

func (t *trainer) Record(tape *trace.Tape, steps int) error {
	return tape.Try(func() {
		t.net.MoveToDevice(tape)
		tape.Mark("model")
		l := &loop{Session: train.NewSession(tape, t.c), t: t}
		adam := optim.Config{Algorithm: optim.Adam}
		var err error
		if l.optG, err = l.Optimizer(t.c, adam, t.generator); err != nil {
			tape.Raise(err)
		}
		if l.optD, err = l.Optimizer(t.c, adam, t.critics); err != nil {
			tape.Raise(err)
		}
		n := int64(t.c.Batch)
		l.spec = tape.Hold(tape.New("randn", program.Batch, trace.F32, n, 1, t.c.Settings["n-mels"], frames))
		l.cond = tape.Hold(l.randomCondition(n))
		tape.Mark("batch")
		for range tape.Steps(steps) {
			l.step()
			tape.Mark("step_end")
		}
	})
}

// randomCondition records torch.rand(n, 2) * 2 - 1.
func (l *loop) randomCondition(n int64) (c *tensor) {
	l.Tape.WithClass(program.Batch, func() {
		c = l.Tape.New("rand", program.Batch, trace.F32, n, condition).MulScalar().AddScalar()
	})
	return c
}

// step records one update of both networks.
func (l *loop) step() {
	*l = loop{Session: l.Session, t: l.t, batches: l.batches, optG: l.optG, optD: l.optD, spec: l.spec, cond: l.cond}
	l.f = l.Tape.Frame()
	l.t.net.SetTraining(true)
	for micro := range l.t.c.Accumulate {
		last := micro+1 == l.t.c.Accumulate
		n := l.spec.Size(0)
		ones, zeros := l.Tape.Filled("ones", trace.F32, n, 1), l.Tape.Zeros(trace.F32, n, 1)
		l.f.Set(&l.ones, ones) // one statement: both are made before either name is bound
		l.f.Set(&l.zeros, zeros)
		l.probeAccuracy()
		for range discriminatorSteps {
			l.trainDiscriminator(last)
		}
		l.trainGenerator(last)
		if every := l.t.c.Settings["empty-cache"]; every > 0 && l.batches%every == 0 {
			l.Tape.EmptyCache()
		}
		l.batches++
	}
	train.EndTrainingStep(l.f, l.lossG)
}

// probeAccuracy records both networks without gradients on new noise and the batch, which gives the discriminator's
// accuracy. That decides how often it is trained. The results stay bound to their variables.
func (l *loop) probeAccuracy() {
	m, f := l.t.model, l.f
	l.Tape.NoGrad(func() {
		l.Autocast(func() {
			f.Set(&l.probe[0], l.randomNoise())
			f.Set(&l.probe[1], m.Generator.call(f, l.probe[0], l.cond))
			f.Set(&l.probe[2], m.Discriminator.call(f, l.spec, l.cond))
			f.Set(&l.probe[3], m.Discriminator.call(f, l.probe[1], l.cond))
			f.Discard(l.probe[2].Sigmoid().GtScalar().To(trace.F32).Mean(false))
			f.Discard(l.probe[3].Sigmoid().GtScalar().To(trace.F32).Mean(false))
		})
	})
	l.Tape.Mark("accuracy")
}

func (l *loop) randomNoise() *tensor {
	return l.Tape.New("randn", program.Temporaries, trace.F32, l.spec.Size(0), noise)
}

func (l *loop) generate(z *tensor) *tensor { return l.call(l.t.model.Generator.call, z) }

func (l *loop) discriminate(spec *tensor) *tensor { return l.call(l.t.model.Discriminator.call, spec) }

// call records a network on the batch's condition; with checkpointing, backward recomputes it.
func (l *loop) call(network func(f *frame, x, c *tensor) *tensor, x *tensor) *tensor {
	if !l.t.c.Checkpointing {
		return network(l.f, x, l.cond)
	}
	return l.f.Checkpoint(func(g *frame, in []*tensor) *tensor { return network(g, in[0], in[1]) }, x, l.cond)
}

// loss returns binary cross entropy with logits, in fp32.
func (l *loop) loss(logits, target *tensor) *tensor {
	if l.t.c.AMP != "" {
		logits = logits.To(trace.F32)
	}
	return logits.BCEWithLogits(target, nil, trace.ReduceMean)
}

func (l *loop) trainDiscriminator(last bool) {
	f := l.f
	l.Autocast(func() {
		f.Set(&l.realOut, l.discriminate(l.spec))
		f.Set(&l.real, l.loss(l.realOut, l.ones))
		f.Set(&l.z, l.randomNoise())
		f.Set(&l.fake, l.generate(l.z).Detach())
		f.Set(&l.fakeOut, l.discriminate(l.fake))
		f.Set(&l.fakeD, l.loss(l.fakeOut, l.zeros))
		f.Set(&l.lossD, l.real.Add(l.fakeD).DivScalar())
	})
	l.backwardAndStep("d", l.lossD, l.optD, l.t.critics, "d_optimizer", last)
}

// backwardAndStep records backward from a loss and, in the last micro-batch, an optimizer step.
func (l *loop) backwardAndStep(of string, loss *trace.Tensor, o *optim.Optimizer, trained []*nn.Parameter, phase string,
	last bool,
) {
	l.Tape.Mark(of + "_forward")
	l.Backward(loss)
	l.Tape.Mark(of + "_backward")
	if last {
		l.Step(o, trained)
		o.ZeroGrad()
		l.Tape.Mark(phase)
	}
}

func (l *loop) trainGenerator(last bool) {
	f := l.f
	l.Autocast(func() {
		f.Set(&l.z, l.randomNoise())
		f.Set(&l.fake, l.generate(l.z))
		f.Set(&l.fakeOut, l.discriminate(l.fake))
		f.Set(&l.lossG, l.loss(l.fakeOut, l.ones).DivScalar())
	})
	l.backwardAndStep("g", l.lossG, l.optG, l.t.generator, "optimizer", last)
}

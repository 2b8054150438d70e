// Package vqvae records the staged training of a patch VQ-VAE with classifier heads for mel spectrograms.
package vqvae

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// The numbers of classes of the classifier heads.
const (
	machines   = 4
	transforms = 6
)

// Models returns the model with 16 patches for each spectrogram, with 8, and with 4, which the project's command for
// little memory trains.
func Models() []models.Model {
	entry := func(name, summary string, patches, stride int64, d models.Case) models.Model {
		d.Model, d.Stage = name, "full"
		return models.Model{
			Name:    name,
			Summary: summary,
			Source:  "64mel-spectr-dcase2020: encoder, quantizer, decoder, heads and trainer",
			Stages:  []string{"full", "vq-only", "codebook-frozen"},
			TrainedByStage: map[string]string{
				"vq-only":         "phase 1, a fifth of the epochs: the head losses have no weight",
				"full":            "phase 2, three fifths: all losses",
				"codebook-frozen": "phase 3, the last fifth: the code table is frozen",
			},
			Default:   d,
			Batches:   []int{1, 8, 16, 32, 64, 128},
			BatchUnit: "spectrogram",
			Settings: []models.Setting{
				{
					Name: "n-patches", Usage: "patches of a spectrogram", Default: patches, Min: 1, Max: 4096,
					Lower: models.Fraction{Num: 1, Den: 2},
				},
				{
					Name: "stride", Usage: "frames from one patch to the next", Default: stride, Min: 1, Max: 4096,
					Inert: "it says which patches there are, not how many; n-patches does",
				},
			},
			Notes: []string{
				"stride alone does not change memory: the number of patches is fixed by n-patches",
				"the encoder is recomputed while a head loss is active, flag or not; checkpointing lowers the peak " +
					"in stage vq-only alone",
				"the decoder trains on detached codes and the heads run twice, once for each of their losses",
				"the code table follows moving averages: it has a place in the optimizer and never a gradient",
			},
			Caveat: func(c models.Case) []string {
				if c.Checkpointing && c.Stage != "vq-only" {
					return []string{"checkpointing does not lower the peak in stage " + c.Stage +
						": the encoder is recomputed anyway, and the recomputed decoder is whole again when " +
						"backward begins"}
				}
				return nil
			},
			Build: func(c models.Case) (models.Trainer, error) { return newTrainer(c), nil },
		}
	}
	return []models.Model{
		entry("patch-vqvae", "patch VQ-VAE with semantic heads, 16 patches a spectrogram", 16, 16,
			models.Case{Batch: 32, Accumulate: 1}),
		entry("patch-vqvae-p8", "patch VQ-VAE with semantic heads, 8 patches a spectrogram", 8, 16,
			models.Case{Batch: 32, Accumulate: 1}),
		entry("patch-vqvae-lowmem", "patch VQ-VAE as its low-memory command runs it, 4 patches a spectrogram", 4, 32,
			models.Case{Batch: 1, Accumulate: 8, AMP: "fp16", Checkpointing: true}),
	}
}

// trainer records training steps of one case.
type trainer struct {
	train.OwnLoopModel[batch]
	patches int64
	model   *network
}

func newTrainer(c models.Case) *trainer {
	n := &network{Encoder: newEncoder(), Quantizer: newQuantizer(), Decoder: newDecoder(), Heads: newHeads()}
	t := &trainer{patches: c.Settings["n-patches"], model: n}
	if c.Stage == "codebook-frozen" {
		nn.Freeze(t.model.Quantizer)
	}
	t.OwnLoopModel = train.OwnLoopModel[batch]{
		Case: c, Net: nn.NewTree(t.model), Load: t.load, Step: t.step,
		ComputeLosses: func(f *frame, b batch) { t.losses(f, new(loopVariables), b) },
	}
	return t
}

type batch struct{ patches, machine, transform *tensor }

// load copies n spectrograms and their labels to the device.
func (t *trainer) load(tape *trace.Tape, size int) batch {
	n := int64(size)
	return batch{
		patches:   tape.Hold(tape.New("randn", program.Batch, trace.F32, n, t.patches, patch, patch)),
		machine:   tape.Hold(tape.New("randint", program.Batch, trace.I64, n)),
		transform: tape.Hold(tape.New("randint", program.Batch, trace.I64, n)),
	}
}

// step records one update: micro-batches, then unscaling of gradients, clipping and the optimizer's step.
func (t *trainer) step(s *train.Session, opt *optim.Optimizer, b batch) {
	f := s.Tape.Frame()
	t.Net.SetTraining(true)
	var n loopVariables
	for range t.Case.Accumulate {
		s.Autocast(func() { t.losses(f, &n, b) })
		s.Backward(n.total)
		n.del(f)
		s.Tape.Mark("backward")
	}
	s.Step(opt, t.Net.Parameters)
	s.Tape.Mark("optimizer")
	opt.ZeroGrad()
	s.Tape.Mark("zero_grad")
	train.EndTrainingStep(f, n.total)
}

// loopVariables are the local variables of the training loop.
type loopVariables struct {
	flat, z, q, vq, perplexity, rec, recLoss, pooled  *tensor
	machine, transform, other, ceMachine, ceTransform *tensor
	part, total                                       *tensor
}

// del records the loop's del statement.
func (n *loopVariables) del(f *frame) {
	for _, x := range []**tensor{
		&n.z, &n.q, &n.vq, &n.rec, &n.recLoss, &n.pooled, &n.machine, &n.transform,
		&n.ceMachine, &n.ceTransform, &n.perplexity, &n.other,
	} {
		f.Del(x)
	}
}

// losses records the forward pass and all losses of a micro-batch.
func (t *trainer) losses(f *frame, n *loopVariables, b batch) {
	m, size := t.model, b.patches.Size(0)
	headsActive := t.Case.Stage != "vq-only"
	f.Set(&n.flat, b.patches.Reshape(size*t.patches, 1, patch, patch))
	f.Set(&n.z, nn.CallCheckpointed(f, m.Encoder, n.flat, t.Case.Checkpointing || headsActive))
	q, vq, perplexity := m.Quantizer.call(f, n.z)
	f.Set(&n.q, q)
	f.Set(&n.vq, vq)
	f.Set(&n.perplexity, perplexity)
	f.Set(&n.vq, n.vq.MulScalar())
	f.Set(&n.rec, nn.CallCheckpointed(f, m.Decoder, n.q.Detach(), t.Case.Checkpointing))
	f.Tape().Mark("forward")
	smooth := trace.CrossEntropyArgs{LabelSmoothing: 0.1}
	f.Set(&n.recLoss, n.rec.MSELoss(n.flat, trace.ReduceMean))
	latents := n.z.Shape()
	f.Set(&n.pooled, n.z.Reshape(append([]int64{size, t.patches}, latents[1:]...)...).Mean(false, 1))
	machine, other := m.Heads.call(f, n.pooled)
	f.Set(&n.machine, machine)
	f.Set(&n.other, other)
	f.Set(&n.ceMachine, n.machine.CrossEntropyWith(b.machine, smooth))
	other, transform := m.Heads.call(f, n.pooled)
	f.Set(&n.other, other)
	f.Set(&n.transform, transform)
	f.Set(&n.ceTransform, n.transform.CrossEntropyWith(b.transform, smooth))
	f.Set(&n.total, n.recLoss.MulScalar().Add(n.vq.MulScalar()).Add(n.ceMachine.MulScalar()).
		Add(n.ceTransform.MulScalar()))
	f.Set(&n.part, n.total) // the loop that reads the parts leaves its name on the last
	f.Set(&n.total, n.total.MulScalar())
	f.Tape().Mark("loss")
}

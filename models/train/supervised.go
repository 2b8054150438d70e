package train

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// SupervisedTask is a task whose batch is one input with labels. It implements [Adaptable]; peft copies no layers.
type SupervisedTask struct {
	// Net is the argument of [nn.NewTree]. Last is the layer that freeze stage "head" trains.
	Net, Last any
	// Embeddings are the output embeddings, which get no adapters.
	Embeddings []nn.Layer
	// RequireGrads makes the first result computed from the input require gradients; nil if that is not needed.
	RequireGrads func()
	// Sample copies n inputs and their labels to the GPU.
	Sample func(t *trace.Tape, n int64) (x, labels *trace.Tensor)
	// Learn computes [Task.Loss] of a batch.
	Learn func(f *trace.Frame, x, labels *trace.Tensor, loss **trace.Tensor)

	x, labels *trace.Tensor
}

// Model returns the model to train, for [Task].
func (s *SupervisedTask) Model() any { return s.Net }

// Head returns the last layer, which freeze stage head trains, for [Task].
func (s *SupervisedTask) Head() any { return s.Last }

// OutputLayers returns the output layers, which get adapters only by name, for [Adaptable].
func (s *SupervisedTask) OutputLayers() []nn.Layer { return s.Embeddings }

// LayersToSave returns nil: peft trains copies of no layers, for [Adaptable].
func (*SupervisedTask) LayersToSave() []*nn.Layer { return nil }

// RequireInputGrads makes the input require gradients, for [Adaptable].
func (s *SupervisedTask) RequireInputGrads() {
	if s.RequireGrads != nil {
		s.RequireGrads()
	}
}

// Load copies a batch of n samples to the GPU, for [Task].
func (s *SupervisedTask) Load(t *trace.Tape, n int64) {
	x, labels := s.Sample(t, n)
	s.x, s.labels = t.Hold(x), t.Hold(labels)
}

// Loss records forward and the loss of the batch, for [Task].
func (s *SupervisedTask) Loss(f *trace.Frame, loss **trace.Tensor) { s.Learn(f, s.x, s.labels, loss) }

// BindCrossEntropy sets *loss to the cross entropy of logits, and frees the logits.
func BindCrossEntropy(f *trace.Frame, logits, labels *trace.Tensor, loss **trace.Tensor) {
	f.Bind(logits)
	f.Tape().Output(nil, logits)
	f.Tape().Mark("forward")
	f.Set(loss, logits.CrossEntropy(labels))
	f.Del(&logits)
}

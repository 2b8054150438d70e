package train

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Supervised is a network's task whose batch is one input with labels. It implements [Adaptable]; peft adds no layer.
type Supervised struct {
	// Net is what [nn.NewTree] takes, Last the layer that stage "head" trains.
	Net, Last any
	// Embeddings are the output embeddings, which adapters leave alone.
	Embeddings []nn.Layer
	// RequireGrads makes the first result computed from the input require gradients; nil where it is not needed.
	RequireGrads func()
	// Sample brings n inputs with their labels to the device.
	Sample func(t *trace.Tape, n int64) (x, labels *trace.Tensor)
	// Learn is [Task.Loss] of such a batch.
	Learn func(f *trace.Frame, x, labels *trace.Tensor, loss **trace.Tensor)

	x, labels *trace.Tensor
}

// Model implements [Task].
func (s *Supervised) Model() any { return s.Net }

// Head implements [Task].
func (s *Supervised) Head() any { return s.Last }

// Unadapted implements [Adaptable].
func (s *Supervised) Unadapted() []nn.Layer { return s.Embeddings }

// Saved implements [Adaptable].
func (*Supervised) Saved() []*nn.Layer { return nil }

// RequireInputGrads implements [Adaptable].
func (s *Supervised) RequireInputGrads() {
	if s.RequireGrads != nil {
		s.RequireGrads()
	}
}

// Load implements [Task].
func (s *Supervised) Load(t *trace.Tape, n int64) {
	x, labels := s.Sample(t, n)
	s.x, s.labels = t.Hold(x), t.Hold(labels)
}

// Loss implements [Task].
func (s *Supervised) Loss(f *trace.Frame, loss **trace.Tensor) { s.Learn(f, s.x, s.labels, loss) }

// BindCrossEntropy binds *loss to the cross entropy of a network's logits, and releases the logits.
func BindCrossEntropy(f *trace.Frame, logits, labels *trace.Tensor, loss **trace.Tensor) {
	f.Bind(logits)
	f.Tape().Output(nil, logits)
	f.Tape().Mark("forward")
	f.Set(loss, logits.CrossEntropy(labels))
	f.Del(&logits)
}

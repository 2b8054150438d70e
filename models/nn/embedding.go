package nn

import "github.com/vprof/vprof/profiler/trace"

// Embedding is torch.nn.Embedding.
type Embedding struct {
	Module
	Weight *Parameter
}

// NewEmbedding is a table of n rows of the given width.
func NewEmbedding(n, width int64) *Embedding { return &Embedding{Weight: NewParameter(n, width)} }

// Forward maps a tensor of indices to their rows: [...] to [..., width].
func (e *Embedding) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return x.Embedding(e.Weight.T())
}

package nn

import "github.com/vprof/vprof/profiler/trace"

// Embedding is torch.nn.Embedding.
type Embedding struct {
	Module
	Weight       *Parameter
	requireGrads bool
}

// NewEmbedding is a table of n rows of the given width.
func NewEmbedding(n, width int64) *Embedding { return &Embedding{Weight: NewParameter(n, width)} }

// RequireGrads makes results require a gradient though the table is frozen, as
// a forward hook of transformers' enable_input_require_grads() does.
func (e *Embedding) RequireGrads() { e.requireGrads = true }

// Forward maps a tensor of indices to their rows: [...] to [..., width].
func (e *Embedding) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return e.Hook(x.Embedding(e.Weight.T()))
}

// Hook is what the forward hook makes of a result: models that scale what they look up
// call it after that.
func (e *Embedding) Hook(y *trace.Tensor) *trace.Tensor {
	if e.requireGrads && !y.RequiresGrad() {
		y.Leaf()
	}
	return y
}

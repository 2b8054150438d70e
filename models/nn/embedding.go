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

// Hook applies the hook of [Embedding.RequireGrads] to a result y. Models that change what
// they look up, for example by a factor, call it on the changed result.
func (e *Embedding) Hook(y *trace.Tensor) *trace.Tensor {
	if e.requireGrads && !y.RequiresGrad() {
		y.Leaf()
	}
	return y
}

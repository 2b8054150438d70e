package nn

import "github.com/vprof/vprof/profiler/trace"

// Dropout is torch.nn.Dropout.
type Dropout struct {
	Module
	p float64
}

// NewDropout zeroes elements with probability p in training.
func NewDropout(p float64) *Dropout { return &Dropout{p: p} }

// Forward keeps the shape.
func (d *Dropout) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return x.Dropout(d.p, d.Training())
}

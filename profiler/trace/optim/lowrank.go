package optim

import (
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// The state tensors of GaLore besides the moments: the projection matrix.
const (
	lowMatrix = bnbStates // in 8 bits, the moments are bitsandbytes'

	lowFirst  = expAvg
	lowSecond = expAvgSq
)

// Project makes the optimizer project the gradients of the parameters that wanted selects, by matrices of its rank.
// These parameters form separate groups and are stepped last. Project returns their number.
func (o *Optimizer) Project(wanted func(p *trace.Tensor) bool) int {
	n := 0
	for k, group := range o.groups {
		var others, projected []*slot
		for _, s := range group {
			if s.low = s.param.NDim() == 2 && wanted(s.param); s.low {
				projected = append(projected, s)
			} else {
				others = append(others, s)
			}
		}
		n += len(projected)
		o.groups[k] = append(others, projected...)
	}
	return n
}

// LowRank reports whether the algorithm projects gradients of matrices.
func (c *Config) LowRank() bool { return c.Rank > 0 }

// projectionMatrix computes the projection matrix of a parameter at the first step: singular vectors of the gradient.
// (GaLore computes it again every 200 steps.)
func (o *Optimizer) projectionMatrix(f *trace.Frame, s *slot, grad *trace.Tensor) {
	if s.state[lowMatrix] != nil {
		return
	}
	g := f.FunctionFrame(grad)
	rank, half := min(o.config.Rank, grad.Size(0), grad.Size(1)), grad.DType() != trace.F32
	whole := grad
	if half {
		whole = g.Bind(grad.To(trace.F32))
	}
	made := func() *trace.Tensor { return singularVectors(g, whole, rank) }
	if half {
		x := made()
		s.state[lowMatrix] = o.keep(func() *trace.Tensor { return x.To(grad.DType()) })
	} else {
		s.state[lowMatrix] = o.keep(made)
	}
	g.End()
}

// singularVectors returns the first rank singular vectors of a matrix, on its shorter side, as a view of all of them.
func singularVectors(g *trace.Frame, x *trace.Tensor, rank int64) *trace.Tensor {
	u, values, v := ops.LinalgSVD(x, false)
	g.BindAll([]*trace.Tensor{u, values, v})
	diagonal := values.Narrow(0, 0, rank).DiagEmbed(0)
	if x.Size(0) >= x.Size(1) {
		g.Bind(u.Narrow(1, 0, rank).Matmul(diagonal))
		return g.Bind(v.Narrow(0, 0, rank))
	}
	g.Bind(diagonal.Matmul(v.Narrow(0, 0, rank)))
	return g.Bind(u.Narrow(1, 0, rank))
}

// project returns the gradient multiplied by the projection matrix.
func project(s *slot, grad *trace.Tensor) *trace.Tensor {
	m := s.state[lowMatrix]
	if grad.Size(0) >= grad.Size(1) {
		return grad.Matmul(m.T())
	}
	return m.T().Matmul(grad)
}

// projectBack records project_back of galore_torch: it returns an update as large as the parameter.
func projectBack(f *trace.Frame, s *slot, low *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(low)
	var whole *trace.Tensor
	if m := s.state[lowMatrix]; low.Size(0) >= low.Size(1) {
		whole = g.Bind(low.Matmul(m))
	} else {
		whole = g.Bind(m.Matmul(low))
	}
	y := trace.Pointwise("mul_Tensor", 1, whole)
	return g.Return(y)
}

// singleGaLore records AdamW.step of galore_torch 1.0. Its names live on from one parameter to the next.
func singleGaLore(o *Optimizer, f *trace.Frame, l *batch) {
	var low, root, update *trace.Tensor
	for i, p := range l.params {
		s := l.slots[i]
		f.Set(&low, l.grads[i])
		if s.low {
			o.projectionMatrix(f, s, low)
			f.Set(&low, project(s, low))
		}
		o.moments(s, low)
		f.Set(&root, updateMoments(s, low))
		f.Set(&update, trace.Pointwise("div_Tensor", 4, s.state[lowFirst], root))
		if s.low {
			f.Set(&update, projectBack(f, s, update))
		}
		trace.Update("add__Tensor", 2, p, update)
		if o.config.WeightDecay {
			trace.Update("add__Tensor", 2, p, p)
		}
	}
}

// moments allocates the moments of a projected gradient.
func (o *Optimizer) moments(s *slot, grad *trace.Tensor) {
	if s.state[lowFirst] == nil {
		s.state[lowFirst] = o.keep(grad.ZerosLike)
		s.state[lowSecond] = o.keep(grad.ZerosLike)
	}
}

// updateMoments updates both moments and returns the square root of the second.
func updateMoments(s *slot, grad *trace.Tensor) *trace.Tensor {
	trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, s.state[lowFirst]), grad)
	trace.Update("addcmul_", 3, trace.Update("mul__Tensor", 1, s.state[lowSecond]), grad)
	return trace.Update("add__Tensor", 1, trace.Pointwise("sqrt", 4, s.state[lowSecond]))
}

// singleGaLore8bit records AdamW8bit.step of galore_torch 1.0: bitsandbytes' state and kernel for a projected gradient,
// with a copy of the parameter.
func singleGaLore8bit(o *Optimizer, f *trace.Frame, l *batch) {
	var grad *trace.Tensor
	for i, p := range l.params {
		s := l.slots[i]
		if !s.low {
			o.ensureStateBits8(s, p)
			o.updateBits8(s, p, l.grads[i])
			continue
		}
		o.projectionMatrix(f, s, l.grads[i])
		f.Set(&grad, project(s, l.grads[i]))
		g := o.tape.Frame()
		aside := g.Bind(p.Clone())
		low := g.Bind(grad.Clone())
		g.Del(&aside) // which replaces p
		p.ZeroGrad()
		o.ensureStateBits8(s, low)
		o.updateBits8(s, low, grad)
		g.Discard(projectBack(f, s, low))
		g.End()
	}
}

// ensureStateBits8 allocates the 8-bit state of a tensor at the first step.
func (o *Optimizer) ensureStateBits8(s *slot, p *trace.Tensor) {
	if s.state[bnbState1] == nil {
		o.initBits8Of(s, p)
	}
}

package optim

import "github.com/vprof/vprof/profiler/trace"

// The state of GaLore and APOLLO besides the moments: the matrix that gradients
// are projected by, if they are.
const (
	lowMatrix = bnbStates + iota // in 8 bits, the moments are bitsandbytes'
	lowNorm                      // of APOLLO's last update

	lowFirst  = expAvg
	lowSecond = expAvgSq
)

// Project has the optimizer see the gradients of some of its parameters through matrices of
// its rank, those that wanted says. They are stepped after the others, as groups of their own.
// It returns how many there are.
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

// Low says that the algorithm projects gradients of matrices.
func (c *Config) Low() bool { return c.Rank > 0 }

// matrix makes the matrix of a parameter where there is none yet. (It is made again every 200
// steps.) svd is GaLore's, of the gradient's singular vectors, else it is APOLLO's, of random
// numbers.
func (o *Optimizer) matrix(f *trace.Frame, s *slot, grad *trace.Tensor, svd bool) {
	if s.state[lowMatrix] != nil {
		return
	}
	g := f.FuncFrame(grad)
	rank, half := min(o.config.Rank, grad.Size(0), grad.Size(1)), grad.DType() != trace.F32
	whole := grad
	if half {
		whole = g.Let(grad.To(trace.F32))
	}
	made := func() *trace.Tensor {
		if svd {
			return vectors(g, whole, rank)
		}
		rows, columns := rank, grad.Size(1)
		if grad.Size(0) < grad.Size(1) {
			rows, columns = grad.Size(0), rank
		}
		return g.Let(trace.Pointwise("div_Tensor", 4, o.tape.Empty(trace.F32, rows, columns)))
	}
	if half {
		x := made()
		s.state[lowMatrix] = o.keep(func() *trace.Tensor { return x.To(grad.DType()) })
	} else {
		s.state[lowMatrix] = o.keep(made)
	}
	g.End()
}

// vectors returns the first singular vectors of a matrix, on its shorter side: a part of all of
// them, which it holds.
func vectors(g *trace.Frame, x *trace.Tensor, rank int64) *trace.Tensor {
	u, values, v := x.LinalgSVD(false)
	g.LetAll([]*trace.Tensor{u, values, v})
	diagonal := values.Narrow(0, 0, rank).DiagEmbed(0)
	if x.Size(0) >= x.Size(1) {
		g.Let(u.Narrow(1, 0, rank).Matmul(diagonal))
		return g.Let(v.Narrow(0, 0, rank))
	}
	g.Let(diagonal.Matmul(v.Narrow(0, 0, rank)))
	return g.Let(u.Narrow(1, 0, rank))
}

// project returns the gradient in the space of the matrix.
func project(s *slot, grad *trace.Tensor) *trace.Tensor {
	m := s.state[lowMatrix]
	if grad.Size(0) >= grad.Size(1) {
		return grad.Matmul(m.T())
	}
	return m.T().Matmul(grad)
}

// projectBack is project_back: an update of the size of the parameter.
func projectBack(f *trace.Frame, s *slot, low *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(low)
	var whole *trace.Tensor
	if m := s.state[lowMatrix]; low.Size(0) >= low.Size(1) {
		whole = g.Let(low.Matmul(m))
	} else {
		whole = g.Let(m.Matmul(low))
	}
	y := trace.Pointwise("mul_Tensor", 1, whole)
	return g.Return(y)
}

// singleGaLore is AdamW.step of galore_torch 1.0. Its names live on from one parameter to
// the next.
func singleGaLore(o *Optimizer, f *trace.Frame, l *lists) {
	var n lowNames
	for i, p := range l.params {
		s := l.slots[i]
		o.adaptive(f, s, l.grads[i], true, &n)
		if s.low {
			f.Set(&n.update, projectBack(f, s, n.update))
		}
		trace.Update("add__Tensor", 2, p, n.update)
		if o.config.WeightDecay {
			trace.Update("add__Tensor", 2, p, p)
		}
	}
}

// lowNames are names of a loop over parameters that live on from one parameter to the next.
type lowNames struct{ grad, root, update *trace.Tensor }

// adaptive makes Adam's update of a parameter from its gradient, of one of low rank from the
// projected gradient. svd says how the projection is made, see [Optimizer.matrix].
func (o *Optimizer) adaptive(f *trace.Frame, s *slot, grad *trace.Tensor, svd bool, n *lowNames) {
	f.Set(&n.grad, grad)
	if s.low {
		o.matrix(f, s, n.grad, svd)
		f.Set(&n.grad, project(s, n.grad))
	}
	o.moments(s, n.grad)
	f.Set(&n.root, average2(s, n.grad))
	f.Set(&n.update, trace.Pointwise("div_Tensor", 4, s.state[lowFirst], n.root))
}

// moments makes those of a gradient as it was projected.
func (o *Optimizer) moments(s *slot, grad *trace.Tensor) {
	if s.state[lowFirst] == nil {
		s.state[lowFirst] = o.keep(grad.ZerosLike)
		s.state[lowSecond] = o.keep(grad.ZerosLike)
	}
}

// average2 updates the moments and is the root of the second.
func average2(s *slot, grad *trace.Tensor) *trace.Tensor {
	trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, s.state[lowFirst]), grad)
	trace.Update("addcmul_", 3, trace.Update("mul__Tensor", 1, s.state[lowSecond]), grad)
	return trace.Update("add__Tensor", 1, trace.Pointwise("sqrt", 4, s.state[lowSecond]))
}

// singleAPOLLO is AdamW.step of apollo_torch 1.0, which scales channels.
func singleAPOLLO(o *Optimizer, f *trace.Frame, l *lists) {
	var n lowNames
	var factor, scaled, norm *trace.Tensor
	for i, p := range l.params {
		s := l.slots[i]
		o.adaptive(f, s, l.grads[i], false, &n)
		if s.low {
			d := 1
			if p.Size(0) < p.Size(1) {
				d = 0
			}
			over := trace.Pointwise("add_Tensor", 1, trace.VectorNorm(n.grad, false, d))
			f.Set(&factor, trace.Pointwise("div_Tensor", 4, trace.VectorNorm(n.update, false, d), over))
			if d == 1 {
				f.Set(&factor, factor.Unsqueeze(1))
			}
			f.Set(&scaled, trace.Pointwise("mul_Tensor", 1, l.grads[i], factor))
			o.limit(f, s, &scaled, &norm)
			f.Set(&n.update, scaled)
			trace.Update("mul__Tensor", 1, n.update)
		}
		trace.Update("add__Tensor", 2, p, n.update)
		if o.config.WeightDecay {
			trace.Update("add__Tensor", 2, p, p)
		}
	}
}

// limit keeps the norm of an update from growing by more than a hundredth.
func (o *Optimizer) limit(f *trace.Frame, s *slot, scaled, norm **trace.Tensor) {
	if s.state[lowNorm] == nil {
		s.state[lowNorm] = o.keep(func() *trace.Tensor { return trace.VectorNorm(*scaled, false) })
		return
	}
	f.Set(norm, trace.VectorNorm(*scaled, false))
	f.Set(scaled, trace.Pointwise("div_Tensor", 4, *scaled))
	old := s.state[lowNorm]
	s.state[lowNorm] = o.keep(func() *trace.Tensor { return trace.Pointwise("div_Tensor", 4, *norm) })
	o.held.Del(&old)
}

// singleGaLore8bit is AdamW8bit.step of galore_torch 1.0: bitsandbytes' state and kernel for
// what is projected, for which the parameter is put aside in a copy.
func singleGaLore8bit(o *Optimizer, f *trace.Frame, l *lists) {
	var grad *trace.Tensor
	for i, p := range l.params {
		s := l.slots[i]
		if !s.low {
			o.readyBits8(s, p)
			o.updateBits8(s, p, l.grads[i])
			continue
		}
		o.matrix(f, s, l.grads[i], true)
		f.Set(&grad, project(s, l.grads[i]))
		g := o.tape.Frame()
		aside := g.Let(p.Clone())
		low := g.Let(grad.Clone())
		g.Del(&aside) // which takes the place of p
		p.ZeroGrad()
		o.readyBits8(s, low)
		o.updateBits8(s, low, grad)
		g.Discard(projectBack(f, s, low))
		g.End()
	}
}

// readyBits8 makes the state of a tensor at its first step.
func (o *Optimizer) readyBits8(s *slot, p *trace.Tensor) {
	if s.state[bnbState1] == nil {
		o.initBits8Of(s, p)
	}
}

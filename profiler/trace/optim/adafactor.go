package optim

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// The state tensors of torch.optim.Adafactor: factored for matrices, full for vectors.
const (
	rowVar = iota
	colVar

	variance = 0
)

func initAdafactor(o *Optimizer, s *slot) {
	n := s.param.NDim()
	if n < 2 {
		o.addZeros(s, variance)
		return
	}
	reduced := func(d int) func() *trace.Tensor {
		return func() *trace.Tensor {
			shape := append([]int64(nil), s.param.Shape()...)
			shape[d] = 1
			return o.tape.Filled("new_zeros", s.param.DType(), shape...)
		}
	}
	s.state[rowVar] = o.keep(reduced(n - 1))
	s.state[colVar] = o.keep(reduced(n - 2))
}

// foreachAdafactor steps matrices and vectors in two groups, as PyTorch does: the group of the first parameter goes
// first. Python variables of the first group live on in the second.
func foreachAdafactor(o *Optimizer, f *trace.Frame, l *batch) {
	var updates []*trace.Tensor
	for _, part := range splitByRank(l) {
		grads := part.grads
		normsToHost(f, part.params)
		if o.config.WeightDecay {
			trace.ForeachUpdate("_foreach_mul__ScalarList", 1, part.params)
		}
		estimate := vectorVariances
		if part.params[0].NDim() > 1 {
			estimate = matrixVariances
		}
		next := f.BindList(estimate(o, &part, grads))
		if updates != nil {
			f.DelList(updates)
		}
		updates = next
		trace.ForeachUpdate("_foreach_clamp_min__Scalar", 1, updates)
		trace.ForeachUpdate("_foreach_rsqrt_", 4, updates)
		trace.ForeachUpdate("_foreach_mul__List", 1, updates, grads)
		normsToHost(f, updates)
		trace.ForeachUpdate("_foreach_mul__ScalarList", 1, updates)
		trace.ForeachUpdate("_foreach_add__List", 1, part.params, updates)
	}
}

// splitByRank separates matrices from vectors; the group of the first parameter comes first.
func splitByRank(l *batch) []batch {
	var out []batch
	at := [2]int{-1, -1}
	for _, s := range l.slots {
		k := 0
		if s.param.NDim() > 1 {
			k = 1
		}
		if at[k] < 0 {
			at[k] = len(out)
			out = append(out, batch{})
		}
		out[at[k]].add(s)
	}
	return out
}

func normsToHost(f *trace.Frame, xs []*trace.Tensor) {
	for _, x := range xs {
		f.Discard(trace.VectorNorm(x, false))
	}
}

// matrixVariances estimates the second moments from the moments of rows and columns.
func matrixVariances(o *Optimizer, l *batch, grads []*trace.Tensor) []*trace.Tensor {
	f := o.tape.Frame()
	for k, d := range []int{rowVar: -1, colVar: -2} {
		norm := func(g *trace.Tensor) *trace.Tensor { return trace.VectorNorm(g, true, d) }
		means := f.BindList(lists.Map(grads, norm))
		trace.ForeachUpdate("_foreach_mul__List", 1, means)
		trace.ForeachUpdate("_foreach_div__ScalarList", 4, means)
		trace.ForeachUpdate("_foreach_lerp__ScalarList", 3, l.state[k], means)
		f.DelList(means)
	}
	rows := l.state[rowVar]
	out := lists.Make(len(rows), func(i int) *trace.Tensor { return f.Bind(rows[i].Matmul(l.state[colVar][i])) })
	means := f.BindList(lists.Map(rows, func(row *trace.Tensor) *trace.Tensor { return row.Mean(true, -2) }))
	trace.ForeachUpdate("_foreach_clamp_min__Scalar", 1, means)
	trace.ForeachUpdate("_foreach_div__List", 4, out, means)
	f.DelList(means)
	f.End(out...)
	return out
}

// vectorVariances returns copies of the averaged squared gradients of vectors.
func vectorVariances(o *Optimizer, l *batch, grads []*trace.Tensor) []*trace.Tensor {
	f := o.tape.Frame()
	squared := f.BindList(trace.ForeachNew("_foreach_mul_List", 1, grads, grads))
	trace.ForeachUpdate("_foreach_lerp__ScalarList", 3, l.state[variance], squared)
	f.DelList(squared)
	out := lists.Map(l.state[variance], func(v *trace.Tensor) *trace.Tensor { return f.Bind(v.Clone()) })
	f.End(out...)
	return out
}

func singleAdafactor(o *Optimizer, f *trace.Frame, l *batch) {
	var grad, rowMean, colMean, squared, update *trace.Tensor
	for i, p := range l.params {
		s := l.slots[i]
		f.Set(&grad, l.grads[i])
		f.Discard(trace.VectorNorm(p, false))
		if o.config.WeightDecay {
			trace.Update("mul__Tensor", 1, p)
		}
		if p.NDim() > 1 {
			f.Set(&rowMean, meanSquare(grad, -1))
			trace.Update("lerp__Scalar", 3, s.state[rowVar], rowMean)
			f.Set(&colMean, meanSquare(grad, -2))
			trace.Update("lerp__Scalar", 3, s.state[colVar], colMean)
			estimate := s.state[rowVar].Matmul(s.state[colVar])
			mean := trace.Update("clamp_", 1, s.state[rowVar].Mean(true, -2))
			f.Set(&update, trace.Update("div__Tensor", 4, estimate, mean))
		} else {
			f.Set(&squared, trace.Pointwise("mul_Tensor", 1, grad, grad))
			trace.Update("lerp__Scalar", 3, s.state[variance], squared)
			f.Set(&update, s.state[variance].Clone())
		}
		trace.Update("rsqrt_", 4, trace.Update("clamp_", 1, update))
		trace.Update("mul__Tensor", 1, update, grad)
		f.Discard(trace.VectorNorm(update, false))
		trace.Update("add__Tensor", 2, p, update)
	}
	// Python releases names in the order the code mentions them.
	for _, name := range []**trace.Tensor{&rowMean, &colMean, &squared} {
		if *name != nil {
			f.Del(name)
		}
	}
}

// meanSquare returns the mean of squares along dimension d, computed from the norm.
func meanSquare(g *trace.Tensor, d int) *trace.Tensor {
	return trace.Update("div__Tensor", 4, trace.Update("square_", 1, trace.VectorNorm(g, true, d)))
}

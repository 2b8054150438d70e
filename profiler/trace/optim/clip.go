package optim

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// ClipGradNorm records torch.nn.utils.clip_grad_norm_ for any norm. It returns the total norm, nil if no parameter has
// a gradient. how selects the foreach or single implementation; PyTorch's default is foreach.
func ClipGradNorm(params []*trace.Tensor, how Implementation) *trace.Tensor {
	batches := gradientsByType(params)
	if len(batches) == 0 {
		return nil
	}
	t := params[0].Tape()
	var total *trace.Tensor
	t.NoGrad(func() {
		f := t.Frame()
		total = f.Bind(totalNorm(t, batches, how))
		clipWithNorm(t, batches, total, how)
		f.End(total)
	})
	return total
}

// gradientsByType returns the existing gradients, grouped by type, the last type first.
func gradientsByType(params []*trace.Tensor) [][]*trace.Tensor {
	var out [][]*trace.Tensor
	for _, p := range params {
		g := p.Grad()
		if g == nil {
			continue
		}
		k := 0
		for k < len(out) && !inSameGroup(out[k][0], g) {
			k++
		}
		if k == len(out) {
			out = append(out, nil)
		}
		out[k] = append(out[k], g)
	}
	slices.Reverse(out)
	return out
}

// totalNorm records torch.nn.utils' _get_total_norm: the norm of the gradients' norms.
func totalNorm(t *trace.Tape, batches [][]*trace.Tensor, how Implementation) *trace.Tensor {
	f := t.Frame()
	var norms []*trace.Tensor
	for _, grads := range batches {
		if how == Foreach {
			norms = append(norms, trace.ForeachNorm(grads)...)
			continue
		}
		for _, g := range grads {
			norms = append(norms, trace.VectorNorm(g, false))
		}
	}
	f.BindList(norms)
	first := batches[len(batches)-1][0]
	norms = lists.Map(norms, func(n *trace.Tensor) *trace.Tensor { return n.ToGPUOf(first) })
	return f.Return(trace.VectorNorm(trace.Stack(0, norms...), false))
}

// clipWithNorm records torch.nn.utils' _clip_grads_with_norm_.
func clipWithNorm(t *trace.Tape, batches [][]*trace.Tensor, total *trace.Tensor, how Implementation) {
	f := t.Frame()
	coef := f.Bind(divideScalar(trace.Pointwise("add_Tensor", 1, total)))
	clamped := f.Bind(trace.Pointwise("clamp", 1, coef))
	for _, grads := range batches {
		clamped := f.Bind(clamped.ToGPUOf(grads[0]))
		if how == Foreach {
			trace.ForeachUpdate("_foreach_mul__Tensor", 1, grads, []*trace.Tensor{clamped})
			continue
		}
		for _, g := range grads {
			trace.Update("mul__Tensor", 1, g, clamped)
		}
	}
	f.End()
}

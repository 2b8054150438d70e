package trace

import "github.com/vprof/vprof/profiler/program"

// CrossEntropy is torch.nn.functional.cross_entropy(x, target) with class
// indices, mean reduction: a log-softmax, which stays in the type of x, and an
// nll loss.
func (x *Tensor) CrossEntropy(target *Tensor) *Tensor {
	t := x.tape
	c := t.begin("cross_entropy_loss", x, target)
	return c.end(x.softmax(&opLogSoftmax, x.dtype).NLLLoss(target))
}

// NLLLoss is torch.nn.functional.nll_loss(x, target), mean reduction.
func (x *Tensor) NLLLoss(target *Tensor) *Tensor {
	t := x.tape
	c := t.begin("nll_loss_nd", x, target)
	c.full(&x)
	var y, weight *Tensor // the loss, and total_weight
	if spatial := x.NDim() > 2; spatial {
		weight, y = t.empty(x.dtype), t.empty(x.dtype)
	} else {
		y, weight = t.empty(x.dtype), t.empty(x.dtype)
	}
	t.launch(program.Op{Work: program.Index, FLOPs: target.numel}, []*Tensor{y, weight}, []*Tensor{x, target})
	if n := t.record("NllLossBackward0", x); n != nil {
		n.save(x, target, weight)
		n.yields(y)
		n.apply = func(b *backward) {
			x := b.saved(0)
			g := b.t.empty(x.dtype, x.shape...)
			b.t.launchFill(g)
			b.give(0, g)
		}
	}
	return c.end(y)
}

package trace

import "github.com/vprof/vprof/profiler/program"

// CrossEntropy is torch.nn.functional.cross_entropy(x, target) with class
// indices, mean reduction: a log-softmax and an nll loss.
func (x *Tensor) CrossEntropy(target *Tensor) *Tensor {
	t := x.tape
	c := t.begin("cross_entropy_loss", x, target)
	logp := x.LogSoftmax(1)
	return c.end(logp.NLLLoss(target))
}

// NLLLoss is torch.nn.functional.nll_loss(x, target), mean reduction.
func (x *Tensor) NLLLoss(target *Tensor) *Tensor {
	t := x.tape
	c := t.begin("nll_loss_nd", x, target)
	in := t.full(x)
	y := t.empty(in.dtype)
	weight := t.empty(in.dtype) // total_weight
	t.launch(program.Op{Work: program.Index, FLOPs: target.numel}, []*Tensor{y, weight}, []*Tensor{in, target})
	if n := t.record("NllLossBackward0", in); n != nil {
		n.save(in, target, weight)
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

package trace

import "github.com/vprof/vprof/profiler/program"

// SoftMarginLoss is torch.nn.functional.soft_margin_loss(x, target): log(1 + exp(-target * x)),
// computed in place of -x, and shrunk to the result's size.
func (x *Tensor) SoftMarginLoss(target *Tensor, r Reduction) *Tensor {
	c := x.tape.begin("soft_margin_loss", x, target)
	y := c.let(c.t.map1("neg", x.dtype, 1, x))
	c.t.launchElementwise(y, 2*transcendentalFLOPs, y, target)
	if r != ReduceNone {
		var z *Tensor
		c.t.NoGrad(func() { z = c.let(y.reduceLoss(r)) })
		c.t.launchCopy(y.touched(1), z)
		y = c.let(y.alias(nil, nil, 0))
	}
	return c.end(y.derived("SoftMarginLossBackward0", inputs{x, target}, saves{x, target},
		func(b *backward) { b.give(0, softMarginGrad(b.grad, b.saved(0), b.saved(1))) }))
}

// softMarginGrad is soft_margin_loss_backward.
func softMarginGrad(grad, x, target *Tensor) *Tensor {
	c := grad.tape.begin("soft_margin_loss_backward", grad, x, target)
	g := x.emptyLike(x.dtype)
	c.let(g)
	z := c.let(target.Neg().Mul(x).Exp())
	c.t.launchElementwise(g, 4, target, z, grad)
	return c.end(g)
}

// MultiMarginLoss is torch.nn.functional.multi_margin_loss(x, target) of x [samples, classes]
// or [classes].
func (x *Tensor) MultiMarginLoss(target, weight *Tensor, r Reduction) *Tensor {
	return x.classMargin("multi_margin_loss", "MultiMarginLossBackward0", target, weight, nil, r)
}

// MultiLabelMarginLoss is torch.nn.functional.multilabel_margin_loss(x, target), of which
// it keeps a mask of the targets.
func (x *Tensor) MultiLabelMarginLoss(target *Tensor, r Reduction) *Tensor {
	return x.classMargin("multilabel_margin_loss", "MultilabelMarginLossBackward0", target, nil, target, r)
}

// classMargin is a loss whose kernel gives one number a sample, summed where one is wanted.
func (x *Tensor) classMargin(op, node string, target, weight, masked *Tensor, r Reduction) *Tensor {
	t := x.tape
	c := t.begin(op, x, target, weight)
	samples := []int64{}
	if len(x.shape) > 1 {
		samples = x.shape[:1]
	}
	in, at := c.let(x.contiguousUntracked()), c.let(target.contiguousUntracked())
	each := c.let(t.empty(x.dtype, samples...))
	var isTarget *Tensor
	if masked != nil {
		isTarget = c.let(t.empty(x.dtype, target.shape...))
	}
	writes := []*Tensor{each}
	if isTarget != nil {
		writes = append(writes, isTarget)
	}
	t.launch(program.Reduction, x.numel, writes, []*Tensor{in, at, weight})
	y := each
	if r != ReduceNone && len(samples) > 0 {
		t.NoGrad(func() { y = c.let(each.Sum(false)) })
	}
	return c.end(y.derived(node, inputs{x}, saves{x, target, weight, isTarget}, func(b *backward) {
		c := t.begin(op+"_backward", b.grad, b.saved(0), b.saved(1))
		in := c.let(b.saved(0).contiguousUntracked())
		g := c.let(t.empty(in.dtype, in.shape...))
		t.launchElementwise(g, 2, in, b.saved(1), b.grad)
		b.give(0, c.end(g))
	}))
}

// HingeEmbeddingLoss is torch.nn.functional.hinge_embedding_loss(x, target), made of
// other operators.
func (x *Tensor) HingeEmbeddingLoss(target *Tensor, r Reduction) *Tensor {
	c := x.tape.begin("hinge_embedding_loss", x, target)
	zeros := c.let(x.ZerosLike())
	gap := c.let(x.RSubScalar())
	margin := c.let(gap.ClampMinInPlace())
	apart := c.let(Where(target.compareScalar("eq"), zeros, margin))
	near := c.let(Where(target.compareScalar("eq"), zeros, x))
	return c.end(c.let(apart.Add(near)).reduceLoss(r))
}

// PoissonNLLLoss is torch.nn.functional.poisson_nll_loss(x, target); logs says that x is
// the logarithm of the expected count, full adds Stirling's approximation.
func (x *Tensor) PoissonNLLLoss(target *Tensor, logs, full bool, r Reduction) *Tensor {
	c := x.tape.begin("poisson_nll_loss", x, target)
	var loss *Tensor
	if logs {
		rate := x.Exp()
		loss = c.let(rate.Sub(target.Mul(x)))
	} else {
		likelihood := x.AddScalar().Log()
		loss = c.let(x.Sub(target.Mul(likelihood)))
	}
	if full {
		entropy := target.Mul(target.Log()).Sub(target)
		correction := target.MulScalar().Log().MulScalar()
		stirling := c.let(entropy.Add(correction))
		loss.AddInPlace(stirling.MaskedFill(target.compareScalar("le")))
	}
	return c.end(loss.reduceLoss(r))
}

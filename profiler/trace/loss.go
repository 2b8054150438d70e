package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Reduction is how a loss combines the losses of the elements: mean, sum, or not at all.
type Reduction uint8

// The reductions of torch.nn.functional.
const (
	ReduceMean Reduction = iota
	ReduceSum
	ReduceNone
)

// reduceLoss records apply_loss_reduction.
func (x *Tensor) reduceLoss(r Reduction) *Tensor {
	switch r {
	case ReduceMean:
		return x.Mean(false)
	case ReduceSum:
		return x.Sum(false)
	default:
		return x
	}
}

// CrossEntropyArgs are the options of a cross entropy.
type CrossEntropyArgs struct {
	Weight         *Tensor // of each class, or nil
	LabelSmoothing float64
	Reduction      Reduction
}

// CrossEntropy records torch.nn.functional.cross_entropy(x, target) with its
// default options.
func (x *Tensor) CrossEntropy(target *Tensor) *Tensor {
	return x.CrossEntropyWith(target, CrossEntropyArgs{})
}

// CrossEntropyWith records torch.nn.functional.cross_entropy with options. The
// target holds class indices, or probabilities in the shape of x. Inside, the
// log-softmax stays in the type of x even under autocast.
func (x *Tensor) CrossEntropyWith(target *Tensor, a CrossEntropyArgs) *Tensor {
	c := x.tape.begin("cross_entropy_loss", x, target, a.Weight)
	switch {
	case target.dtype.IsFloat():
		return c.end(x.crossEntropyOfProbabilities(target, a))
	case a.LabelSmoothing > 0:
		return c.end(x.smoothedCrossEntropy(target, a))
	default:
		return c.end(x.softmax(&opLogSoftmax, x.dtype).NLLLoss(target, a.Weight, a.Reduction))
	}
}

// crossEntropyOfProbabilities records cross_entropy_loss_prob_target.
func (x *Tensor) crossEntropyOfProbabilities(target *Tensor, a CrossEntropyArgs) *Tensor {
	c := x.tape.begin("cross_entropy_loss_prob_target", x, target, a.Weight)
	logp := c.let(x.softmax(&opLogSoftmax, x.dtype))
	if a.LabelSmoothing > 0 {
		target = c.let(target.MulScalar().AddScalar())
	}
	product := logp.Mul(target)
	if a.Weight != nil {
		product = product.Mul(a.Weight.alongClasses(x))
	}
	switch a.Reduction {
	case ReduceMean:
		return c.end(product.Sum(false).Neg().DivScalar())
	case ReduceSum:
		return c.end(product.Sum(false).Neg())
	default:
		return c.end(product.Sum(false, x.classDim()).Neg())
	}
}

// smoothedCrossEntropy records cross_entropy_loss_label_smoothing.
func (x *Tensor) smoothedCrossEntropy(target *Tensor, a CrossEntropyArgs) *Tensor {
	c := x.tape.begin("cross_entropy_loss_label_smoothing", x, target, a.Weight)
	logp := c.let(x.softmax(&opLogSoftmax, x.dtype))
	nll := c.let(logp.NLLLoss(target, a.Weight, a.Reduction))
	weighted := logp
	if a.Weight != nil {
		weighted = logp.Mul(a.Weight.alongClasses(x))
	}
	smooth := c.let(weighted.Sum(false, x.classDim()).Neg())
	ignored := c.let(target.compareScalar("eq"))
	smooth.MaskedFillInPlace(ignored)
	c.statement()
	if a.Reduction != ReduceNone {
		smooth = c.let(smooth.smoothMean(target, ignored, a))
	}
	right := smooth.MulScalar()
	return c.end(nll.MulScalar().Add(right))
}

// smoothMean reduces the smooth part of the loss over what is not ignored.
func (smooth *Tensor) smoothMean(target, ignored *Tensor, a CrossEntropyArgs) *Tensor {
	c := smooth.tape.begin("cross_entropy_loss_label_smoothing", smooth, target, ignored, a.Weight)
	if a.Reduction == ReduceSum {
		return c.end(smooth.Sum(false))
	}
	var count *Tensor
	if a.Weight != nil {
		count = a.Weight.pick(target.MaskedFill(ignored)).Sum(false)
	} else {
		counted := c.let(ignored.compareScalar("logical_not"))
		count = counted.Sum(false)
	}
	return c.end(smooth.Sum(false).Div(count))
}

// pick records x.gather(0, index) without autograd.
func (x *Tensor) pick(index *Tensor) *Tensor {
	c := x.tape.begin("gather", x, index)
	return c.end(c.gathered(x, index, index.numel))
}

// classDim returns the dimension of x that holds the classes.
func (x *Tensor) classDim() int { return min(1, x.NDim()-1) }

// alongClasses views a weight per class in the broadcasting shape of x.
func (w *Tensor) alongClasses(x *Tensor) *Tensor {
	shape := slices.Repeat([]int64{1}, x.NDim())
	shape[x.classDim()] = w.numel
	return w.View(shape...)
}

// NLLLoss records torch.nn.functional.nll_loss; the weight may be nil. It allocates the loss and the total weight; the
// spatial variant does it the other way round.
func (x *Tensor) NLLLoss(target, weight *Tensor, r Reduction) *Tensor {
	t := x.tape
	c := t.begin("nll_loss_nd", x, target, weight)
	c.full(&x, &weight)
	var shape []int64
	if r == ReduceNone {
		shape = target.shape
	}
	node := "NllLossBackward0"
	var y, total *Tensor
	if x.NDim() > 2 {
		node = "NllLoss2DBackward0"
		total, y = t.empty(x.dtype), t.empty(x.dtype, shape...)
	} else {
		y, total = t.empty(x.dtype, shape...), t.empty(x.dtype)
	}
	t.launch(program.Index, target.numel, []*Tensor{y, total}, []*Tensor{x, target, weight})
	return c.end(y.derived(node, inputs{x}, saves{x, target, total, weight}, func(b *backward) {
		x := b.saved(0)
		c := b.t.begin("nll_loss_backward", b.grad, x)
		g := b.t.empty(x.dtype, x.shape...)
		b.t.launch(program.Index, x.numel, []*Tensor{g}, []*Tensor{b.grad, b.saved(1)})
		b.give(0, c.end(g))
	}))
}

// KLDiv records torch.kl_div(x, target, reduction, log_target): x holds log
// probabilities. Autocast runs it in fp32.
func (x *Tensor) KLDiv(target *Tensor, logTarget bool, r Reduction) *Tensor {
	c := x.tape.begin("kl_div", x, target)
	c.full(&x, &target)
	var y *Tensor
	if logTarget {
		gap := target.Sub(x)
		y = c.let(target.Exp().Mul(gap))
	} else {
		product := target.Mul(x)
		y = c.let(operatorIndex["xlogy"].Call(target, target).Sub(product))
	}
	return c.end(y.reduceLoss(r))
}

// TripletMarginLoss records torch.nn.functional.triplet_margin_loss(anchor,
// positive, negative). Autocast runs it in fp32.
func TripletMarginLoss(anchor, positive, negative *Tensor, r Reduction) *Tensor {
	c := anchor.tape.begin("triplet_margin_loss", anchor, positive, negative)
	c.full(&anchor, &positive, &negative)
	near := c.let(anchor.PairwiseDistance(positive, 2))
	far := c.let(anchor.PairwiseDistance(negative, 2))
	loss := c.let(near.AddScalar().Sub(far).ClampMin())
	return c.end(loss.reduceLoss(r))
}

// PairwiseDistance records torch.nn.functional.pairwise_distance(x, y).
func (x *Tensor) PairwiseDistance(y *Tensor, p float64) *Tensor {
	c := x.tape.begin("pairwise_distance", x, y)
	return c.end(x.Sub(y).AddScalar().Norm(p, false, -1))
}

// CosineSimilarity records torch.nn.functional.cosine_similarity(x, y, dim).
// Autocast runs it in fp32.
func (x *Tensor) CosineSimilarity(y *Tensor, dim int) *Tensor {
	c := x.tape.begin("cosine_similarity", x, y)
	c.full(&x, &y)
	shape := broadcast(x, y)
	y = c.let(y.Expand(shape...))
	x = c.let(x.Expand(shape...))
	nx := c.let(x.Norm(2, true, dim).Clone())
	ny := c.let(y.Norm(2, true, dim).Clone())
	// Both norms are raised to a least one, in place.
	c.t.launchElementwise(nx, 1, nx)
	c.t.launchElementwise(ny, 1, ny)
	c.let(c.t.scalarTensor(F32))
	unit := y.Div(ny)
	return c.end(x.Div(nx).Mul(unit).Sum(false, dim))
}

// CosineEmbeddingLoss records torch.nn.functional.cosine_embedding_loss(x, y,
// target). Autocast runs it in fp32.
func (x *Tensor) CosineEmbeddingLoss(y, target *Tensor, r Reduction) *Tensor {
	c := x.tape.begin("cosine_embedding_loss", x, y, target)
	c.full(&x, &y)
	dot := c.let(x.Mul(y).Sum(false, -1))
	xx := c.let(x.Mul(x).Sum(false, -1).AddScalar())
	yy := c.let(y.Mul(y).Sum(false, -1).AddScalar())
	norm := c.let(operatorIndex["sqrt"].CallInPlace(xx.Mul(yy)))
	cosine := c.let(dot.Div(norm))
	zeros := c.let(cosine.ZerosLike())
	apart := c.let(cosine.RSubScalar())
	alike := c.let(cosine.AddScalar().ClampMinInPlace())
	apart = c.let(Where(target.compareScalar("eq"), apart, zeros))
	alike = c.let(Where(target.compareScalar("eq"), alike, zeros))
	loss := c.let(apart.Add(alike))
	return c.end(loss.reduceLoss(r))
}

// MarginRankingLoss records torch.nn.functional.margin_ranking_loss(x, y, target).
func MarginRankingLoss(x, y, target *Tensor, r Reduction) *Tensor {
	c := x.tape.begin("margin_ranking_loss", x, y, target)
	gap := x.Sub(y)
	minus := target.Neg()
	loss := c.let(minus.Mul(gap).AddScalarInPlace().ClampMin())
	return c.end(loss.reduceLoss(r))
}

// SoftMarginLoss records torch.nn.functional.soft_margin_loss(x, target): log(1 + exp(-target * x)),
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

// softMarginGrad records soft_margin_loss_backward.
func softMarginGrad(grad, x, target *Tensor) *Tensor {
	c := grad.tape.begin("soft_margin_loss_backward", grad, x, target)
	g := x.emptyLike(x.dtype)
	c.let(g)
	z := c.let(target.Neg().Mul(x).Exp())
	c.t.launchElementwise(g, 4, target, z, grad)
	return c.end(g)
}

// MultiMarginLoss records torch.nn.functional.multi_margin_loss(x, target) of x [samples, classes]
// or [classes].
func (x *Tensor) MultiMarginLoss(target, weight *Tensor, r Reduction) *Tensor {
	return x.classMargin("multi_margin_loss", "MultiMarginLossBackward0", target, weight, nil, r)
}

// MultiLabelMarginLoss records torch.nn.functional.multilabel_margin_loss(x, target), of which
// it keeps a mask of the targets.
func (x *Tensor) MultiLabelMarginLoss(target *Tensor, r Reduction) *Tensor {
	return x.classMargin("multilabel_margin_loss", "MultilabelMarginLossBackward0", target, nil, target, r)
}

// classMargin returns a loss whose kernel gives one number a sample, summed where one is wanted.
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

// HingeEmbeddingLoss records torch.nn.functional.hinge_embedding_loss(x, target), made of
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

// PoissonNLLLoss records torch.nn.functional.poisson_nll_loss(x, target); logs says that x is
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

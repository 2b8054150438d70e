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

// CrossEntropyArgs are the options of torch.nn.functional.cross_entropy.
type CrossEntropyArgs struct {
	Weight         *Tensor // of each class, or nil
	LabelSmoothing float64
	Reduction      Reduction
}

// CrossEntropy records torch.nn.functional.cross_entropy(x, target) with its default options.
func (x *Tensor) CrossEntropy(target *Tensor) *Tensor {
	return x.CrossEntropyWith(target, CrossEntropyArgs{})
}

// CrossEntropyWith records torch.nn.functional.cross_entropy with options. The target holds class indices, or
// probabilities in the shape of x. The log-softmax inside stays in the type of x even under autocast.
func (x *Tensor) CrossEntropyWith(target *Tensor, a CrossEntropyArgs) *Tensor {
	c := x.tape.Begin("cross_entropy_loss", x, target, a.Weight)
	switch {
	case target.dtype.IsFloat():
		return c.End(x.crossEntropyOfProbabilities(target, a))
	case a.LabelSmoothing > 0:
		return c.End(x.smoothedCrossEntropy(target, a))
	default:
		return c.End(x.softmax(&opLogSoftmax, x.dtype).NLLLoss(target, a.Weight, a.Reduction))
	}
}

// crossEntropyOfProbabilities records cross_entropy_loss_prob_target.
func (x *Tensor) crossEntropyOfProbabilities(target *Tensor, a CrossEntropyArgs) *Tensor {
	c := x.tape.Begin("cross_entropy_loss_prob_target", x, target, a.Weight)
	logp := c.Bind(x.softmax(&opLogSoftmax, x.dtype))
	if a.LabelSmoothing > 0 {
		target = c.Bind(target.MulScalar().AddScalar())
	}
	product := logp.Mul(target)
	if a.Weight != nil {
		product = product.Mul(a.Weight.alongClasses(x))
	}
	switch a.Reduction {
	case ReduceMean:
		return c.End(product.Sum(false).Neg().DivScalar())
	case ReduceSum:
		return c.End(product.Sum(false).Neg())
	default:
		return c.End(product.Sum(false, x.classDim()).Neg())
	}
}

// smoothedCrossEntropy records cross_entropy_loss_label_smoothing.
func (x *Tensor) smoothedCrossEntropy(target *Tensor, a CrossEntropyArgs) *Tensor {
	c := x.tape.Begin("cross_entropy_loss_label_smoothing", x, target, a.Weight)
	logp := c.Bind(x.softmax(&opLogSoftmax, x.dtype))
	nll := c.Bind(logp.NLLLoss(target, a.Weight, a.Reduction))
	weighted := logp
	if a.Weight != nil {
		weighted = logp.Mul(a.Weight.alongClasses(x))
	}
	smooth := c.Bind(weighted.Sum(false, x.classDim()).Neg())
	ignored := c.Bind(target.CompareScalar("eq"))
	smooth.MaskedFillInPlace(ignored)
	c.EndStatement()
	if a.Reduction != ReduceNone {
		smooth = c.Bind(smooth.reduceSmoothLoss(target, ignored, a))
	}
	right := smooth.MulScalar()
	return c.End(nll.MulScalar().Add(right))
}

// reduceSmoothLoss reduces the label smoothing part of the loss over the classes that are not ignored.
func (smooth *Tensor) reduceSmoothLoss(target, ignored *Tensor, a CrossEntropyArgs) *Tensor {
	c := smooth.tape.Begin("cross_entropy_loss_label_smoothing", smooth, target, ignored, a.Weight)
	if a.Reduction == ReduceSum {
		return c.End(smooth.Sum(false))
	}
	var count *Tensor
	if a.Weight != nil {
		count = a.Weight.gatherRows(target.MaskedFill(ignored)).Sum(false)
	} else {
		counted := c.Bind(ignored.CompareScalar("logical_not"))
		count = counted.Sum(false)
	}
	return c.End(smooth.Sum(false).Div(count))
}

// gatherRows records x.gather(0, index) without autograd.
func (x *Tensor) gatherRows(index *Tensor) *Tensor {
	c := x.tape.Begin("gather", x, index)
	return c.End(c.gathered(x, index, index.numel))
}

// classDim returns the dimension of x that holds the classes.
func (x *Tensor) classDim() int { return min(1, x.NDim()-1) }

// alongClasses records a view of a weight per class that broadcasts with x.
func (w *Tensor) alongClasses(x *Tensor) *Tensor {
	shape := slices.Repeat([]int64{1}, x.NDim())
	shape[x.classDim()] = w.numel
	return w.View(shape...)
}

// NLLLoss records torch.nn.functional.nll_loss; the weight may be nil. It allocates the loss and then the total weight;
// the spatial variant allocates the total weight first.
func (x *Tensor) NLLLoss(target, weight *Tensor, r Reduction) *Tensor {
	t := x.tape
	c := t.Begin("nll_loss_nd", x, target, weight)
	c.CastToFP32(&x, &weight)
	var shape []int64
	if r == ReduceNone {
		shape = target.shape
	}
	node := "NllLossBackward0"
	var y, total *Tensor
	if x.NDim() > 2 {
		node = "NllLoss2DBackward0"
		total, y = t.Alloc(x.dtype), t.Alloc(x.dtype, shape...)
	} else {
		y, total = t.Alloc(x.dtype, shape...), t.Alloc(x.dtype)
	}
	t.Launch(program.Index, target.numel, []*Tensor{y, total}, []*Tensor{x, target, weight})
	return c.End(y.SetGradFn(node, inputs{x}, saves{x, target, total, weight}, func(b *Gradients) {
		x := b.Saved(0)
		c := b.t.Begin("nll_loss_backward", b.Grad, x)
		g := b.t.Alloc(x.dtype, x.shape...)
		b.t.Launch(program.Index, x.numel, []*Tensor{g}, []*Tensor{b.Grad, b.Saved(1)})
		b.Set(0, c.End(g))
	}))
}

// KLDiv records torch.kl_div(x, target, reduction, log_target): x holds log probabilities. Autocast runs it in fp32.
func (x *Tensor) KLDiv(target *Tensor, logTarget bool, r Reduction) *Tensor {
	c := x.tape.Begin("kl_div", x, target)
	c.CastToFP32(&x, &target)
	var y *Tensor
	if logTarget {
		gap := target.Sub(x)
		y = c.Bind(target.Exp().Mul(gap))
	} else {
		product := target.Mul(x)
		y = c.Bind(operatorIndex["xlogy"].Call(target, target).Sub(product))
	}
	return c.End(y.reduceLoss(r))
}

// TripletMarginLoss records torch.nn.functional.triplet_margin_loss(anchor,
// positive, negative). Autocast runs it in fp32.
func TripletMarginLoss(anchor, positive, negative *Tensor, r Reduction) *Tensor {
	c := anchor.tape.Begin("triplet_margin_loss", anchor, positive, negative)
	c.CastToFP32(&anchor, &positive, &negative)
	near := c.Bind(anchor.PairwiseDistance(positive, 2))
	far := c.Bind(anchor.PairwiseDistance(negative, 2))
	loss := c.Bind(near.AddScalar().Sub(far).ClampMin())
	return c.End(loss.reduceLoss(r))
}

// PairwiseDistance records torch.nn.functional.pairwise_distance(x, y).
func (x *Tensor) PairwiseDistance(y *Tensor, p float64) *Tensor {
	c := x.tape.Begin("pairwise_distance", x, y)
	return c.End(x.Sub(y).AddScalar().Norm(p, false, -1))
}

// CosineSimilarity records torch.nn.functional.cosine_similarity(x, y, dim). Autocast runs it in fp32.
func (x *Tensor) CosineSimilarity(y *Tensor, dim int) *Tensor {
	c := x.tape.Begin("cosine_similarity", x, y)
	c.CastToFP32(&x, &y)
	shape := broadcast(x, y)
	y = c.Bind(y.Expand(shape...))
	x = c.Bind(x.Expand(shape...))
	nx := c.Bind(x.Norm(2, true, dim).Clone())
	ny := c.Bind(y.Norm(2, true, dim).Clone())
	// Both norms are clamped to a minimum, in place.
	c.t.LaunchElementwise(nx, 1, nx)
	c.t.LaunchElementwise(ny, 1, ny)
	c.Bind(c.t.ScalarTensor(F32))
	unit := y.Div(ny)
	return c.End(x.Div(nx).Mul(unit).Sum(false, dim))
}

// CosineEmbeddingLoss records torch.nn.functional.cosine_embedding_loss(x, y, target). Autocast runs it in fp32.
func (x *Tensor) CosineEmbeddingLoss(y, target *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin("cosine_embedding_loss", x, y, target)
	c.CastToFP32(&x, &y)
	dot := c.Bind(x.Mul(y).Sum(false, -1))
	xx := c.Bind(x.Mul(x).Sum(false, -1).AddScalar())
	yy := c.Bind(y.Mul(y).Sum(false, -1).AddScalar())
	norm := c.Bind(operatorIndex["sqrt"].CallInPlace(xx.Mul(yy)))
	cosine := c.Bind(dot.Div(norm))
	zeros := c.Bind(cosine.ZerosLike())
	apart := c.Bind(cosine.RSubScalar())
	alike := c.Bind(cosine.AddScalar().ClampMinInPlace())
	apart = c.Bind(Where(target.CompareScalar("eq"), apart, zeros))
	alike = c.Bind(Where(target.CompareScalar("eq"), alike, zeros))
	loss := c.Bind(apart.Add(alike))
	return c.End(loss.reduceLoss(r))
}

// MarginRankingLoss records torch.nn.functional.margin_ranking_loss(x, y, target).
func MarginRankingLoss(x, y, target *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin("margin_ranking_loss", x, y, target)
	gap := x.Sub(y)
	minus := target.Neg()
	loss := c.Bind(minus.Mul(gap).AddScalarInPlace().ClampMin())
	return c.End(loss.reduceLoss(r))
}

// SoftMarginLoss records torch.nn.functional.soft_margin_loss(x, target): log(1 + exp(-target * x)), computed in place
// in -x, which is then resized to the result.
func (x *Tensor) SoftMarginLoss(target *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin("soft_margin_loss", x, target)
	y := c.Bind(c.t.Map("neg", x.dtype, 1, x))
	c.t.LaunchElementwise(y, 2*transcendentalFLOPs, y, target)
	if r != ReduceNone {
		var z *Tensor
		c.t.NoGrad(func() { z = c.Bind(y.reduceLoss(r)) })
		c.t.LaunchCopy(y.FirstElements(1), z)
		y = c.Bind(y.Alias(nil, nil, 0))
	}
	return c.End(y.SetGradFn("SoftMarginLossBackward0", inputs{x, target}, saves{x, target},
		func(b *Gradients) { b.Set(0, softMarginGrad(b.Grad, b.Saved(0), b.Saved(1))) }))
}

// softMarginGrad records soft_margin_loss_backward.
func softMarginGrad(grad, x, target *Tensor) *Tensor {
	c := grad.tape.Begin("soft_margin_loss_backward", grad, x, target)
	g := x.AllocLike(x.dtype)
	c.Bind(g)
	z := c.Bind(target.Neg().Mul(x).Exp())
	c.t.LaunchElementwise(g, 4, target, z, grad)
	return c.End(g)
}

// MultiMarginLoss records torch.nn.functional.multi_margin_loss(x, target) of x [samples, classes] or [classes].
func (x *Tensor) MultiMarginLoss(target, weight *Tensor, r Reduction) *Tensor {
	return x.marginLossBySample("multi_margin_loss", "MultiMarginLossBackward0", target, weight, nil, r)
}

// MultiLabelMarginLoss records torch.nn.functional.multilabel_margin_loss(x, target), which saves a target mask.
func (x *Tensor) MultiLabelMarginLoss(target *Tensor, r Reduction) *Tensor {
	return x.marginLossBySample("multilabel_margin_loss", "MultilabelMarginLossBackward0", target, nil, target, r)
}

// marginLossBySample records a loss whose kernel computes one number per sample, and their sum if r is a reduction.
func (x *Tensor) marginLossBySample(op, node string, target, weight, masked *Tensor, r Reduction) *Tensor {
	t := x.tape
	c := t.Begin(op, x, target, weight)
	samples := []int64{}
	if len(x.shape) > 1 {
		samples = x.shape[:1]
	}
	in, at := c.Bind(x.ContiguousUntracked()), c.Bind(target.ContiguousUntracked())
	each := c.Bind(t.Alloc(x.dtype, samples...))
	var isTarget *Tensor
	if masked != nil {
		isTarget = c.Bind(t.Alloc(x.dtype, target.shape...))
	}
	writes := []*Tensor{each}
	if isTarget != nil {
		writes = append(writes, isTarget)
	}
	t.Launch(program.Reduction, x.numel, writes, []*Tensor{in, at, weight})
	y := each
	if r != ReduceNone && len(samples) > 0 {
		t.NoGrad(func() { y = c.Bind(each.Sum(false)) })
	}
	return c.End(y.SetGradFn(node, inputs{x}, saves{x, target, weight, isTarget}, func(b *Gradients) {
		c := t.Begin(op+"_backward", b.Grad, b.Saved(0), b.Saved(1))
		in := c.Bind(b.Saved(0).ContiguousUntracked())
		g := c.Bind(t.Alloc(in.dtype, in.shape...))
		t.LaunchElementwise(g, 2, in, b.Saved(1), b.Grad)
		b.Set(0, c.End(g))
	}))
}

// HingeEmbeddingLoss records torch.nn.functional.hinge_embedding_loss(x, target), which consists of other operators.
func (x *Tensor) HingeEmbeddingLoss(target *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin("hinge_embedding_loss", x, target)
	zeros := c.Bind(x.ZerosLike())
	gap := c.Bind(x.RSubScalar())
	margin := c.Bind(gap.ClampMinInPlace())
	apart := c.Bind(Where(target.CompareScalar("eq"), zeros, margin))
	near := c.Bind(Where(target.CompareScalar("eq"), zeros, x))
	return c.End(c.Bind(apart.Add(near)).reduceLoss(r))
}

// PoissonNLLLoss records torch.nn.functional.poisson_nll_loss(x, target). logs is log_input: x is the logarithm of the
// expected count. full adds Stirling's approximation.
func (x *Tensor) PoissonNLLLoss(target *Tensor, logs, full bool, r Reduction) *Tensor {
	c := x.tape.Begin("poisson_nll_loss", x, target)
	var loss *Tensor
	if logs {
		rate := x.Exp()
		loss = c.Bind(rate.Sub(target.Mul(x)))
	} else {
		likelihood := x.AddScalar().Log()
		loss = c.Bind(x.Sub(target.Mul(likelihood)))
	}
	if full {
		entropy := target.Mul(target.Log()).Sub(target)
		correction := target.MulScalar().Log().MulScalar()
		stirling := c.Bind(entropy.Add(correction))
		loss.AddInPlace(stirling.MaskedFill(target.CompareScalar("le")))
	}
	return c.End(loss.reduceLoss(r))
}

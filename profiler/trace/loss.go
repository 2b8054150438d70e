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

// reduceLoss is apply_loss_reduction.
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

// CrossEntropy is torch.nn.functional.cross_entropy(x, target) with its
// default options.
func (x *Tensor) CrossEntropy(target *Tensor) *Tensor {
	return x.CrossEntropyWith(target, CrossEntropyArgs{})
}

// CrossEntropyWith is torch.nn.functional.cross_entropy with options. The
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
		return c.end(x.softmax(&opLogSoftmax, x.dtype).nllLoss(target, a.Weight, a.Reduction))
	}
}

// crossEntropyOfProbabilities is cross_entropy_loss_prob_target.
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

// smoothedCrossEntropy is cross_entropy_loss_label_smoothing.
func (x *Tensor) smoothedCrossEntropy(target *Tensor, a CrossEntropyArgs) *Tensor {
	c := x.tape.begin("cross_entropy_loss_label_smoothing", x, target, a.Weight)
	logp := c.let(x.softmax(&opLogSoftmax, x.dtype))
	nll := c.let(logp.nllLoss(target, a.Weight, a.Reduction))
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

// pick is x.gather(0, index) without autograd.
func (x *Tensor) pick(index *Tensor) *Tensor {
	c := x.tape.begin("gather", x, index)
	return c.end(c.gathered(x, index, index.numel))
}

// classDim is the dimension of x that holds the classes.
func (x *Tensor) classDim() int { return min(1, x.NDim()-1) }

// alongClasses views a weight per class in the broadcasting shape of x.
func (w *Tensor) alongClasses(x *Tensor) *Tensor {
	shape := slices.Repeat([]int64{1}, x.NDim())
	shape[x.classDim()] = w.numel
	return w.View(shape...)
}

// NLLLossWith is nll_loss with options; the weight may be nil.
func (x *Tensor) NLLLossWith(target, weight *Tensor, r Reduction) *Tensor {
	return x.nllLoss(target, weight, r)
}

// nllLoss allocates the loss and the total weight; the spatial variant does it
// the other way round.
func (x *Tensor) nllLoss(target, weight *Tensor, r Reduction) *Tensor {
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

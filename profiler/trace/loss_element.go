package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// BroadcastTensors records torch.broadcast_tensors(x, y).
func BroadcastTensors(x, y *Tensor) (*Tensor, *Tensor) {
	shape := broadcast(x, y)
	return x.Expand(shape...), y.Expand(shape...)
}

// elementLoss describes an elementwise loss of two tensors with equal shapes.
type elementLoss struct {
	op, node string
	// structured reports whether the loss allocates its result in the full shape and then reduces a second tensor into
	// it, so that the scalar keeps a full-size storage.
	structured bool
	flops      int64
}

var elementLosses = map[string]*elementLoss{
	"mse_loss":       {op: "mse_loss", node: "MseLossBackward0", structured: true, flops: 2},
	"smooth_l1_loss": {op: "smooth_l1_loss", node: "SmoothL1LossBackward0", structured: true, flops: 5},
	"huber_loss":     {op: "huber_loss", node: "HuberLossBackward0", flops: 5},
}

// MSELoss records torch.nn.functional.mse_loss(x, y).
func (x *Tensor) MSELoss(y *Tensor, r Reduction) *Tensor { return x.ElementLoss("mse_loss", y, r) }

// ElementLoss records a function of torch.nn.functional that broadcasts its inputs and calls an elementwise loss:
// "mse_loss", "smooth_l1_loss" or "huber_loss".
func (x *Tensor) ElementLoss(op string, y *Tensor, r Reduction) *Tensor {
	l := elementLosses[op]
	f := x.tape.functionFrame(x, y)
	ex, ey := BroadcastTensors(x, y)
	f.BindEach(ex, ey)
	z := ex.pairLoss(l, ey, r)
	return f.Return(z)
}

// pairLoss records the operator of an elementwise loss. Autocast runs it in fp32.
func (x *Tensor) pairLoss(l *elementLoss, y *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin(l.op, x, y)
	c.CastToFP32(&x, &y)
	z := c.Bind(l.forward(x, y, r))
	return c.End(z.SetGradFn(l.node, inputs{x, y}, saves{x, y}, func(b *Gradients) {
		for i := range b.Out {
			if b.Needs(i) {
				b.Set(i, l.gradient(b.Grad, b.Saved(i), b.Saved(1-i)))
			}
		}
	}))
}

func (l *elementLoss) forward(x, y *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin(l.op, x, y)
	c.WithoutGrad()
	z := c.Bind(c.t.elementwise(resultType(x, y), x, y))
	if l.structured && r != ReduceNone {
		loss := c.Bind(c.t.elementwise(resultType(x, y), x, y))
		c.t.LaunchElementwise(loss, l.flops, x, y)
		loss.reduceInto(z, x.dtype.accumulate().Size())
		z = z.Alias(nil, nil, 0)
	} else {
		c.t.LaunchElementwise(z, l.flops, x, y)
		z = z.reduceLoss(r)
	}
	return c.End(z)
}

// gradient records the backward kernel, which fills zeros_like(x).
func (l *elementLoss) gradient(grad, x, y *Tensor) *Tensor {
	c := x.tape.Begin(l.op+"_backward", grad, x, y)
	g := c.t.Alloc(x.dtype, x.shape...)
	c.t.LaunchElementwise(g, l.flops+1, grad, x, y)
	return c.End(g)
}

// reduceInto records the reduction of all elements into y, with an accumulator of the given size.
func (x *Tensor) reduceInto(y *Tensor, accSize int64) {
	c := x.tape.Begin("reduce", x, y)
	x.reduceScratch(c, slices.Repeat([]bool{true}, x.NDim()), y.dtype.Size(), accSize, 4)
	c.t.Launch(program.Reduction, x.numel, []*Tensor{y}, []*Tensor{x})
	c.Finish()
}

// L1Loss records torch.nn.functional.l1_loss(x, y): (x - y).abs(), reduced. Autocast runs it in fp32.
func (x *Tensor) L1Loss(y *Tensor, r Reduction) *Tensor {
	f := x.tape.functionFrame(x, y)
	ex, ey := BroadcastTensors(x, y)
	f.BindEach(ex, ey)
	c := x.tape.Begin("l1_loss", ex, ey)
	c.CastToFP32(&ex, &ey)
	z := c.End(ex.Sub(ey).Abs().reduceLoss(r))
	return f.Return(z)
}

// BCELoss records torch.nn.functional.binary_cross_entropy(x, target) of probabilities x, which autocast refuses.
func (x *Tensor) BCELoss(target *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin("binary_cross_entropy", x, target)
	loss := x.AllocLike(x.dtype)
	c.t.LaunchElementwise(loss, 20, x, target)
	if r != ReduceNone {
		// The reduced loss is copied into the result of full size.
		c.Bind(loss)
		c.Bind(loss.reduceLoss(r))
		loss = loss.Alias(nil, nil, 0)
	}
	return c.End(loss.SetGradFn("BinaryCrossEntropyBackward0", inputs{x, target}, saves{x, target},
		func(b *Gradients) { bceBackward(b, b.Saved(0), b.Saved(1)) }))
}

// bceBackward records binary_cross_entropy_backward and the gradient of the target.
func bceBackward(b *Gradients, x, target *Tensor) {
	if b.Needs(0) {
		b.Set(0, callBackwardKernel("binary_cross_entropy_backward", x, target))
	}
	if b.Needs(1) {
		g := operatorIndex["log"].CallInPlace(x.RSubScalar())
		b.Set(1, g.SubInPlace(x.Log()).MulInPlace(b.Grad))
	}
}

// BCEWithLogits records torch.nn.functional.binary_cross_entropy_with_logits(x, target, pos_weight=posWeight);
// posWeight may be nil. Autocast runs it in fp32.
func (x *Tensor) BCEWithLogits(target, posWeight *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin("binary_cross_entropy_with_logits", x, target, posWeight)
	c.CastToFP32(&x, &target, &posWeight)
	y := c.Bind(bceWithLogits(x, target, posWeight, r))
	return c.End(y.SetGradFn("BinaryCrossEntropyWithLogitsBackward0", inputs{x, target}, saves{posWeight, x, target},
		func(b *Gradients) {
			posWeight, x, target := b.Saved(0), b.Saved(1), b.Saved(2)
			if b.Needs(0) {
				b.Set(0, bceWithLogitsGrad(b.Grad, x, target, posWeight, r))
			}
			if b.Needs(1) {
				b.Set(1, bceWithLogitsTargetGrad(b.Grad, x, posWeight, r))
			}
		}))
}

func bceWithLogits(x, target, posWeight *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin("binary_cross_entropy_with_logits", x, target, posWeight)
	c.WithoutGrad()
	logSigmoid := c.Bind(x.LogSigmoid())
	if posWeight != nil {
		weight := c.Bind(posWeight.AddScalar().Mul(target).AddScalarInPlace())
		logSigmoid.MulInPlace(weight)
	}
	loss := c.Bind(target.RSubScalar().MulInPlace(x).SubInPlace(logSigmoid))
	y := loss.reduceLoss(r)
	return c.End(y)
}

// bceWithLogitsGrad records binary_cross_entropy_with_logits_backward.
func bceWithLogitsGrad(grad, x, target, posWeight *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin("binary_cross_entropy_with_logits_backward", grad, x, target)
	var g *Tensor
	if posWeight == nil {
		g = c.Bind(x.Sigmoid().SubInPlace(target))
	} else {
		weighted := c.Bind(posWeight.Mul(target))
		g = weighted.AddScalar().SubInPlace(target)
		g = c.Bind(g.MulInPlace(x.Sigmoid()).SubInPlace(weighted))
	}
	g.MulInPlace(grad)
	if r == ReduceMean {
		g.DivScalarInPlace()
	}
	return c.End(g)
}

// bceWithLogitsTargetGrad records binary_cross_entropy_with_logits_target_backward.
func bceWithLogitsTargetGrad(grad, x, posWeight *Tensor, r Reduction) *Tensor {
	c := x.tape.Begin("binary_cross_entropy_with_logits_target_backward", grad, x, posWeight)
	var g *Tensor
	if posWeight == nil {
		g = c.Bind(x.Neg().Mul(grad))
	} else {
		weighted := x.LogSigmoid().MulInPlace(posWeight)
		g = c.Bind(x.Neg().LogSigmoid().SubInPlace(weighted).MulInPlace(grad))
	}
	if r == ReduceMean {
		g.DivScalarInPlace()
	}
	return c.End(g)
}

package trace

import "github.com/vprof/vprof/profiler/program"

// Var records x.var(dims, keepdim); no dims means all. The correction affects no allocation.
func (x *Tensor) Var(keep bool, dims ...int) *Tensor {
	c := x.tape.Begin("var_dim", x)
	y := x.welford("var_dim", dims, keep)
	return c.End(y.SetGradFn("VarBackward0", inputs{x}, saves{x},
		func(b *Gradients) { b.Set(0, varBackward(b.Grad, b.Saved(0), dims, keep)) }))
}

// Std records x.std(dims, keepdim); no dims means all.
func (x *Tensor) Std(keep bool, dims ...int) *Tensor {
	c := x.tape.Begin("std_dim", x)
	y := x.welford("std_dim", dims, keep)
	return c.End(y.SetGradFn("StdBackward0", inputs{x}, saves{x, y},
		func(b *Gradients) { b.Set(0, stdBackward(b.Grad, b.Saved(1), b.Saved(0), dims, keep)) }))
}

// welford records the kernel of std and var. Its accumulator has two floats and two counts; it reads two values at
// once.
func (x *Tensor) welford(op string, dims []int, keep bool) *Tensor {
	return x.reduce(reduction{op: op, out: x.dtype, accSize: 16, vt0: 2}, dims, keep)
}

func varBackward(grad, self *Tensor, dims []int, keep bool) *Tensor {
	c := grad.tape.Begin("var_backward", grad, self)
	if !keep && self.NDim() > 1 {
		grad = c.Bind(grad.restoreDims(self.NDim(), dims))
	}
	centered := self.Sub(self.Mean(true, dims...))
	return c.End(grad.MulScalar().Mul(centered))
}

func stdBackward(grad, result, self *Tensor, dims []int, keep bool) *Tensor {
	c := grad.tape.Begin("std_backward", grad, result, self)
	quotient := grad.Div(result.MulScalar())
	gradVar := c.Bind(quotient.MaskedFillInPlace(result.CompareScalar("eq_Scalar")))
	return c.End(varBackward(gradVar, self, dims, keep))
}

// VarMean records torch.var_mean(x, dims, keepdim=keepdim).
func (x *Tensor) VarMean(keep bool, dims ...int) (variance, mean *Tensor) {
	return x.spreadAndMean("var_mean_dim", "VarMeanBackward0", keep, dims)
}

// StdMean records torch.std_mean(x, dims, keepdim=keepdim).
func (x *Tensor) StdMean(keep bool, dims ...int) (std, mean *Tensor) {
	return x.spreadAndMean("std_mean_dim", "StdMeanBackward0", keep, dims)
}

func (x *Tensor) spreadAndMean(op, node string, keep bool, dims []int) (spread, mean *Tensor) {
	c := x.tape.Begin(op, x)
	shape, reduced := x.reducedShape(dims, keep)
	spread, mean = c.Bind(c.t.Alloc(x.dtype, shape...)), c.Bind(c.t.Alloc(x.dtype, shape...))
	x.reduceScratch(c, reduced, x.dtype.Size(), 16, 2)
	c.t.Launch(program.Reduction, 4*x.numel, []*Tensor{spread, mean}, []*Tensor{x})
	isStd := node == "StdMeanBackward0"
	c.t.SetGradFn(outputs{spread, mean}, node, inputs{x}, saves{x, tensorIf(isStd, spread)},
		func(b *Gradients) { b.Set(0, spreadAndMeanGrad(b, isStd, keep, dims)) })
	return c.EndPair(spread, mean)
}

// spreadAndMeanGrad records var_mean_backward and std_mean_backward.
func spreadAndMeanGrad(b *Gradients, isStd, keep bool, dims []int) *Tensor {
	self, result := b.Saved(0), b.Saved(1)
	c := b.t.Begin("var_mean_backward", result, self)
	var g *Tensor
	if gs := b.Grads[0]; gs != nil {
		if isStd {
			g = c.Bind(stdBackward(gs, result, self, dims, keep))
		} else {
			g = c.Bind(varBackward(gs, self, dims, keep))
		}
	}
	gm := b.Grads[1]
	if gm == nil {
		return c.End(g)
	}
	aux := c.Bind(gm.expandGradient(self.shape, dims, keep).DivScalar())
	if g == nil {
		return c.End(aux)
	}
	return c.End(c.Set(&g, g.Add(aux)))
}

package trace

import "github.com/vprof/vprof/profiler/program"

// AMax records x.amax(dims, keepdim). Without dims, it is the maximum of all elements.
func (x *Tensor) AMax(keep bool, dims ...int) *Tensor {
	return x.extreme("amax", "AmaxBackward0", keep, dims)
}

// AMin records x.amin(dims, keepdim).
func (x *Tensor) AMin(keep bool, dims ...int) *Tensor {
	return x.extreme("amin", "AminBackward0", keep, dims)
}

func (x *Tensor) extreme(op, node string, keep bool, dims []int) *Tensor {
	c := x.tape.Begin(op, x)
	y := x.reduce(reduction{op: op, out: x.dtype, accSize: x.dtype.Size()}, dims, keep)
	return c.End(y.SetGradFn(node, inputs{x}, saves{x, y},
		func(b *Gradients) { b.Set(0, extremeGrad(b.Grad, b.Saved(1), b.Saved(0), keep, dims)) }))
}

// extremeGrad divides the gradient equally among all elements that equal the result (scale_grad_by_count).
func extremeGrad(grad, result, self *Tensor, keep bool, dims []int) *Tensor {
	c := grad.tape.Begin("scale_grad_by_count", grad, result, self)
	if !keep {
		result, grad = result.restoreDims(self.NDim(), dims), grad.restoreDims(self.NDim(), dims)
	}
	mask := result.compare("eq_Tensor", self)
	share := grad.Div(mask.Sum(true, dims...))
	return c.End(share.Mul(mask))
}

// Max records x.max() over everything.
func (x *Tensor) Max() *Tensor { return x.extremeOfAll("max", "MaxBackward1") }

// Min records x.min() over everything.
func (x *Tensor) Min() *Tensor { return x.extremeOfAll("min", "MinBackward1") }

func (x *Tensor) extremeOfAll(op, node string) *Tensor {
	c := x.tape.Begin(op, x)
	y := c.t.Alloc(x.dtype)
	in := x.ContiguousUntracked()
	in.reduceInto(y, x.dtype.Size())
	return c.End(y.SetGradFn(node, inputs{x}, saves{x, y},
		func(b *Gradients) { b.Set(0, evenlyDividedGrad(b.Grad, b.Saved(0), b.Saved(1))) }))
}

// evenlyDividedGrad divides the gradient equally among all elements that are equal to the result, including NaN
// (evenly_distribute_backward).
func evenlyDividedGrad(grad, input, value *Tensor) *Tensor {
	c := grad.tape.Begin("evenly_distribute_backward", grad, input, value)
	nan := c.Bind(input.IsNaN())
	valueNaN := c.Bind(value.IsNaN())
	c.t.LaunchElementwise(nan, 1, nan, valueNaN)
	mask := c.Bind(input.compare("eq_Tensor", value))
	c.t.LaunchElementwise(mask, 1, mask, nan)
	share := grad.Div(mask.Sum(false))
	return c.End(mask.Mul(share))
}

// MaxDim records x.max(dim, keepdim), which returns the values and their indices.
func (x *Tensor) MaxDim(keep bool, dim int) (values, indices *Tensor) {
	c := x.tape.Begin("max_dim", x)
	shape, reduced := x.reducedShape([]int{dim}, keep)
	values, indices = c.t.Alloc(x.dtype, shape...), c.t.Alloc(I64, shape...)
	// The kernel's accumulator is a value and an index.
	x.reduceScratch(c, reduced, x.dtype.Size(), 16, 4)
	c.t.Launch(program.Reduction, x.numel, []*Tensor{values, indices}, []*Tensor{x})
	from := x.shape
	c.t.SetGradFn(outputs{values, indices}, "MaxBackward0", inputs{x}, saves{indices},
		func(b *Gradients) { b.Set(0, selectionGrad(b.Grad, from)) })
	return c.EndPair(values, indices)
}

// selectionGrad records value_selecting_reduction_backward: zeros, into which the gradient is scattered at the indices.
func selectionGrad(grad *Tensor, shape []int64) *Tensor {
	c := grad.tape.Begin("value_selecting_reduction_backward", grad)
	z := c.t.Alloc(grad.dtype, shape...)
	c.t.LaunchFill(z)
	c.t.Launch(program.Index, grad.numel, []*Tensor{z}, []*Tensor{grad})
	return c.End(z)
}

// ArgMax records x.argmax(dim, keepdim); without dim it covers all elements.
func (x *Tensor) ArgMax(keep bool, dim ...int) *Tensor { return x.argExtreme("argmax", keep, dim) }

// ArgMin records x.argmin(dim, keepdim).
func (x *Tensor) ArgMin(keep bool, dim ...int) *Tensor { return x.argExtreme("argmin", keep, dim) }

func (x *Tensor) argExtreme(op string, keep bool, dim []int) *Tensor {
	return x.reduce(reduction{op: op, out: I64, accSize: 16}, dim, keep)
}

// Any records x.any(dims) of a boolean tensor; x.all(dims) allocates the same.
func (x *Tensor) Any(keep bool, dims ...int) *Tensor {
	return x.reduce(reduction{op: "any", out: Bool, accSize: 1}, dims, keep)
}

// LogSumExp records x.logsumexp(dims, keepdim). Autocast runs it in fp32.
func (x *Tensor) LogSumExp(keep bool, dims ...int) *Tensor {
	c := x.tape.Begin("logsumexp", x)
	c.CastToFP32(&x)
	y := x.LogSumExpUncast(keep, dims)
	return c.End(y.SetGradFn("LogsumexpBackward0", inputs{x}, saves{x, y},
		func(b *Gradients) { b.Set(0, logSumExpGrad(b.Grad, b.Saved(1), b.Saved(0), keep, dims)) }))
}

// LogSumExpUncast records logsumexp_out_impl.
func (x *Tensor) LogSumExpUncast(keep bool, dims []int) *Tensor {
	c := x.tape.Begin("logsumexp", x)
	c.WithoutGrad()
	maxes := c.Bind(x.AMax(true, dims...))
	maxes.MaskedFillInPlace(maxes.Abs().CompareScalar("eq"))
	c.EndStatement()
	scaled := x.Sub(maxes).ExpInPlace()
	y := c.Bind(scaled.SumUncast("sum", dims, keep))
	c.t.LaunchElementwise(y, 8, y)
	c.t.LaunchElementwise(y, 1, y, maxes)
	return c.End(y)
}

// logSumExpGrad records logsumexp_backward: grad * (self - result).exp().
func logSumExpGrad(grad, result, self *Tensor, keep bool, dims []int) *Tensor {
	c := grad.tape.Begin("logsumexp_backward", grad, result, self)
	if !keep {
		grad, result = c.Bind(grad.restoreDims(self.NDim(), dims)), c.Bind(result.restoreDims(self.NDim(), dims))
	}
	weight := self.Sub(result).Exp()
	return c.End(grad.Mul(weight))
}

// AMinMax records torch.aminmax(x), of all elements or along dims. It has no gradient.
func (x *Tensor) AMinMax(keep bool, dims ...int) (least, most *Tensor) {
	c := x.tape.Begin("aminmax", x)
	shape, _ := x.reducedShape(dims, keep)
	if dims == nil {
		shape = nil
	}
	least, most = c.Bind(c.t.Alloc(x.dtype, shape...)), c.Bind(c.t.Alloc(x.dtype, shape...))
	c.t.Launch(program.Reduction, 2*x.numel, []*Tensor{least, most}, []*Tensor{x})
	return c.EndPair(least, most)
}

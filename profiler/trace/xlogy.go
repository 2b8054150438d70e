package trace

// Polar is torch.polar(x, angle): complex numbers of absolute values and angles.
func (x *Tensor) Polar(angle *Tensor) *Tensor {
	t := x.tape
	c := t.begin("polar", x, angle)
	z := t.map1("polar", C64, transcendentalFLOPs, x, angle)
	return c.end(z.derived("PolarBackward0", inputs{x, angle}, saves{z}, func(b *backward) {
		c := t.begin("polar_backward", b.grad, b.saved(0))
		conj := c.let(b.grad.conjugated())
		var dx, dangle *Tensor
		if b.needs(0) {
			dx = conj.Mul(b.saved(0).Sgn()).Real().retain()
			c.statement()
		}
		if b.needs(1) {
			dangle = conj.Mul(b.saved(0).MulScalar()).Real().retain()
			c.statement()
		}
		c.finish()
		b.giveAll(dx, dangle)
	}))
}

// Renorm is x.renorm(p, d, maxnorm): x with each part along d scaled to a norm of maxnorm
// at most.
func (x *Tensor) Renorm(p float64, d int) *Tensor {
	c := x.tape.begin("renorm", x)
	c.full(&x)
	dims := othersThan(x, d)
	y := x.emptyLike(x.dtype)
	c.let(y)
	c.t.NoGrad(func() {
		norm := c.let(x.reduce(reduction{
			op: "linalg_vector_norm", out: x.dtype.accumulate(),
			accSize: x.dtype.accumulate().Size(),
		}, dims, true))
		factor := norm
		if norm.dtype != x.dtype {
			factor = c.let(c.t.empty(x.dtype, norm.shape...))
		}
		c.t.launchElementwise(factor, 4, norm)
		c.t.launchElementwise(y, 1, x, factor)
	})
	return c.end(y.derived("RenormBackward0", inputs{x}, saves{x},
		func(b *backward) { b.give(0, renormGrad(b.grad, b.saved(0), p, dims)) }))
}

// renormGrad is renorm_backward.
func renormGrad(grad, self *Tensor, p float64, dims []int) *Tensor {
	c := grad.tape.begin("renorm_backward", grad, self)
	norm := c.let(self.Norm(p, true, dims...))
	output := c.let(self.Mul(grad).Sum(true, dims...))
	along := c.let(normBackward(output, self, norm, p, dims, true))
	inverse := c.let(norm.AddScalar().Reciprocal())
	rest := grad.Sub(inverse.Mul(along))
	scaled := inverse.MulScalar()
	gradNorm := c.let(scaled.Mul(rest))
	return c.end(Where(norm.compareScalar("gt"), gradNorm, grad))
}

// othersThan are all dimensions of x but d.
func othersThan(x *Tensor, d int) []int {
	var dims []int
	for i := range x.shape {
		if i != x.dim(d) {
			dims = append(dims, i)
		}
	}
	return dims
}

package trace

// sincBackward is sinc_backward.
func sincBackward(g, x *Tensor) *Tensor {
	c := g.tape.begin("sinc_backward", g, x)
	angle := c.let(x.MulScalar())
	square := c.let(x.Mul(x).MulScalar())
	cosine := angle.Mul(angle.Cos())
	slope := c.let(g.Mul(cosine.Sub(angle.Sin()).Div(square)))
	zero := c.t.scalarTensor(g.dtype)
	return c.end(Where(square.compareScalar("eq"), zero, slope))
}

// IsFinite is torch.isfinite(x): (x == x) * (x.abs() != inf).
func (x *Tensor) IsFinite() *Tensor {
	c := x.tape.begin("isfinite", x)
	if !x.dtype.differentiable() {
		return c.end(x.tape.Filled("ones_like", Bool, x.shape...))
	}
	bounded := x.plain("abs", 1).compareScalar("ne_Scalar")
	return c.end(x.compare("eq_Tensor", x).Mul(bounded))
}

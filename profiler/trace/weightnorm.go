package trace

// WeightNorm is torch._weight_norm(v, g, dim): g * v / norm(v), the norm taken
// over all dimensions but dim, the first or the last.
func WeightNorm(v, g *Tensor) *Tensor {
	t := v.tape
	c := t.begin("_weight_norm", v, g)
	w := c.let(t.empty(v.dtype, v.shape...))
	acc := g.dtype
	if acc == F16 {
		acc = F32
	}
	norms := c.let(t.fresh(acc, g.layout))
	t.launchNorm(w, weightNormFLOPs, v, g)
	return c.end(w.derived("WeightNormInterfaceBackward0", inputs{v, g}, saves{v, g, norms}, func(b *backward) {
		v, g := b.saved(0), b.saved(1)
		in := b.grad.contiguousUntracked()
		gv, gg := t.empty(v.dtype, v.shape...).retain(), t.empty(g.dtype, g.shape...).retain()
		t.launchNorm(gv, weightNormBackwardFLOPs, in, v, g)
		b.giveAll(gv, gg)
	}))
}

// NormalizeInto is torch.nn.functional.normalize(x, dim=0, out=into) of a
// vector.
func (x *Tensor) NormalizeInto(into *Tensor) {
	f := x.tape.funcFrame(x)
	denom := f.Let(x.Norm(2, true, 0).ClampMinInPlace().ExpandAs(x))
	x.tape.launchElementwise(into, 4, x, denom)
	f.End()
}

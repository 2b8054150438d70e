package trace

// LinalgSVD records torch.linalg.svd(x, full_matrices=full): U, the singular values and Vh.
func (x *Tensor) LinalgSVD(full bool) (u, s, vh *Tensor) {
	c := x.tape.begin("_linalg_svd", x)
	m, n := x.Size(-2), x.Size(-1)
	k := min(m, n)
	rows, columns := k, k
	if full {
		rows, columns = m, n
	}
	u, vh = c.let(c.t.byColumns(x.dtype, x.batched(m, rows)...)),
		c.let(c.t.byColumns(x.dtype, x.batched(columns, n)...))
	s = c.let(c.t.empty(x.dtype, x.batched(k)...))
	info := c.let(x.emptyInfo())
	in := c.let(c.t.byColumns(x.dtype, x.shape...))
	c.t.launchCopy(in, x)
	if m != n && !full && m <= 32 && n <= 32 && x.matrices() > 0 { // the kernel for small matrices makes both whole
		c.drop(c.let(c.t.byColumns(x.dtype, x.batched(max(m, n), max(m, n))...)))
	}
	in.factorize(u, s, vh)
	c.drop(in)
	info.checkInfo()
	c.t.derive(outputs{u, s, vh}, "LinalgSvdBackward0", inputs{x}, saves{u, s, vh}, func(b *backward) {
		u, s, vh := b.saved(0), b.saved(1), b.saved(2)
		gu, gs, gvh := b.grads[0], b.grads[1], b.grads[2]
		if full {
			k := s.Size(-1)
			u, vh = u.Slice(-1, 0, k), vh.Slice(-2, 0, k)
			if gu != nil {
				gu = gu.Slice(-1, 0, k)
			}
			if gvh != nil {
				gvh = gvh.Slice(-2, 0, k)
			}
		}
		b.give(0, svdGrad(gu, gs, gvh, u, s, vh))
	})
	c.endAll(u, s, vh)
	return u, s, vh
}

// LinalgSVDVals records torch.linalg.svdvals(x).
func (x *Tensor) LinalgSVDVals() *Tensor {
	c := x.tape.begin("linalg_svdvals", x)
	u, s, vh := x.LinalgSVD(false)
	c.letAll([]*Tensor{u, s, vh})
	return c.end(s)
}

// svdGrad records svd_backward of real matrices.
func svdGrad(gu, gs, gvh, u, s, vh *Tensor) *Tensor {
	c := u.tape.begin("svd_backward", u, s, vh)
	m, n := u.Size(-2), vh.Size(-1)
	if gu == nil && gvh == nil {
		if m >= n {
			return c.end(u.matmul(gs.Unsqueeze(-1).Mul(vh)))
		}
		return c.end(u.Mul(gs.Unsqueeze(-2)).matmul(vh))
	}
	skew := func(x *Tensor) *Tensor {
		c := u.tape.begin("skew", x)
		return c.end(x.Sub(x.mT()))
	}
	var ugu, vgv *Tensor
	if gu != nil {
		ugu = c.let(skew(u.mT().matmul(gu)))
	}
	if gvh != nil {
		vgv = c.let(skew(vh.matmul(gvh.mT())))
	}
	g := c.let(svdInner(ugu, vgv, gs, s))
	switch {
	case m > n && gu != nil:
		// gA = (U @ gA + gU / S - U @ (U.mH @ (gU / S))) @ Vh
		c.set(&g, u.matmul(g))
		part := c.let(gu.Div(s.Unsqueeze(-2)))
		c.set(&g, g.Add(part).Sub(u.matmul(u.mT().matmul(part))))
		return c.end(c.set(&g, g.matmul(vh)))
	case m < n && gvh != nil:
		c.set(&g, g.matmul(vh))
		part := c.let(gvh.Div(s.Unsqueeze(-1)))
		c.set(&g, g.Add(part).Sub(part.matmul(vh.mT()).matmul(vh)))
		return c.end(c.set(&g, u.matmul(g)))
	case m >= n:
		return c.end(u.matmul(g.matmul(vh)))
	}
	return c.end(u.matmul(g).matmul(vh))
}

// svdInner returns what stands between U and Vh, with differences of squares below it.
func svdInner(ugu, vgv, gs, s *Tensor) *Tensor {
	c := s.tape.begin("svd_backward", s)
	squareGaps := func() *Tensor {
		c := s.tape.begin("svd_backward", s)
		return c.end(c.let(s.Mul(s)).gaps())
	}
	inner := func() *Tensor {
		c := s.tape.begin("svd_backward", s)
		e := c.let(squareGaps())
		switch {
		case vgv == nil:
			return c.end(ugu.Div(e).Mul(s.Unsqueeze(-2)))
		case ugu == nil:
			return c.end(s.Unsqueeze(-1).Mul(vgv.Div(e)))
		}
		left := ugu.Mul(s.Unsqueeze(-2))
		return c.end(left.Add(s.Unsqueeze(-1).Mul(vgv)).Div(e))
	}
	g := c.let(inner())
	if gs != nil {
		c.set(&g, g.Add(gs.DiagEmbed(0)))
	}
	return c.end(g)
}

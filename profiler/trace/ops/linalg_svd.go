package ops

// LinalgSVD records torch.linalg.svd(x, full_matrices=full): U, the singular values and Vh.
func LinalgSVD(x *tensor, full bool) (u, s, vh *tensor) {
	c := x.Tape().Begin("_linalg_svd", x)
	m, n := x.Size(-2), x.Size(-1)
	k := min(m, n)
	rows, columns := k, k
	if full {
		rows, columns = m, n
	}
	u, vh = c.Bind(allocColumnMajor(c.Tape(), x.DType(), batchShape(x, m, rows)...)),
		c.Bind(allocColumnMajor(c.Tape(), x.DType(), batchShape(x, columns, n)...))
	s = c.Bind(c.Tape().Alloc(x.DType(), batchShape(x, k)...))
	info := c.Bind(emptyInfo(x))
	in := c.Bind(allocColumnMajor(c.Tape(), x.DType(), x.Shape()...))
	c.Tape().LaunchCopy(in, x)
	if m != n && !full && m <= 32 && n <= 32 && matrixCount(x) > 0 { // the kernel for small matrices makes both whole
		c.Drop(c.Bind(allocColumnMajor(c.Tape(), x.DType(), batchShape(x, max(m, n), max(m, n))...)))
	}
	factorize(in, u, s, vh)
	c.Drop(in)
	checkInfo(info)
	c.Tape().SetGradFn(outputs{u, s, vh}, "LinalgSvdBackward0", inputs{x}, saves{u, s, vh}, func(b *backward) {
		u, s, vh := b.Saved(0), b.Saved(1), b.Saved(2)
		gu, gs, gvh := b.Grads[0], b.Grads[1], b.Grads[2]
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
		b.Set(0, svdGrad(gu, gs, gvh, u, s, vh))
	})
	c.EndAll(u, s, vh)
	return u, s, vh
}

// LinalgSVDVals records torch.linalg.svdvals(x).
func LinalgSVDVals(x *tensor) *tensor {
	c := x.Tape().Begin("linalg_svdvals", x)
	u, s, vh := LinalgSVD(x, false)
	c.BindAll([]*tensor{u, s, vh})
	return c.End(s)
}

// svdGrad records svd_backward of real matrices.
func svdGrad(gu, gs, gvh, u, s, vh *tensor) *tensor {
	c := u.Tape().Begin("svd_backward", u, s, vh)
	m, n := u.Size(-2), vh.Size(-1)
	if gu == nil && gvh == nil {
		if m >= n {
			return c.End(u.MatmulUncast(gs.Unsqueeze(-1).Mul(vh)))
		}
		return c.End(u.Mul(gs.Unsqueeze(-2)).MatmulUncast(vh))
	}
	skew := func(x *tensor) *tensor {
		c := u.Tape().Begin("skew", x)
		return c.End(x.Sub(mT(x)))
	}
	var ugu, vgv *tensor
	if gu != nil {
		ugu = c.Bind(skew(mT(u).MatmulUncast(gu)))
	}
	if gvh != nil {
		vgv = c.Bind(skew(vh.MatmulUncast(mT(gvh))))
	}
	g := c.Bind(svdInner(ugu, vgv, gs, s))
	switch {
	case m > n && gu != nil:
		// gA = (U @ gA + gU / S - U @ (U.mH @ (gU / S))) @ Vh
		c.Set(&g, u.MatmulUncast(g))
		part := c.Bind(gu.Div(s.Unsqueeze(-2)))
		c.Set(&g, g.Add(part).Sub(u.MatmulUncast(mT(u).MatmulUncast(part))))
		return c.End(c.Set(&g, g.MatmulUncast(vh)))
	case m < n && gvh != nil:
		c.Set(&g, g.MatmulUncast(vh))
		part := c.Bind(gvh.Div(s.Unsqueeze(-1)))
		c.Set(&g, g.Add(part).Sub(part.MatmulUncast(mT(vh)).MatmulUncast(vh)))
		return c.End(c.Set(&g, u.MatmulUncast(g)))
	case m >= n:
		return c.End(u.MatmulUncast(g.MatmulUncast(vh)))
	}
	return c.End(u.MatmulUncast(g).MatmulUncast(vh))
}

// svdInner records the factor between U and Vh in svd_backward's formula, which is divided by differences of squared
// singular values.
func svdInner(ugu, vgv, gs, s *tensor) *tensor {
	c := s.Tape().Begin("svd_backward", s)
	squareGaps := func() *tensor {
		c := s.Tape().Begin("svd_backward", s)
		return c.End(eigenvalueGaps(c.Bind(s.Mul(s))))
	}
	inner := func() *tensor {
		c := s.Tape().Begin("svd_backward", s)
		e := c.Bind(squareGaps())
		switch {
		case vgv == nil:
			return c.End(ugu.Div(e).Mul(s.Unsqueeze(-2)))
		case ugu == nil:
			return c.End(s.Unsqueeze(-1).Mul(vgv.Div(e)))
		}
		left := ugu.Mul(s.Unsqueeze(-2))
		return c.End(left.Add(s.Unsqueeze(-1).Mul(vgv)).Div(e))
	}
	g := c.Bind(inner())
	if gs != nil {
		c.Set(&g, g.Add(gs.DiagEmbed(0)))
	}
	return c.End(g)
}

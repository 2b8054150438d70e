package trace

import "slices"

// AddMV is torch.addmv(x, a, v): x + a @ v.
func (x *Tensor) AddMV(a, v *Tensor) *Tensor {
	c := x.tape.begin("addmv", x, a, v)
	c.lower(&x, &a, &v)
	y := c.t.empty(a.dtype, a.shape[0])
	c.t.useBLAS()
	c.t.launchGEMM(y, 1, a.shape[0], 1, a.shape[1], a, v, x)
	return c.end(y.derived("AddmvBackward0", inputs{x, a, v}, saves{when(v.requiresGrad, a), when(a.requiresGrad, v)},
		each(
			partial{1, func(b *backward) *Tensor { return b.grad.Outer(b.saved(1)) }},
			partial{0, func(b *backward) *Tensor { return b.grad }},
			partial{2, func(b *backward) *Tensor { return b.saved(0).T().mv(b.grad) }},
		)))
}

// AddBMM is torch.addbmm(x, a, b): x and the sum of all products of a batch.
func (x *Tensor) AddBMM(a, b *Tensor) *Tensor {
	c := x.tape.begin("addbmm", x, a, b)
	c.lower(&x, &a, &b)
	y := c.t.empty(a.dtype, a.shape[1], b.shape[2])
	c.t.useBLAS()
	c.t.launchGEMM(y, a.shape[0], a.shape[1], b.shape[2], a.shape[2], a, b, x)
	wide := []int64{a.shape[0], a.shape[1], b.shape[2]}
	return c.end(y.derived("AddbmmBackward0", inputs{x, a, b}, saves{when(b.requiresGrad, a), when(a.requiresGrad, b)},
		each(
			partial{1, func(w *backward) *Tensor {
				return w.grad.Unsqueeze(0).Expand(wide...).bmm(w.saved(1).Transpose(1, 2))
			}},
			partial{2, func(w *backward) *Tensor {
				return w.saved(0).Transpose(1, 2).bmm(w.grad.Unsqueeze(0).Expand(wide...))
			}},
			partial{0, func(w *backward) *Tensor { return w.grad }},
		)))
}

// TensorDot is torch.tensordot(a, b, (dims of a, dims of b)): one product of
// matrices.
func (a *Tensor) TensorDot(b *Tensor, da, db []int) *Tensor {
	c := a.tape.begin("tensordot", a, b)
	da, db = wrapDims(len(a.shape), da), wrapDims(len(b.shape), db)
	var left, right []int
	var shape []int64
	inner := int64(1)
	for d, n := range a.shape {
		if !slices.Contains(da, d) {
			left, shape = append(left, d), append(shape, n)
		} else {
			inner *= n
		}
	}
	for d, n := range b.shape {
		if !slices.Contains(db, d) {
			right, shape = append(right, d), append(shape, n)
		}
	}
	first := c.let(a.Permute(slices.Concat(left, da)...).reshape([]int64{numel(shape[:len(left)]), inner}))
	second := c.let(b.Permute(slices.Concat(db, right)...).reshape([]int64{inner, numel(shape[len(left):])}))
	return c.end(first.MM(second).reshape(shape))
}

// Kron is torch.kron(x, y).
func (x *Tensor) Kron(y *Tensor) *Tensor {
	c := x.tape.begin("kron", x, y)
	n := max(len(x.shape), len(y.shape))
	var wx, wy, shape []int64
	for d := range n {
		sx, sy := int64(1), int64(1)
		if k := d - (n - len(x.shape)); k >= 0 {
			sx = x.shape[k]
		}
		if k := d - (n - len(y.shape)); k >= 0 {
			sy = y.shape[k]
		}
		wx, wy, shape = append(wx, sx, 1), append(wy, 1, sy), append(shape, sx*sy)
	}
	product := c.let(x.reshape(wx).Mul(y.reshape(wy)))
	return c.end(product.unsafeView(shape))
}

// AddR is torch.addr(x, a, b): x and the outer product of two vectors.
func (x *Tensor) AddR(a, b *Tensor) *Tensor {
	c := x.tape.begin("addr", x, a, b)
	y := c.t.empty(x.dtype, a.shape[0], b.shape[0])
	c.t.launchElementwise(y, 2, x, a, b)
	return c.end(y.derived("AddrBackward0", inputs{x, a, b}, saves{when(a.requiresGrad, b), when(b.requiresGrad, a)},
		each(
			partial{0, func(bw *backward) *Tensor { return bw.grad }},
			partial{1, func(bw *backward) *Tensor { return bw.grad.mv(bw.saved(0)) }},
			partial{2, func(bw *backward) *Tensor { return bw.grad.T().mv(bw.saved(1)) }},
		)))
}

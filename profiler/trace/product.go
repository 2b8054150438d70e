package trace

import "github.com/vprof/vprof/profiler/program"

// Matmul is torch.matmul.
func (a *Tensor) Matmul(b *Tensor) *Tensor {
	c := a.tape.begin("matmul", a, b)
	c.lower(&a, &b)
	return c.end(c.matmul(a, b))
}

// matmul is at::matmul below autocast.
func (a *Tensor) matmul(b *Tensor) *Tensor {
	c := a.tape.begin("matmul", a, b)
	return c.end(c.matmul(a, b))
}

// matmul chooses between the products of vectors, matrices and batches
// (_matmul_impl).
func (c *call) matmul(a, b *Tensor) *Tensor {
	switch na, nb := len(a.shape), len(b.shape); {
	case na == 1 && nb == 1:
		return a.dot(b)
	case na == 2 && nb == 1:
		return a.mv(b)
	case na == 1 && nb == 2:
		return a.Unsqueeze(0).mm(b).Squeeze(0)
	case na == 2 && nb == 2:
		return a.mm(b)
	case shouldFold(a, b):
		return c.foldedProduct(a, b)
	case na == 3 && nb == 3 && a.shape[0] != b.shape[0] && a.shape[0] == 1 && a.requiresGrad:
		return a.Squeeze(0).matmul(b)
	case na == 3 && nb == 3 && a.shape[0] != b.shape[0] && b.shape[0] == 1 && b.requiresGrad:
		return a.matmul(b.Squeeze(0))
	}
	return c.broadcastProduct(a, b)
}

// shouldFold reports whether the batch of the larger operand goes into the
// rows of one matrix product (should_fold): always if the smaller one wants a
// gradient, which would else be as large as the batch; otherwise only if no
// copy is needed.
func shouldFold(a, b *Tensor) bool {
	large, small := a, b
	if len(b.shape) > len(a.shape) {
		large, small = b, a
	}
	if len(large.shape) < 3 || len(small.shape) > 2 {
		return false
	}
	// A view says it requires a gradient if its base does, even where it was
	// made under no_grad (DifferentiableViewMeta::requires_grad).
	if small.requiresGrad || small.view != nil && small.view.requiresGrad {
		return true
	}
	if len(a.shape) == 2 {
		return false
	}
	if large.numel == 0 {
		return true
	}
	n := len(large.shape)
	shape, strides := large.shape, large.strides
	if large == b {
		// t1 is the transposed matrix: its last two dimensions change places.
		shape, strides = append([]int64(nil), shape...), append([]int64(nil), strides...)
		shape[n-1], shape[n-2] = shape[n-2], shape[n-1]
		strides[n-1], strides[n-2] = strides[n-2], strides[n-1]
	}
	for i := range n - 2 {
		if strides[i] != strides[i+1]*shape[i+1] {
			return false
		}
	}
	return true
}

// foldedProduct multiplies a batch with one matrix or vector.
func (c *call) foldedProduct(a, b *Tensor) *Tensor {
	transposed := len(b.shape) > len(a.shape)
	large, small := a, b
	if transposed {
		large, small = c.let(b.Transpose(-2, -1)), a
		if len(a.shape) == 2 {
			small = c.let(a.T())
		}
	}
	n := len(large.shape)
	shape := append(make([]int64, 0, n), large.shape[:n-1]...)
	folded := c.let(large.reshape([]int64{numel(shape), large.shape[n-1]}))
	if len(small.shape) == 1 {
		return folded.mv(small).unsafeView(shape)
	}
	shape = append(shape, small.shape[1])
	y := c.let(folded.mm(small).unsafeView(shape))
	if transposed {
		return y.Transpose(-2, -1).contiguous()
	}
	return y
}

// broadcastProduct multiplies two batches, whose batch dimensions are
// broadcast; where strides do not allow a view this copies.
func (c *call) broadcastProduct(a, b *Tensor) *Tensor {
	vectorLeft, vectorRight := len(a.shape) == 1, len(b.shape) == 1
	rows, k, cols := int64(1), a.Size(-1), int64(1)
	if !vectorLeft {
		rows = a.Size(-2)
	}
	if !vectorRight {
		cols = b.Size(-1)
	}
	lead := broadcast(a.lead(), b.lead())
	batch := numel(lead)
	expanded := func(inner ...int64) []int64 { return append(append(make([]int64, 0, len(lead)+4), lead...), inner...) }

	left := c.let(a.Expand(expanded(rows, k)...).reshape([]int64{batch, rows, k}))
	var right *Tensor
	if vectorRight {
		right = c.let(b.Expand(expanded(k)...))
		c.set(&right, right.reshape([]int64{batch, k}).Unsqueeze(2))
	} else {
		right = c.let(b.Expand(expanded(k, cols)...))
		c.set(&right, right.reshape([]int64{batch, k, cols}))
	}
	shape := expanded()
	if !vectorLeft {
		shape = append(shape, rows)
	}
	if vectorRight {
		return left.bmm(right).Squeeze(-1).unsafeView(shape)
	}
	return left.bmm(right).unsafeView(append(shape, cols))
}

// lead stands for the batch dimensions of x in broadcasting.
func (x *Tensor) lead() *Tensor {
	n := max(len(x.shape)-2, 0)
	return &Tensor{layout: x.tape.layout(x.shape[:n], x.strides[:n])}
}

// MV is torch.mv: a matrix times a vector.
func (a *Tensor) MV(v *Tensor) *Tensor { return a.inLower("mv", v, (*Tensor).mv) }

func (a *Tensor) mv(v *Tensor) *Tensor {
	c := a.tape.begin("mv", a, v)
	y := c.t.empty(a.dtype, a.shape[0])
	if v.strides[0] == 0 {
		v = v.contiguousUntracked()
	}
	if a.strides[0] != 1 && a.strides[1] != 1 {
		a = a.contiguousUntracked()
	}
	c.t.useBLAS()
	c.t.launchGEMM(y, 1, a.shape[0], 1, a.shape[1], a, v)
	return c.end(y.derived("MvBackward0", inputs{a, v}, saves{when(v.requiresGrad, a), when(a.requiresGrad, v)}, each(
		partial{0, func(b *backward) *Tensor { return b.grad.Outer(b.saved(1)) }},
		partial{1, func(b *backward) *Tensor { return b.saved(0).T().mv(b.grad) }},
	)))
}

// Dot is torch.dot of two vectors.
func (a *Tensor) Dot(b *Tensor) *Tensor {
	c := a.tape.begin("dot", a, b)
	cast := c.t.widest([]*Tensor{a, b})
	c.belowAutocast()
	return c.end(cast[0].dot(cast[1]))
}

func (a *Tensor) dot(b *Tensor) *Tensor {
	c := a.tape.begin("dot", a, b)
	y := c.t.empty(a.dtype)
	c.t.useBLAS()
	c.t.launch(program.Reduction, 2*a.numel, []*Tensor{y}, []*Tensor{a, b})
	return c.end(y.derived("DotBackward0", inputs{a, b}, saves{when(b.requiresGrad, a), when(a.requiresGrad, b)},
		each(
			partial{0, func(w *backward) *Tensor { return w.grad.Mul(w.saved(1)) }},
			partial{1, func(w *backward) *Tensor { return w.grad.Mul(w.saved(0)) }},
		)))
}

// Outer is torch.outer (and torch.ger) of two vectors.
func (a *Tensor) Outer(b *Tensor) *Tensor {
	c := a.tape.begin("outer", a, b)
	return c.end(a.reshape([]int64{a.shape[0], 1}).Mul(b))
}

// ScaledMM is torch._scaled_mm of matrices in 8-bit floats, [m, k] by rows and [k, n] by
// columns, each with one scale: a result of type d, by cuBLASLt. Autograd does not look.
func ScaledMM(a, b *Tensor, d DType) *Tensor {
	c := a.tape.begin("_scaled_mm", a, b)
	m, k, n := a.shape[0], a.shape[1], b.shape[1]
	y := c.t.empty(d, m, n)
	c.t.useLt()
	c.t.launchGEMM(y, 1, m, n, k, a, b)
	return c.end(y)
}

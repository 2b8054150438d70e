package trace

import "github.com/vprof/vprof/profiler/program"

// gemm allocates the product of [m,k] and [k,n], batched if batch > 1, and
// wakes the cuBLAS handle.
func (t *Tape) gemm(a, b *Tensor, shape []int64, batch, m, n, k int64) *Tensor {
	y := t.empty(a.dtype, shape...)
	t.useBLAS()
	t.launchGEMM(y, batch, m, n, k, a, b)
	return y
}

func (t *Tape) launchGEMM(y *Tensor, batch, m, n, k int64, ins ...*Tensor) {
	t.launch(program.Op{Work: program.Matmul, FLOPs: 2 * batch * m * n * k, M: m, N: n, K: k, Batch: batch}, []*Tensor{y}, ins)
}

// mm is at::mm without autograd.
func (a *Tensor) mm(b *Tensor) *Tensor {
	t := a.tape
	c := t.begin("mm", a, b)
	m, k, n := a.shape[0], a.shape[1], b.shape[1]
	return c.end(t.gemm(a, b, []int64{m, n}, 1, m, n, k))
}

// MM is torch.mm of two matrices.
func (a *Tensor) MM(b *Tensor) *Tensor {
	t := a.tape
	c := t.begin("mm", a, b)
	b, a = t.lower(b), t.lower(a)
	y := a.mm(b)
	if n := t.record("MmBackward0", a, b); n != nil {
		n.keep(a, b.requiresGrad)
		n.keep(b, a.requiresGrad)
		n.yields(y)
		n.apply = mmBackward(a, b, 0, 1)
	}
	return c.end(y)
}

// mmBackward gives the gradients of a @ b to inputs ia and ib of the node; the
// node has kept a and b, in this order.
func mmBackward(a, b *Tensor, ia, ib int) func(*backward) {
	left, right := matrixLike(a), matrixLike(b)
	return func(w *backward) {
		if w.needs(ia) {
			w.give(ia, mmGrad1(w.grad, w.saved(1), left))
		}
		if w.needs(ib) {
			w.give(ib, mmGrad2(w.grad, w.saved(0), right))
		}
	}
}

// geometry is the shape and the strides of a matrix.
type geometry struct{ shape, strides []int64 }

func matrixLike(x *Tensor) geometry { return geometry{x.shape, x.strides} }

// columnMajor reports a transposed matrix: mm_mat1_backward and its sister
// then compute the transposed product, so that the gradient is laid out alike.
func (g geometry) columnMajor() bool {
	return g.strides[0] == 1 && g.strides[1] == g.shape[0]
}

// mmGrad1 is grad @ b^T (mm_mat1_backward).
func mmGrad1(grad, b *Tensor, a geometry) *Tensor {
	if a.columnMajor() {
		return b.mm(grad.T()).T()
	}
	return grad.mm(b.T())
}

// mmGrad2 is a^T @ grad (mm_mat2_backward).
func mmGrad2(grad, a *Tensor, b geometry) *Tensor {
	if b.columnMajor() {
		return grad.T().mm(a).T()
	}
	return a.T().mm(grad)
}

// AddMM is torch.addmm(bias, a, b).
func (bias *Tensor) AddMM(a, b *Tensor) *Tensor {
	t := bias.tape
	c := t.begin("addmm", bias, a, b)
	b, a, bias = t.lower(b), t.lower(a), t.lower(bias)
	return c.end(bias.addmm(a, b))
}

func (bias *Tensor) addmm(a, b *Tensor) *Tensor {
	t := bias.tape
	c := t.begin("addmm", bias, a, b)
	m, k, cols := a.shape[0], a.shape[1], b.shape[1]
	y := t.empty(a.dtype, m, cols)
	t.useLt()
	t.launchGEMM(y, 1, m, cols, k, a, b, bias)
	if n := t.record("AddmmBackward0", bias, a, b); n != nil {
		n.keep(a, b.requiresGrad)
		n.keep(b, a.requiresGrad)
		n.yields(y)
		left, right := matrixLike(a), matrixLike(b)
		n.apply = func(w *backward) {
			if w.needs(0) {
				w.give(0, w.grad)
			}
			if w.needs(1) {
				w.give(1, mmGrad1(w.grad, w.saved(1), left))
			}
			if w.needs(2) {
				w.give(2, mmGrad2(w.grad, w.saved(0), right))
			}
		}
	}
	return c.end(y)
}

// Linear is torch.nn.functional.linear(x, weight, bias); bias may be nil.
func (x *Tensor) Linear(weight, bias *Tensor) *Tensor {
	t := x.tape
	c := t.begin("linear", x, weight, bias)
	bias, weight, x = t.lower(bias), t.lower(weight), t.lower(x)
	rows := numel(x.shape[:len(x.shape)-1])
	shape := append(append([]int64(nil), x.shape[:len(x.shape)-1]...), weight.shape[0])
	flat := len(x.shape) == 2
	var y *Tensor
	switch {
	case bias != nil && flat:
		y = bias.addmm(x, weight.T())
	case bias != nil && len(x.shape) == 3 && x.isContiguous():
		y = bias.addmm(x.View(rows, x.Size(-1)), weight.T()).View(shape...)
	case bias == nil && flat:
		y = x.MM(weight.T())
	default:
		y = x.Matmul(weight.T())
		if bias != nil {
			y = y.AddInPlace(bias)
		}
	}
	return c.end(y)
}

// BMM is torch.bmm.
func (a *Tensor) BMM(b *Tensor) *Tensor {
	t := a.tape
	c := t.begin("bmm", a, b)
	b, a = t.lower(b), t.lower(a)
	y := a.bmm(b)
	if n := t.record("BmmBackward0", a, b); n != nil {
		n.keep(a, b.requiresGrad)
		n.keep(b, a.requiresGrad)
		n.yields(y)
		n.apply = func(w *backward) {
			if w.needs(0) {
				w.give(0, w.grad.bmm(w.saved(1).Transpose(1, 2)))
			}
			if w.needs(1) {
				w.give(1, w.saved(0).Transpose(1, 2).bmm(w.grad))
			}
		}
	}
	return c.end(y)
}

func (a *Tensor) bmm(b *Tensor) *Tensor {
	t := a.tape
	c := t.begin("bmm", a, b)
	batch, m, k, n := a.shape[0], a.shape[1], a.shape[2], b.shape[2]
	return c.end(t.gemm(a, b, []int64{batch, m, n}, batch, m, n, k))
}

// Matmul is torch.matmul.
func (a *Tensor) Matmul(b *Tensor) *Tensor {
	t := a.tape
	c := t.begin("matmul", a, b)
	b, a = t.lower(b), t.lower(a)
	switch {
	case len(a.shape) == 2 && len(b.shape) == 2:
		return c.end(a.MM(b))
	case len(a.shape) >= 3 && len(b.shape) == 2:
		// Folded into one product (should_fold).
		rows := numel(a.shape[:len(a.shape)-1])
		shape := append(append([]int64(nil), a.shape[:len(a.shape)-1]...), b.shape[1])
		folded := c.let(a.Reshape(rows, a.Size(-1)))
		return c.end(folded.MM(b).View(shape...))
	}
	n := max(len(a.shape), len(b.shape))
	lead := broadcast(a.lead(), b.lead())
	batch := numel(lead)
	m, k, cols := a.Size(-2), a.Size(-1), b.Size(-1)
	fa := c.let(a.Expand(append(append([]int64(nil), lead...), m, k)...).Reshape(batch, m, k))
	fb := c.let(b.Expand(append(append([]int64(nil), lead...), k, cols)...).Reshape(batch, k, cols))
	_ = n
	return c.end(fa.BMM(fb).View(append(append([]int64(nil), lead...), m, cols)...))
}

// lead stands for the batch dimensions of x in broadcasting.
func (x *Tensor) lead() *Tensor {
	return &Tensor{shape: x.shape[:len(x.shape)-2], strides: x.strides[:len(x.strides)-2]}
}

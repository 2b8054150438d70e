package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Matmul records torch.matmul.
func (a *Tensor) Matmul(b *Tensor) *Tensor {
	c := a.tape.begin("matmul", a, b)
	c.lower(&a, &b)
	return c.end(c.matmul(a, b))
}

// matmul records at::matmul below autocast.
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
	lead := a.BatchShape(b)
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

// BatchShape returns the common batch dimensions of two tensors of matrices.
func (a *Tensor) BatchShape(b *Tensor) []int64 { return broadcast(a.lead(), b.lead()) }

// lead returns the batch dimensions of x, for broadcasting.
func (x *Tensor) lead() *Tensor {
	n := max(len(x.shape)-2, 0)
	return &Tensor{layout: x.tape.layout(x.shape[:n], x.strides[:n])}
}

// MV records torch.mv: a matrix times a vector.
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

// Dot records torch.dot of two vectors.
func (a *Tensor) Dot(b *Tensor) *Tensor {
	c := a.tape.begin("dot", a, b)
	c.promote(&a, &b)
	return c.end(a.dot(b))
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

// Outer records torch.outer (and torch.ger) of two vectors.
func (a *Tensor) Outer(b *Tensor) *Tensor {
	c := a.tape.begin("outer", a, b)
	return c.end(a.reshape([]int64{a.shape[0], 1}).Mul(b))
}

// ScaledMM records torch._scaled_mm of matrices in 8-bit floats, [m, k] by rows and [k, n] by
// columns, each with one scale: a result of type d, by cuBLASLt. Autograd does not look.
func ScaledMM(a, b *Tensor, d DType) *Tensor {
	c := a.tape.begin("_scaled_mm", a, b)
	m, k, n := a.shape[0], a.shape[1], b.shape[1]
	y := c.t.empty(d, m, n)
	c.t.useLt()
	c.t.launchGEMM(y, 1, m, n, k, a, b)
	return c.end(y)
}

// AddMV records torch.addmv(x, a, v): x + a @ v.
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

// AddBMM records torch.addbmm(x, a, b): x and the sum of all products of a batch.
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

// TensorDot records torch.tensordot(a, b, (dims of a, dims of b)): one product of
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

// Kron records torch.kron(x, y).
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

// AddR records torch.addr(x, a, b): x and the outer product of two vectors.
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

// GroupedMM records torch.nn.functional.grouped_mm(x, weight, offs=ends): the rows of x [rows,
// in] come in groups that end where ends [groups] says, and each group is multiplied by
// its matrix of weight [groups, in, out]. How rows are shared out does not matter to
// memory.
func (x *Tensor) GroupedMM(weight, ends *Tensor) *Tensor {
	c := x.tape.begin("_grouped_mm", x, weight, ends)
	y := c.t.groupedProduct(x, weight, x.shape[0], weight.shape[2])
	return c.end(y.derived("GroupedMmBackward0", inputs{x, weight},
		saves{when(x.requiresGrad, weight), when(weight.requiresGrad, x), ends},
		groupedBackward))
}

// GroupsProducts tells whether grouped_mm runs on the GPU.
func (t *Tape) GroupsProducts() bool { return t.atLeast(80) }

// GroupedMMFallback records transformers' operator grouped_mm_fallback: x [rows, in] times weight
// [groups, in, out], one product after the other into one result. Both gradients are computed,
// needed or not.
func (x *Tensor) GroupedMMFallback(weight, ends *Tensor) *Tensor {
	t := x.tape
	c := t.begin("grouped_mm_fallback", x, weight, ends)
	y := t.Zeros(x.dtype, x.shape[0], weight.shape[2])
	t.intoGroups(y, x, weight, weight.shape[1])
	return c.end(y.derived("grouped_mm_fallbackBackward", inputs{x, weight}, saves{x, weight, ends},
		func(w *backward) {
			x, weight := w.saved(0), w.saved(1)
			dx := w.let(x.ZerosLike())
			dw := w.let(weight.ZerosLike())
			t.intoGroups(dx, w.grad, weight, weight.shape[2])
			t.intoGroups(dw, x, w.grad, x.shape[0]/weight.shape[0])
			w.givePair(dx, dw)
		}))
}

// intoGroups multiplies a and b group by group into y, as mm(out=) does; inner is how long
// the sums are.
func (t *Tape) intoGroups(y, a, b *Tensor, inner int64) {
	t.useBLAS()
	t.launch(program.Matmul, 2*y.numel*inner, []*Tensor{y}, []*Tensor{a, b})
}

// groupedBackward follows _grouped_mm_mat2_backward and _grouped_mm_mat1_backward: the
// gradient of the weight is laid out as the weight is.
func groupedBackward(w *backward) {
	t := w.grad.tape
	if w.needs(1) {
		c := t.begin("_grouped_mm_mat2_backward", w.grad)
		x, weight := w.saved(1), w.input(1)
		groups, in, out := weight.shape[0], weight.shape[1], weight.shape[2]
		if weight.strides[1] == 1 && weight.strides[2] == in {
			w.give(1, c.end(c.let(t.groupedProduct(w.grad, x, groups, out, in)).Transpose(-2, -1)))
		} else {
			w.give(1, c.end(t.groupedProduct(w.grad, x, groups, in, out)))
		}
	}
	if w.needs(0) {
		c := t.begin("_grouped_mm_mat1_backward", w.grad)
		weight := w.saved(0)
		w.give(0, c.end(t.groupedProduct(w.grad, weight, w.grad.shape[0], weight.shape[1])))
	}
}

// groupedProduct multiplies a and b group by group into a result of a shape, whose rows
// begin at multiples of 16 bytes (create_grouped_gemm_output_tensor).
func (t *Tape) groupedProduct(a, b *Tensor, shape ...int64) *Tensor {
	last := shape[len(shape)-1]
	align := 16 / a.dtype.Size()
	row := (last + align - 1) / align * align
	strides := make([]int64, len(shape))
	step := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		strides[d] = step
		if step *= shape[d]; d == len(shape)-1 {
			step = row
		}
	}
	y := t.emptyStrided(a.dtype, shape, strides)
	if y.numel > 0 {
		inner := a.numel / a.shape[0] // of what goes into one row of the result
		if len(shape) == 3 {
			inner = a.shape[0] / shape[0]
		}
		t.launch(program.Matmul, 2*y.numel*inner, []*Tensor{y}, []*Tensor{a, b})
	}
	return y
}

package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Matmul records torch.matmul.
func (a *Tensor) Matmul(b *Tensor) *Tensor {
	c := a.tape.Begin("matmul", a, b)
	c.CastToLower(&a, &b)
	return c.End(c.matmul(a, b))
}

// MatmulUncast records at::matmul below autocast.
func (a *Tensor) MatmulUncast(b *Tensor) *Tensor {
	c := a.tape.Begin("matmul", a, b)
	return c.End(c.matmul(a, b))
}

// matmul chooses between the products of vectors, matrices and batches (_matmul_impl).
func (c *Call) matmul(a, b *Tensor) *Tensor {
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
		return a.Squeeze(0).MatmulUncast(b)
	case na == 3 && nb == 3 && a.shape[0] != b.shape[0] && b.shape[0] == 1 && b.requiresGrad:
		return a.MatmulUncast(b.Squeeze(0))
	}
	return c.broadcastProduct(a, b)
}

// shouldFold reports whether the batch of the larger operand is folded into the rows of one matrix product
// (should_fold): always if the smaller operand requires a gradient; otherwise only if that needs no copy.
func shouldFold(a, b *Tensor) bool {
	large, small := a, b
	if len(b.shape) > len(a.shape) {
		large, small = b, a
	}
	if len(large.shape) < 3 || len(small.shape) > 2 {
		return false
	}
	// A view requires a gradient if its base does, even where it was
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
		// t1 is the transposed matrix: its last two dimensions are swapped.
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

// foldedProduct records the product of a batch and one matrix or vector, with the batch folded into rows.
func (c *Call) foldedProduct(a, b *Tensor) *Tensor {
	transposed := len(b.shape) > len(a.shape)
	large, small := a, b
	if transposed {
		large, small = c.Bind(b.Transpose(-2, -1)), a
		if len(a.shape) == 2 {
			small = c.Bind(a.T())
		}
	}
	n := len(large.shape)
	shape := append(make([]int64, 0, n), large.shape[:n-1]...)
	folded := c.Bind(large.AsShape([]int64{Numel(shape), large.shape[n-1]}))
	if len(small.shape) == 1 {
		return folded.mv(small).unsafeView(shape)
	}
	shape = append(shape, small.shape[1])
	y := c.Bind(folded.mm(small).unsafeView(shape))
	if transposed {
		return y.Transpose(-2, -1).AsContiguous()
	}
	return y
}

// broadcastProduct records the product of two batches, whose batch dimensions are broadcast. Batches whose strides do
// not allow a view are copied.
func (c *Call) broadcastProduct(a, b *Tensor) *Tensor {
	vectorLeft, vectorRight := len(a.shape) == 1, len(b.shape) == 1
	rows, k, cols := int64(1), a.Size(-1), int64(1)
	if !vectorLeft {
		rows = a.Size(-2)
	}
	if !vectorRight {
		cols = b.Size(-1)
	}
	lead := a.BatchShape(b)
	batch := Numel(lead)
	expanded := func(inner ...int64) []int64 { return append(append(make([]int64, 0, len(lead)+4), lead...), inner...) }

	left := c.Bind(a.Expand(expanded(rows, k)...).AsShape([]int64{batch, rows, k}))
	var right *Tensor
	if vectorRight {
		right = c.Bind(b.Expand(expanded(k)...))
		c.Set(&right, right.AsShape([]int64{batch, k}).Unsqueeze(2))
	} else {
		right = c.Bind(b.Expand(expanded(k, cols)...))
		c.Set(&right, right.AsShape([]int64{batch, k, cols}))
	}
	shape := expanded()
	if !vectorLeft {
		shape = append(shape, rows)
	}
	if vectorRight {
		return left.BMMUncast(right).Squeeze(-1).unsafeView(shape)
	}
	return left.BMMUncast(right).unsafeView(append(shape, cols))
}

// BatchShape returns the batch dimensions of the product of a and b: all dimensions but the last two, broadcast.
func (a *Tensor) BatchShape(b *Tensor) []int64 { return broadcast(a.lead(), b.lead()) }

// lead returns a tensor with only the batch dimensions of x, for broadcasting.
func (x *Tensor) lead() *Tensor {
	n := max(len(x.shape)-2, 0)
	return &Tensor{layout: x.tape.layout(x.shape[:n], x.strides[:n])}
}

// MV records torch.mv: a matrix times a vector.
func (a *Tensor) MV(v *Tensor) *Tensor { return a.inLower("mv", v, (*Tensor).mv) }

func (a *Tensor) mv(v *Tensor) *Tensor {
	c := a.tape.Begin("mv", a, v)
	y := c.t.Alloc(a.dtype, a.shape[0])
	if v.strides[0] == 0 {
		v = v.ContiguousUntracked()
	}
	if a.strides[0] != 1 && a.strides[1] != 1 {
		a = a.ContiguousUntracked()
	}
	c.t.UseBLAS()
	c.t.LaunchGEMM(y, 1, a.shape[0], 1, a.shape[1], a, v)
	return c.End(y.SetGradFn("MvBackward0", inputs{a, v}, savedFactors(a, v), inputGradients(
		inputGradient{0, func(b *Gradients) *Tensor { return b.Grad.Outer(b.Saved(1)) }},
		inputGradient{1, func(b *Gradients) *Tensor { return b.Saved(0).T().mv(b.Grad) }},
	)))
}

// Dot records torch.dot of two vectors.
func (a *Tensor) Dot(b *Tensor) *Tensor {
	c := a.tape.Begin("dot", a, b)
	c.Promote(&a, &b)
	return c.End(a.dot(b))
}

func (a *Tensor) dot(b *Tensor) *Tensor {
	c := a.tape.Begin("dot", a, b)
	y := c.t.Alloc(a.dtype)
	c.t.UseBLAS()
	c.t.Launch(program.Reduction, 2*a.numel, []*Tensor{y}, []*Tensor{a, b})
	return c.End(y.SetGradFn("DotBackward0", inputs{a, b}, savedFactors(a, b), inputGradients(
		inputGradient{0, func(w *Gradients) *Tensor { return w.Grad.Mul(w.Saved(1)) }},
		inputGradient{1, func(w *Gradients) *Tensor { return w.Grad.Mul(w.Saved(0)) }},
	)))
}

// Outer records torch.outer (and torch.ger) of two vectors.
func (a *Tensor) Outer(b *Tensor) *Tensor {
	c := a.tape.Begin("outer", a, b)
	return c.End(a.AsShape([]int64{a.shape[0], 1}).Mul(b))
}

// ScaledMM records torch._scaled_mm of 8-bit float matrices, [m, k] by rows and [k, n] by columns, with one scale each.
// The result has type d; the kernel is cuBLASLt's. There is no autograd node.
func ScaledMM(a, b *Tensor, d DType) *Tensor {
	c := a.tape.Begin("_scaled_mm", a, b)
	m, k, n := a.shape[0], a.shape[1], b.shape[1]
	y := c.t.Alloc(d, m, n)
	c.t.useLt()
	c.t.LaunchGEMM(y, 1, m, n, k, a, b)
	return c.End(y)
}

// AddMV records torch.addmv(x, a, v): x + a @ v.
func (x *Tensor) AddMV(a, v *Tensor) *Tensor {
	c := x.tape.Begin("addmv", x, a, v)
	c.CastToLower(&x, &a, &v)
	y := c.t.Alloc(a.dtype, a.shape[0])
	c.t.UseBLAS()
	c.t.LaunchGEMM(y, 1, a.shape[0], 1, a.shape[1], a, v, x)
	return c.End(y.SetGradFn("AddmvBackward0", inputs{x, a, v}, savedFactors(a, v), inputGradients(
		inputGradient{1, func(b *Gradients) *Tensor { return b.Grad.Outer(b.Saved(1)) }},
		inputGradient{0, func(b *Gradients) *Tensor { return b.Grad }},
		inputGradient{2, func(b *Gradients) *Tensor { return b.Saved(0).T().mv(b.Grad) }},
	)))
}

// AddBMM records torch.addbmm(x, a, b): x plus the sum of a batch's products.
func (x *Tensor) AddBMM(a, b *Tensor) *Tensor {
	c := x.tape.Begin("addbmm", x, a, b)
	c.CastToLower(&x, &a, &b)
	y := c.t.Alloc(a.dtype, a.shape[1], b.shape[2])
	c.t.UseBLAS()
	c.t.LaunchGEMM(y, a.shape[0], a.shape[1], b.shape[2], a.shape[2], a, b, x)
	wide := []int64{a.shape[0], a.shape[1], b.shape[2]}
	return c.End(y.SetGradFn("AddbmmBackward0", inputs{x, a, b}, savedFactors(a, b), inputGradients(
		inputGradient{1, func(w *Gradients) *Tensor {
			return w.Grad.Unsqueeze(0).Expand(wide...).BMMUncast(w.Saved(1).Transpose(1, 2))
		}},
		inputGradient{2, func(w *Gradients) *Tensor {
			return w.Saved(0).Transpose(1, 2).BMMUncast(w.Grad.Unsqueeze(0).Expand(wide...))
		}},
		inputGradient{0, func(w *Gradients) *Tensor { return w.Grad }},
	)))
}

// TensorDot records torch.tensordot(a, b, (da, db)), which is computed as one matrix product.
func (a *Tensor) TensorDot(b *Tensor, da, db []int) *Tensor {
	c := a.tape.Begin("tensordot", a, b)
	da, db = WrapDims(len(a.shape), da), WrapDims(len(b.shape), db)
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
	first := c.Bind(a.Permute(slices.Concat(left, da)...).AsShape([]int64{Numel(shape[:len(left)]), inner}))
	second := c.Bind(b.Permute(slices.Concat(db, right)...).AsShape([]int64{inner, Numel(shape[len(left):])}))
	return c.End(first.MM(second).AsShape(shape))
}

// Kron records torch.kron(x, y).
func (x *Tensor) Kron(y *Tensor) *Tensor {
	c := x.tape.Begin("kron", x, y)
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
	product := c.Bind(x.AsShape(wx).Mul(y.AsShape(wy)))
	return c.End(product.unsafeView(shape))
}

// AddR records torch.addr(x, a, b): x plus the outer product of the vectors a and b.
func (x *Tensor) AddR(a, b *Tensor) *Tensor {
	c := x.tape.Begin("addr", x, a, b)
	y := c.t.Alloc(x.dtype, a.shape[0], b.shape[0])
	c.t.LaunchElementwise(y, 2, x, a, b)
	return c.End(y.SetGradFn("AddrBackward0", inputs{x, a, b}, savedFactors(b, a), inputGradients(
		inputGradient{0, func(bw *Gradients) *Tensor { return bw.Grad }},
		inputGradient{1, func(bw *Gradients) *Tensor { return bw.Grad.mv(bw.Saved(0)) }},
		inputGradient{2, func(bw *Gradients) *Tensor { return bw.Grad.T().mv(bw.Saved(1)) }},
	)))
}

// GroupedMM records torch.nn.functional.grouped_mm(x, weight, offs=ends). The rows of x [rows, in] form groups that end
// at the rows in ends [groups], and each group is multiplied by its matrix of weight [groups, in, out]. The lengths of
// the groups do not affect memory.
func (x *Tensor) GroupedMM(weight, ends *Tensor) *Tensor {
	c := x.tape.Begin("_grouped_mm", x, weight, ends)
	y := c.t.groupedProduct(x, weight, x.shape[0], weight.shape[2])
	return c.End(y.SetGradFn("GroupedMmBackward0", inputs{x, weight},
		saves{tensorIf(x.requiresGrad, weight), tensorIf(weight.requiresGrad, x), ends}, groupedBackward))
}

// GroupsProducts reports whether grouped_mm has a kernel for the GPU (compute capability 8.0 or higher).
func (t *Tape) GroupsProducts() bool { return t.atLeast(80) }

// GroupedMMFallback records transformers' operator grouped_mm_fallback: x [rows, in] times weight [groups, in, out],
// one matrix product per group into one result. Backward computes both gradients even if one is not needed.
func (x *Tensor) GroupedMMFallback(weight, ends *Tensor) *Tensor {
	t := x.tape
	c := t.Begin("grouped_mm_fallback", x, weight, ends)
	y := t.Zeros(x.dtype, x.shape[0], weight.shape[2])
	t.intoGroups(y, x, weight, weight.shape[1])
	return c.End(y.SetGradFn("grouped_mm_fallbackBackward", inputs{x, weight}, saves{x, weight, ends},
		func(w *Gradients) {
			x, weight := w.Saved(0), w.Saved(1)
			dx := w.Bind(x.ZerosLike())
			dw := w.Bind(weight.ZerosLike())
			t.intoGroups(dx, w.Grad, weight, weight.shape[2])
			t.intoGroups(dw, x, w.Grad, x.shape[0]/weight.shape[0])
			w.SetPair(dx, dw)
		}))
}

// intoGroups records a matrix product per group of a and b, written into y (mm with out=); inner is the sums' length.
func (t *Tape) intoGroups(y, a, b *Tensor, inner int64) {
	t.UseBLAS()
	t.Launch(program.Matmul, 2*y.numel*inner, []*Tensor{y}, []*Tensor{a, b})
}

// groupedBackward records _grouped_mm_mat2_backward and _grouped_mm_mat1_backward. The weight's gradient has its
// layout.
func groupedBackward(w *Gradients) {
	t := w.Grad.tape
	if w.Needs(1) {
		c := t.Begin("_grouped_mm_mat2_backward", w.Grad)
		x, weight := w.Saved(1), w.input(1)
		groups, in, out := weight.shape[0], weight.shape[1], weight.shape[2]
		if weight.strides[1] == 1 && weight.strides[2] == in {
			w.Set(1, c.End(c.Bind(t.groupedProduct(w.Grad, x, groups, out, in)).Transpose(-2, -1)))
		} else {
			w.Set(1, c.End(t.groupedProduct(w.Grad, x, groups, in, out)))
		}
	}
	if w.Needs(0) {
		c := t.Begin("_grouped_mm_mat1_backward", w.Grad)
		weight := w.Saved(0)
		w.Set(0, c.End(t.groupedProduct(w.Grad, weight, w.Grad.shape[0], weight.shape[1])))
	}
}

// groupedProduct records the products of all groups of a and b. Rows of the result begin at multiples of 16 bytes
// (create_grouped_gemm_output_tensor).
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
	y := t.AllocStrided(a.dtype, shape, strides)
	if y.numel > 0 {
		inner := a.numel / a.shape[0] // inputs of one row of the result
		if len(shape) == 3 {
			inner = a.shape[0] / shape[0]
		}
		t.Launch(program.Matmul, 2*y.numel*inner, []*Tensor{y}, []*Tensor{a, b})
	}
	return y
}

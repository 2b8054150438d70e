package trace

import (
	"fmt"

	"github.com/vprof/vprof/profiler/program"
)

// LaunchGEMM records a batch of matrix products of [m, k] and [k, n] into y.
func (t *Tape) LaunchGEMM(y *Tensor, batch, m, n, k int64, ins ...*Tensor) {
	op := t.Launch(program.Matmul, 2*batch*m*n*k, []*Tensor{y}, ins)
	t.setProduct(op, program.Product{M: m, N: n, K: k, Batch: batch})
	t.useTF32(op, t.rules.TF32 == AllInTF32)
}

// useTF32 sets the precision of an fp32 op to TF32 if that is allowed and the GPU has it; op may be nil.
func (t *Tape) useTF32(op *program.Op, allowed bool) {
	if op != nil && allowed && op.Precision == program.FP32 && t.atLeast(80) {
		op.Precision = program.TF32
	}
}

// MM records torch.mm of two matrices.
func (a *Tensor) MM(b *Tensor) *Tensor { return a.inLower("mm", b, (*Tensor).mm) }

// inLower records a product in autocast's precision.
func (a *Tensor) inLower(op string, b *Tensor, product func(a, b *Tensor) *Tensor) *Tensor {
	c := a.tape.Begin(op, a, b)
	c.CastToLower(&a, &b)
	return c.End(product(a, b))
}

// mm records at::mm, inside of autocast.
func (a *Tensor) mm(b *Tensor) *Tensor {
	c := a.tape.Begin("mm", a, b)
	c.t.checkShapes(a, b)
	y := c.t.multiply(a, b, a.layout, b.layout)
	return c.End(y.SetGradFn("MmBackward0", inputs{a, b}, savedFactors(b, a), mmBackward))
}

// checkShapes raises PyTorch's error if the shapes of two matrices do not match.
func (t *Tape) checkShapes(a, b *Tensor) {
	if a.shape[1] != b.shape[0] {
		t.Raise(fmt.Errorf("RuntimeError: mat1 and mat2 shapes cannot be multiplied (%dx%d and %dx%d)",
			a.shape[0], a.shape[1], b.shape[0], b.shape[1]))
	}
}

// multiply records the product of two matrices, or of their transposes. la and lb are the layouts passed to cuBLAS.
func (t *Tape) multiply(a, b *Tensor, la, lb *layout) *Tensor {
	return t.selectedResults(keptMM, func() []*Tensor {
		m, k, cols := la.shape[0], la.shape[1], lb.shape[1]
		y := t.Alloc(a.dtype, m, cols)
		a.prepareMatrix(la)
		b.prepareMatrix(lb)
		t.UseBLAS()
		t.LaunchGEMM(y, 1, m, cols, k, a, b)
		return []*Tensor{y}
	})[0]
}

// mmT records a.mm(b.T()) without autograd and without a view of the transpose.
func (a *Tensor) mmT(b *Tensor) *Tensor {
	c := a.tape.Begin("mm", a, b)
	return c.End(a.tape.multiply(a, b, a.layout, b.matrixT()))
}

// tMM records a.T().mm(b) without autograd and without a view of the transpose.
func (a *Tensor) tMM(b *Tensor) *Tensor {
	c := a.tape.Begin("mm", a, b)
	return c.End(a.tape.multiply(a, b, a.matrixT(), b.layout))
}

func mmBackward(w *Gradients) {
	if w.Needs(1) {
		w.Set(1, mmGrad2(w.Grad, w.Saved(1), w.input(1).layout))
	}
	if w.Needs(0) {
		w.Set(0, mmGrad1(w.Grad, w.Saved(0), w.input(0).layout))
	}
}

// prepareMatrix records prepare_matrix_for_cublas: a matrix whose rows and columns are not dense is copied. l is the
// layout of x, or of its transpose, that is passed to cuBLAS.
func (x *Tensor) prepareMatrix(l *layout) {
	rows, cols := l.shape[0], l.shape[1]
	switch {
	case l.dense, l.strides[0] == 1 && l.strides[1] >= max(1, rows), l.strides[1] == 1 && l.strides[0] >= max(1, cols):
	case l != x.layout:
		x.T().ContiguousUntracked()
	default:
		x.ContiguousUntracked()
	}
}

// isColumnMajor reports whether a matrix is transposed. mm_mat1_backward and mm_mat2_backward then compute the
// transposed product, so that the gradient has the same layout.
func (l *layout) isColumnMajor() bool { return l.strides[0] == 1 && l.strides[1] == l.shape[0] }

// mmGrad1 records grad @ b^T (mm_mat1_backward); a is the layout of the first factor.
func mmGrad1(grad, b *Tensor, a *layout) *Tensor {
	if a.isColumnMajor() {
		return b.mmT(grad).T()
	}
	return grad.mmT(b)
}

// mmGrad2 records a^T @ grad (mm_mat2_backward); b is the layout of the second factor.
func mmGrad2(grad, a *Tensor, b *layout) *Tensor {
	if b.isColumnMajor() {
		return grad.tMM(a).T()
	}
	return a.tMM(grad)
}

// AddMM records torch.addmm(bias, a, b).
func (bias *Tensor) AddMM(a, b *Tensor) *Tensor { return bias.AddMMScaled(a, b, Factors{}) }

// Factors reports which factors in beta * x + alpha * a @ b are not one. Such a factor also multiplies the gradient.
type Factors struct{ Beta, Alpha bool }

// scaledIf multiplies a gradient by a factor, unless the factor is one.
func (g *Tensor) scaledIf(factor bool) *Tensor {
	if factor {
		return g.MulScalar()
	}
	return g
}

// AddMMScaled records torch.addmm(bias, a, b, beta=..., alpha=...).
func (bias *Tensor) AddMMScaled(a, b *Tensor, f Factors) *Tensor {
	c := bias.tape.Begin("addmm", bias, a, b)
	c.CastToLower(&bias, &a, &b)
	return c.End(bias.addmmScaled(a, b, f))
}

// addmm records at::addmm, inside of autocast. cuBLASLt's epilogue adds a bias vector, unless the product has a single
// row or column.
func (bias *Tensor) addmm(a, b *Tensor) *Tensor { return bias.addmmScaled(a, b, Factors{}) }

func (bias *Tensor) addmmScaled(a, b *Tensor, f Factors) *Tensor {
	c := bias.tape.Begin("addmm", bias, a, b)
	c.t.checkShapes(a, b)
	y := c.t.selectedResults(keptAddMM, func() []*Tensor { return []*Tensor{bias.addmmProduct(a, b)} })[0]
	return c.End(y.SetGradFn("AddmmBackward0", inputs{bias, a, b}, savedFactors(a, b), addmmBackward(f)))
}

func (bias *Tensor) addmmProduct(a, b *Tensor) *Tensor {
	t := bias.tape
	m, k, cols := a.shape[0], a.shape[1], b.shape[1]
	y := t.Alloc(a.dtype, m, cols)
	a.prepareMatrix(a.layout)
	b.prepareMatrix(b.layout)
	if len(bias.shape) == 1 && bias.shape[0] == cols && bias.IsContiguous() && k > 1 && cols > 1 {
		t.useLt()
	} else {
		t.UseBLAS()
	}
	t.LaunchGEMM(y, 1, m, cols, k, a, b, bias)
	return y
}

func addmmBackward(f Factors) func(b *Gradients) {
	return inputGradients(
		inputGradient{1, func(w *Gradients) *Tensor {
			return mmGrad1(w.Grad, w.Saved(1), w.input(1).layout).scaledIf(f.Alpha)
		}},
		inputGradient{2, func(w *Gradients) *Tensor {
			return mmGrad2(w.Grad, w.Saved(0), w.input(2).layout).scaledIf(f.Alpha)
		}},
		inputGradient{0, func(w *Gradients) *Tensor { return w.Grad.scaledIf(f.Beta) }},
	)
}

// Linear records torch.nn.functional.linear(x, weight, bias); bias may be nil.
func (x *Tensor) Linear(weight, bias *Tensor) *Tensor {
	if of, split := x.tape.ranks.splits[weight]; split {
		return x.parallelLinear(weight, bias, of)
	}
	if by := x.tape.linear; by != nil {
		f := x.tape.functionFrame()
		return f.Return(by(f, x, weight, bias))
	}
	return x.linearOf(weight, bias, false)
}

// OverrideLinear replaces torch.nn.functional.linear with f; f's bias may be nil.
func (t *Tape) OverrideLinear(f func(f *Frame, x, weight, bias *Tensor) *Tensor) { t.linear = f }

// linearOf records Linear with a rank's part of the weight. If results are summed over ranks, each adds part of the
// bias.
func (x *Tensor) linearOf(weight, bias *Tensor, part bool) *Tensor {
	c := x.tape.Begin("linear", x, weight, bias)
	c.CastToLower(&x, &weight, &bias)
	if part && bias != nil {
		x.tape.NoGrad(func() { c.Bind(bias.DivScalar()) })
	}
	return c.End(c.linear(x, weight, bias))
}

// LinearUncast records at::linear, inside of autocast.
func (x *Tensor) LinearUncast(weight, bias *Tensor) *Tensor {
	c := x.tape.Begin("linear", x, weight, bias)
	return c.End(c.linear(x, weight, bias))
}

func (c *Call) linear(x, weight, bias *Tensor) *Tensor {
	if bias != nil && len(x.shape) == 2 {
		return bias.addmm(x, weight.T())
	}
	if bias != nil && len(x.shape) >= 3 && x.IsContiguous() {
		// This is _flatten_nd_linear.
		lead := x.shape[:len(x.shape)-1]
		flat := c.Bind(x.AsShape([]int64{Numel(lead), x.Size(-1)}))
		y := c.Bind(bias.addmm(flat, weight.T()))
		return y.View(append(append(make([]int64, 0, len(x.shape)), lead...), weight.shape[0])...)
	}
	y := c.Bind(x.MatmulUncast(weight.T()))
	if bias != nil {
		y.AddInPlace(bias)
	}
	return y
}

// BMM records torch.bmm.
func (a *Tensor) BMM(b *Tensor) *Tensor { return a.inLower("bmm", b, (*Tensor).BMMUncast) }

// BMMUncast records at::bmm, inside of autocast.
func (a *Tensor) BMMUncast(b *Tensor) *Tensor {
	c := a.tape.Begin("bmm", a, b)
	y := c.t.selectedResults(keptBMM, func() []*Tensor {
		y := c.t.Alloc(a.dtype, a.shape[0], a.shape[1], b.shape[2])
		c.t.batchedProduct(y, a, b, nil)
		return []*Tensor{y}
	})[0]
	return c.End(y.SetGradFn("BmmBackward0", inputs{a, b}, savedFactors(b, a), inputGradients(
		inputGradient{1, func(w *Gradients) *Tensor { return w.Saved(1).Transpose(1, 2).BMMUncast(w.Grad) }},
		inputGradient{0, func(w *Gradients) *Tensor { return w.Grad.BMMUncast(w.Saved(0).Transpose(1, 2)) }},
	)))
}

// BAddBMM records torch.baddbmm(x, a, b): x + a @ b.
func (x *Tensor) BAddBMM(a, b *Tensor) *Tensor { return x.BAddBMMScaled(a, b, Factors{}) }

// BAddBMMScaled records torch.baddbmm(x, a, b, beta=..., alpha=...).
func (x *Tensor) BAddBMMScaled(a, b *Tensor, f Factors) *Tensor {
	c := x.tape.Begin("baddbmm", x, a, b)
	c.CastToLower(&x, &a, &b)
	return c.End(x.baddbmm(a, b, f))
}

func (x *Tensor) baddbmm(a, b *Tensor, f Factors) *Tensor {
	c := x.tape.Begin("baddbmm", x, a, b)
	y := c.t.Alloc(a.dtype, a.shape[0], a.shape[1], b.shape[2])
	c.t.batchedProduct(y, a, b, x)
	return c.End(y.SetGradFn("BaddbmmBackward0", inputs{x, a, b}, savedFactors(a, b), inputGradients(
		inputGradient{1, func(w *Gradients) *Tensor {
			return w.Grad.BMMUncast(w.Saved(1).Transpose(1, 2)).scaledIf(f.Alpha)
		}},
		inputGradient{2, func(w *Gradients) *Tensor {
			return w.Saved(0).Transpose(1, 2).BMMUncast(w.Grad).scaledIf(f.Alpha)
		}},
		inputGradient{0, func(w *Gradients) *Tensor { return w.Grad.scaledIf(f.Beta) }},
	)))
}

// batchedProduct records bmm_out_cuda_impl: y = a @ b, plus x if there is one.
// cuBLAS is column-major, so a row-major result is computed transposed.
func (t *Tape) batchedProduct(y, a, b, x *Tensor) {
	batch, rows, k, cols := y.shape[0], a.shape[1], a.shape[2], b.shape[2]
	first, second := a, b
	m, n := rows, cols
	transposed := y.strides[1] != 1 || (cols != 1 && y.strides[2] < max(1, rows))
	if transposed {
		first, second = b, a
		m, n = cols, rows
	}
	first.prepareBatch(transposed, m, k)
	second.prepareBatch(transposed, k, n)
	if k > 1 || x != nil || y.dtype == C64 || !t.rules.Operators.RankOneByProduct {
		t.UseBLAS()
	}
	t.LaunchGEMM(y, batch, rows, cols, k, a, b, x)
}

// prepareBatch records prepare_batch_matrix_for_cublas: matrices whose rows and columns are not dense are copied.
func (x *Tensor) prepareBatch(transposed bool, m, n int64) {
	fast, leading := 1, 2
	if transposed {
		fast, leading = 2, 1
	}
	s := x.strides
	switch {
	case s[fast] == 1 && s[leading] >= max(1, m),
		s[leading] == 1 && s[fast] >= max(1, n), x.IsContiguous() && s[1] != 0 && s[2] != 0:
	default:
		x.ContiguousUntracked()
	}
}

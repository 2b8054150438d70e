package trace

import "github.com/vprof/vprof/profiler/program"

// GroupedMM is torch.nn.functional.grouped_mm(x, weight, offs=ends): the rows of x [rows,
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

// GroupsProducts tells whether grouped_mm runs on the board.
func (t *Tape) GroupsProducts() bool { return t.atLeast(80) }

// GroupedMMFallback is transformers' operator grouped_mm_fallback: x [rows, in] times weight
// [groups, in, out], a product after the other into one result. Both gradients are computed,
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
			for i, d := range []*Tensor{dx, dw} {
				if w.needs(i) {
					w.give(i, d)
				}
			}
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

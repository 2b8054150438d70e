package trace

import "github.com/vprof/vprof/profiler/program"

// GroupedMM is torch.nn.functional.grouped_mm(x, weight, offs=ends): the rows of x [rows,
// in] come in groups that end where ends [groups] says, and each group is multiplied by
// its matrix of weight [groups, in, out]. How rows are shared out does not matter to
// memory.
func (x *Tensor) GroupedMM(weight, ends *Tensor) *Tensor {
	t := x.tape
	c := t.begin("_grouped_mm", x, weight, ends)
	y := t.groupedProduct(x, weight, x.shape[0], weight.shape[2])
	if n := t.record("GroupedMmBackward0", x, weight); n != nil {
		n.keep(weight, x.requiresGrad)
		n.keep(x, weight.requiresGrad)
		n.save(ends)
		n.yields(y)
		n.apply = groupedBackward
	}
	return c.end(y)
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

package trace

import "github.com/vprof/vprof/profiler/program"

// launch records a kernel that reads and writes the given tensors and computes
// in the type of the first it writes. A tensor that is its own input and output
// is named on both sides. The op may be completed; it is nil if none was recorded.
func (t *Tape) launch(w program.Work, flops int64, writes, reads []*Tensor) *program.Op {
	if t.hooks.muted || (t.borders.part != Own || t.borders.border != nil) && t.crosses(reads) {
		return nil
	}
	if t.absent != nil {
		t.fetch(reads)
	}
	p := &t.prog
	from := uint32(len(p.Operands))
	t.touch(reads)
	mid := uint32(len(p.Operands))
	t.touch(writes)
	precision := program.FP32
	if len(writes) > 0 {
		precision = writes[0].dtype.precision()
	}
	t.emit(program.Launch, uint32(len(p.Ops)))
	op := extend(&p.Ops)
	op.Work, op.Precision, op.FLOPs, op.Product, op.Stream, op.Group = w, precision, flops, 0, t.stream, 0
	op.Reads.From, op.Reads.To, op.Writes.From, op.Writes.To = from, mid, mid, uint32(len(p.Operands))
	op.Site = t.site()
	return op
}

// touch adds the operands of a launch.
func (t *Tape) touch(xs []*Tensor) {
	for _, x := range xs {
		if x != nil && !x.store.blank {
			operand := extend(&t.prog.Operands)
			operand.Buffer, operand.Bytes = x.store.buffer, min(x.Bytes(), x.store.bytes)
		}
	}
}

// setProduct says that an op, if there is one, is a matrix product. Products of the
// same sizes follow each other closely: one that is in the table and has not been
// displaced by another is not added again.
func (t *Tape) setProduct(op *program.Op, p program.Product) {
	if op == nil {
		return
	}
	recent := &t.products[uint64(p.M+3*p.N+5*p.K+7*p.Batch)%uint64(len(t.products))]
	if *recent == 0 || t.prog.Products[*recent-1] != p {
		push(&t.prog.Products, p)
		*recent = uint32(len(t.prog.Products))
	}
	op.Product = *recent
}

func (t *Tape) launchElementwise(out *Tensor, flopsPerElement int64, ins ...*Tensor) {
	t.launch(program.Elementwise, flopsPerElement*out.numel, []*Tensor{out}, ins)
}

// launchCopy records a copy, which may be a cast: the op's precision is that of the
// narrower of the two types.
func (t *Tape) launchCopy(out, in *Tensor) {
	op := t.launch(program.Copy, 0, []*Tensor{out}, []*Tensor{in})
	if op != nil && (in.dtype == F16 || in.dtype == BF16) {
		op.Precision = in.dtype.precision()
	}
}

func (t *Tape) launchFill(out *Tensor) {
	t.launch(program.Copy, 0, []*Tensor{out}, nil)
}

// touched stands for n elements of x in a launch that does not go through all
// of it.
func (x *Tensor) touched(n int64) *Tensor {
	return x.alias([]int64{min(n, x.numel)}, []int64{1}, x.offset)
}

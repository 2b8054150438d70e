package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Launch records a kernel that reads and writes the given tensors and computes in the type of the first one it writes.
// A tensor that is input and output is in both lists. The caller may add to the returned op, which is nil if none was
// recorded.
func (t *Tape) Launch(w program.Work, flops int64, writes, reads []*Tensor) *program.Op {
	skipped := t.autograd.hooks.unwinding || t.ranks.mayUseOtherDevices() && t.crossesBoundary(reads)
	if t.onEmptyRead != nil && !skipped {
		t.allocateEmptyReads(reads)
	}
	if skipped || t.opts.NoKernels {
		return nil
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
	op.Work, op.Precision, op.FLOPs, op.ProductIndex, op.Stream, op.GroupSize = w, precision, flops, 0, t.stream, 0
	op.Reads.From, op.Reads.To, op.Writes.From, op.Writes.To = from, mid, mid, uint32(len(p.Operands))
	op.Site = t.site()
	op.ChannelsLast = anyChannelsLast(writes) || anyChannelsLast(reads)
	return op
}

func anyChannelsLast(xs []*Tensor) bool {
	return slices.ContainsFunc(xs, func(x *Tensor) bool { return x != nil && x.channelsLast && !x.rowMajor })
}

// touch adds the operands of a kernel.
func (t *Tape) touch(xs []*Tensor) {
	for _, x := range xs {
		if x != nil && !x.store.blank {
			operand := extend(&t.prog.Operands)
			operand.Buffer, operand.Bytes = x.store.buffer, min(x.Bytes(), x.store.bytes)
		}
	}
}

// setProduct sets the matrix product of an op, which may be nil. Products of equal sizes often follow each other, so a
// small hash table avoids adding most of them again.
func (t *Tape) setProduct(op *program.Op, p program.Product) {
	if op == nil {
		return
	}
	recent := &t.products[uint64(p.M+3*p.N+5*p.K+7*p.Batch)%uint64(len(t.products))]
	if *recent == 0 || t.prog.Products[*recent-1] != p {
		push(&t.prog.Products, p)
		*recent = uint32(len(t.prog.Products))
	}
	op.ProductIndex = *recent
}

// LaunchElementwise records a kernel that computes out from ins, element by element.
func (t *Tape) LaunchElementwise(out *Tensor, flopsPerElement int64, ins ...*Tensor) {
	t.Launch(program.Elementwise, flopsPerElement*out.numel, []*Tensor{out}, ins)
}

// LaunchCopy records a copy, possibly with a cast. The op has the precision of the narrower type.
func (t *Tape) LaunchCopy(out, in *Tensor) {
	op := t.Launch(program.Copy, 0, []*Tensor{out}, []*Tensor{in})
	if op != nil && (in.dtype == F16 || in.dtype == BF16) {
		op.Precision = in.dtype.precision()
	}
}

// LaunchFill records a kernel that fills out with numbers.
func (t *Tape) LaunchFill(out *Tensor) {
	t.Launch(program.Copy, 0, []*Tensor{out}, nil)
}

// FirstElements returns an operand with n elements of x, for a kernel that does not process all of x.
func (x *Tensor) FirstElements(n int64) *Tensor {
	return x.Alias([]int64{min(n, x.numel)}, []int64{1}, x.offset)
}

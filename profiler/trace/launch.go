package trace

import "github.com/vprof/vprof/profiler/program"

// launch records a kernel that reads and writes the given tensors. A tensor
// that is its own input and output is named on both sides.
func (t *Tape) launch(op program.Op, writes, reads []*Tensor) {
	if t.hooks.muted {
		return
	}
	p := &t.prog
	from := uint32(len(p.Operands))
	for _, x := range reads {
		if x != nil && !x.store.blank {
			push(&p.Operands, program.Operand{Buffer: x.store.buffer, Bytes: min(x.Bytes(), x.store.bytes)})
		}
	}
	mid := uint32(len(p.Operands))
	for _, x := range writes {
		if x != nil && !x.store.blank {
			push(&p.Operands, program.Operand{Buffer: x.store.buffer, Bytes: min(x.Bytes(), x.store.bytes)})
		}
	}
	op.Reads, op.Writes = program.Span{From: from, To: mid}, program.Span{From: mid, To: uint32(len(p.Operands))}
	if len(writes) > 0 && op.Precision == program.FP32 {
		op.Precision = writes[0].dtype.precision()
	}
	op.Site = t.site()
	push(&p.Ops, op)
	t.emit(program.Launch, uint32(len(p.Ops)-1))
}

// launchProduct is launch for an op that amounts to a matrix product.
func (t *Tape) launchProduct(op program.Op, p program.Product, writes, reads []*Tensor) {
	if t.hooks.muted {
		return
	}
	push(&t.prog.Products, p)
	op.Product = uint32(len(t.prog.Products))
	t.launch(op, writes, reads)
}

func (t *Tape) launchElementwise(out *Tensor, flopsPerElement int64, ins ...*Tensor) {
	t.launch(program.Op{Work: program.Elementwise, FLOPs: flopsPerElement * out.numel}, []*Tensor{out}, ins)
}

func (t *Tape) launchCopy(out, in *Tensor) {
	t.launch(program.Op{Work: program.Copy}, []*Tensor{out}, []*Tensor{in})
}

func (t *Tape) launchFill(out *Tensor) {
	t.launch(program.Op{Work: program.Copy}, []*Tensor{out}, nil)
}

var copyWork = program.Op{Work: program.Copy}

func indexWork(elements int64) program.Op {
	return program.Op{Work: program.Index, FLOPs: elements}
}

// touched stands for n elements of x in a launch that does not go through all
// of it.
func (x *Tensor) touched(n int64) *Tensor {
	return x.alias([]int64{min(n, x.numel)}, []int64{1}, x.offset)
}

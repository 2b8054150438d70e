package trace

import "github.com/vprof/vprof/profiler/program"

// SegmentReduce is torch.segment_reduce(x, how, lengths=lengths, axis=0), or by offsets: the
// rows of each segment make one.
func (x *Tensor) SegmentReduce(lengths, offsets *Tensor) *Tensor {
	t := x.tape
	c := t.begin("segment_reduce", x, lengths, offsets)
	marks, segments := offsets, int64(0)
	if lengths != nil {
		marks, segments = lengths, lengths.Size(-1)
	} else {
		segments = offsets.Size(-1) - 1
	}
	y := c.let(t.empty(x.dtype, append([]int64{segments}, x.shape[1:]...)...))
	x.segments(y, lengths != nil, marks)
	return c.end(y.derived("SegmentReduceBackward0", inputs{x}, saves{x, lengths, offsets, y}, func(b *backward) {
		c := t.begin("_segment_reduce_backward", b.grad)
		x := b.saved(0)
		g := c.let(t.empty(x.dtype, x.shape...))
		x.segments(g, lengths != nil, marks)
		b.give(0, c.end(g))
	}))
}

// segments runs over them; where they begin is summed up from lengths.
func (x *Tensor) segments(y *Tensor, lengths bool, marks *Tensor) {
	c := x.tape.begin("segment_reduce", x)
	if lengths {
		zero := c.let(c.t.empty(I64))
		begins := c.let(c.t.empty(I64, marks.numel+1))
		c.drop(zero)
		c.t.scan(marks, begins)
	} else {
		c.let(c.t.empty(I64, marks.numel-1)) // lengths
	}
	c.t.launch(program.Reduction, x.numel, []*Tensor{y}, []*Tensor{x})
	c.done()
}

package trace

import "github.com/vprof/vprof/profiler/program"

// asStrided is x.as_strided(shape, strides). The backward of a view whose
// elements overlap adds up what came for each element of the storage by index.
func (x *Tensor) asStrided(shape, strides []int64, overlap bool) *Tensor {
	from, fromStrides := x.shape, x.strides
	return x.viewOf("as_strided", "AsStridedBackward0", shape, strides, x.offset, func(b *backward) {
		b.give(0, b.grad.asStridedBackward(from, fromStrides, overlap))
	})
}

func (g *Tensor) asStridedBackward(shape, strides []int64, overlap bool) *Tensor {
	t := g.tape
	c := t.begin("as_strided_backward", g)
	size := int64(1)
	for i, s := range shape {
		size += (s - 1) * strides[i]
	}
	base := c.let(t.empty(g.dtype, size))
	t.launchFill(base)
	if overlap {
		all := c.let(t.empty(I64, size))
		places := t.empty(I64, g.numel)
		t.launchCopy(places, all)
		t.launch(program.Op{Work: program.Index}, []*Tensor{base}, []*Tensor{places, g.reshape([]int64{g.numel})})
		c.statement()
	} else {
		t.launchCopy(base, g)
	}
	return c.end(base.alias(shape, strides, 0))
}

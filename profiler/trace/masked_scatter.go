package trace

import "github.com/vprof/vprof/profiler/program"

// MaskedScatter is x.masked_scatter(mask, source): x with the elements of source, in
// order, where the mask is set. All of source is taken to be used, as where images'
// features take the place of their tokens.
func (x *Tensor) MaskedScatter(mask, source *Tensor) *Tensor {
	c := x.tape.begin("masked_scatter", x, mask, source)
	shape := broadcast(x, mask)
	y := c.t.empty(x.dtype, shape...)
	c.t.launchCopy(y, x)
	c.let(y)
	places := c.let(c.t.empty(I64, shape...)) // maskPrefixSum
	wide := c.let(mask.Expand(shape...).contiguousUntracked())
	from := c.let(source.contiguousUntracked())
	c.t.scan(wide, places)
	c.t.launch(program.Index, y.numel, []*Tensor{y}, []*Tensor{wide, places, from})
	to := source.shape
	return c.end(y.derived("MaskedScatterBackward0", inputs{x, source}, saves{mask}, each(
		partial{0, func(b *backward) *Tensor { return b.grad.MaskedFill(b.saved(0)) }},
		partial{1, func(b *backward) *Tensor { return b.grad.maskedSelected(b.saved(0), to) }},
	)))
}

// maskedSelected is masked_scatter_backward: grad.masked_select(mask) in the shape of the
// source, by way of the places where the mask is set (nonzero).
func (g *Tensor) maskedSelected(mask *Tensor, shape []int64) *Tensor {
	c := g.tape.begin("masked_scatter_backward", g, mask)
	wide := c.let(mask.Expand(g.shape...).contiguousUntracked())
	n := numel(shape)
	y := c.t.empty(g.dtype, shape...)
	c.let(y)
	count := c.let(c.t.empty(I32))
	c.t.launch(program.Reduction, wide.numel, []*Tensor{count}, []*Tensor{wide})
	places := c.let(c.t.empty(I64, int64(len(g.shape)), n))
	c.t.launch(program.Index, n, []*Tensor{places}, []*Tensor{wide})
	c.t.launch(program.Index, n, []*Tensor{y}, []*Tensor{g, places})
	return c.end(y)
}

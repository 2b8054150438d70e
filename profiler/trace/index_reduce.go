package trace

import "github.com/vprof/vprof/profiler/program"

// IndexReduce is x.index_reduce(d, index, source, how) for "mean", "amax" and "amin"; without x
// itself its rows are not counted.
func (x *Tensor) IndexReduce(how string, d int, index, source *Tensor, withSelf bool) *Tensor {
	t := x.tape
	c := t.begin("index_reduce", x, index, source)
	y := c.let(x.like())
	t.launchCopy(y, x)
	if how == "mean" {
		y.indexCounts(index, source)
	}
	t.launch(program.Index, source.numel, []*Tensor{y.touched(source.numel)}, []*Tensor{index, source})
	return c.end(y.derived("IndexReduceBackward0", inputs{x, source}, saves{x, index, source, y}, func(b *backward) {
		c := t.begin("index_reduce_backward", b.grad)
		x, index, source, y := b.saved(0), b.saved(1), b.saved(2), b.saved(3)
		var gx, gs *Tensor
		if how == "mean" {
			gx, gs = indexMeanGrads(b.grad, x, index, source, d)
		} else {
			gx, gs = indexExtremeGrads(b.grad, x, index, source, y, d)
		}
		c.letAll([]*Tensor{gx, gs})
		if !withSelf {
			c.set(&gx, gx.maskedRows(index, d))
		}
		c.endPair(gx, gs)
		b.givePair(gx, gs)
	}))
}

// indexCounts are the divisors of means.
func (x *Tensor) indexCounts(index, source *Tensor) {
	c := x.tape.begin("index_reduce", x)
	counts := c.let(x.like())
	ones := c.let(source.like())
	c.t.launch(program.Index, source.numel, []*Tensor{counts}, []*Tensor{index, ones})
	c.drop(ones)
	c.drop(c.let(counts.compareScalar("eq")))
	c.done()
}

// maskedRows is grad.index_fill(d, index, 0).
func (x *Tensor) maskedRows(index *Tensor, d int) *Tensor {
	c := x.tape.begin("index_fill", x, index)
	y := x.like()
	c.t.launchCopy(y, x)
	return c.end(y)
}

// indexMeanGrads is the part of index_reduce_backward for means.
func indexMeanGrads(grad, x, index, source *Tensor, d int) (gx, gs *Tensor) {
	c := grad.tape.begin("index_reduce_backward", grad)
	n := c.let(grad.OnesLike())
	c.set(&n, n.IndexAdd(d, index, source.OnesLike()))
	n.MaskedFillInPlace(n.compareScalar("eq_Scalar"))
	c.statement()
	gx = c.let(grad.Div(n))
	picked := grad.IndexSelect(d, index)
	gs = c.let(picked.Div(n.IndexSelect(d, index)))
	return c.endPair(gx, gs)
}

// indexExtremeGrads is that for maxima and minima, which share a gradient.
func indexExtremeGrads(grad, x, index, source, result *Tensor, d int) (gx, gs *Tensor) {
	c := grad.tape.begin("index_reduce_backward", grad)
	value := c.let(result.IndexSelect(d, index))
	own := c.let(x.compare("eq", result).to(x.dtype))
	from := c.let(source.compare("eq", value).to(source.dtype))
	n := c.let(own.IndexAdd(d, index, from))
	share := c.let(grad.Div(n))
	gx = c.let(own.Mul(share))
	gs = c.let(from.Mul(share.IndexSelect(d, index)))
	return c.endPair(gx, gs)
}

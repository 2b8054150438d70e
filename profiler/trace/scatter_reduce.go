package trace

import "github.com/vprof/vprof/profiler/program"

// ScatterReduce is x.scatter_reduce(d, index, src, how) for "prod", "mean", "amax"
// and "amin"; without x itself its places are not counted.
func (x *Tensor) ScatterReduce(how string, index, src *Tensor, withSelf bool) *Tensor {
	t := x.tape
	c := t.begin("scatter_reduce_two", x, index, src)
	y := c.let(x.scattered("scatter_reduce_two", index, src))
	if how == "mean" {
		y.scatterCounts(index, src)
	}
	if n := t.record("ScatterReduceBackward0", x, src); n != nil {
		n.save(index, x, src, y)
		n.setOutputs(y)
		gradient := map[string]func(*backward, *Tensor) (*Tensor, *Tensor){
			"prod": scatterProductGrads, "mean": scatterMeanGrads, "amax": scatterExtremeGrads,
			"amin": scatterExtremeGrads,
		}[how]
		n.apply = func(b *backward) {
			c := t.begin("scatter_reduce_backward", b.grad)
			gx, gsrc := gradient(b, c.let(b.grad))
			if !withSelf {
				gx = gx.scattered("scatter_value", b.saved(0))
			}
			c.endPair(gx, gsrc)
			b.givePair(gx, gsrc)
		}
	}
	return c.end(y)
}

// scatterCounts are the divisors of means: how many numbers meet in each place.
func (x *Tensor) scatterCounts(index, src *Tensor) {
	c := x.tape.begin("scatter_reduce_two", x)
	ones := c.let(src.OnesLike())
	count := c.let(x.OnesLike())
	x.tape.launchElementwise(count, 1, index, ones)
	c.let(count.compareScalar("eq_Scalar"))
	c.done()
}

// scatterMeanGrads is the part of scatter_reduce_backward for means.
func scatterMeanGrads(b *backward, grad *Tensor) (gx, gsrc *Tensor) {
	index, src := b.saved(0), b.saved(2)
	c := grad.tape.begin("scatter_reduce_backward", grad)
	n := c.let(grad.OnesLike())
	c.set(&n, n.ScatterAdd(index, src.OnesLike()))
	n.MaskedFillInPlace(n.compareScalar("eq_Scalar"))
	c.statement()
	gx = grad.Div(n)
	counts := n.Gather(index)
	gsrc = grad.Gather(index).Div(counts)
	return c.endPair(gx, gsrc)
}

// scatterExtremeGrads is that for maxima and minima, which share a gradient.
func scatterExtremeGrads(b *backward, grad *Tensor) (gx, gsrc *Tensor) {
	index, self, src, result := b.saved(0), b.saved(1), b.saved(2), b.saved(3)
	c := grad.tape.begin("scatter_reduce_backward", grad)
	value := c.let(result.Gather(index))
	own := c.let(self.compare("eq", result).to(self.dtype))
	from := c.let(src.compare("eq", value).to(src.dtype))
	n := c.let(own.ScatterAdd(index, from))
	share := c.let(grad.Div(n))
	gx = c.let(self.compare("eq", result).Mul(share))
	picked := share.Gather(index)
	gsrc = c.let(src.compare("eq", value).Mul(picked))
	return c.endPair(gx, gsrc)
}

// scatterProductGrads is that for products, with the cases of none, one and more
// zeros apart.
func scatterProductGrads(b *backward, grad *Tensor) (gx, gsrc *Tensor) {
	index, self, src, result := b.saved(0), b.saved(1), b.saved(2), b.saved(3)
	c := grad.tape.begin("scatter_reduce_backward", grad)
	masked := c.let(self.maskedCopy())
	others := c.let(masked.scattered("scatter_reduce_two", index, src))
	product := grad.Mul(others)
	gx = c.let(product.Div(masked))
	zero := c.let(src.compareScalar("eq"))
	zeros := self.ZerosLike()
	counts := zeros.ScatterAdd(index, zero.to(src.dtype)).Gather(index)
	counts = c.let(counts)
	single := counts.compareScalar("eq")
	single = c.let(single.compare("bitwise_and", zero))
	c.let(src.like())
	masked = c.let(result.like())
	c.let(src.like())
	c.let(result.like())
	c.let(src.like())
	c.let(src.like())
	c.let(result.like())
	c.let(src.like())
	gsrc = c.let(src.like())
	c.t.launchElementwise(gsrc, 4, grad, masked, single)
	return c.endPair(gx, gsrc)
}

// maskedCopy is x.masked_fill(x == 0, 1).
func (x *Tensor) maskedCopy() *Tensor {
	c := x.tape.begin("masked_fill", x)
	zero := c.let(x.compareScalar("eq"))
	y := x.like()
	x.tape.launchElementwise(y, 1, x, zero)
	return c.end(y)
}

// like is an empty tensor of the shape and type of x.
func (x *Tensor) like() *Tensor { return x.emptyLike(x.dtype) }

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

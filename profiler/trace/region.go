package trace

import "github.com/vprof/vprof/profiler/program"

// RegionArgs are the arguments of torchvision's operators on regions of interest.
type RegionArgs struct {
	Op     string // "roi_align", "roi_pool", "ps_roi_align"
	Height int64  // of a region's result
	Width  int64
	// Channels is the number of the result's channels: as many as x has, or for
	// ps_roi_align divided by the result's positions.
	Channels int64
	// Places reports whether the operator also returns where its values are from: 32-bit
	// integers of the same shape.
	Places bool
}

// Regions returns a torchvision operator on regions of x [batch, channels, height, width]; rois are
// [regions, 5]. Autocast runs it in fp32 and gives the result the type of x.
func (x *Tensor) Regions(rois *Tensor, a RegionArgs) (y, places *Tensor) {
	t := x.tape
	c := t.begin(a.Op, x, rois)
	d := x.dtype
	c.full(&x, &rois)
	y = c.let(t.Zeros(x.dtype, rois.shape[0], a.Channels, a.Height, a.Width))
	if a.Places {
		places = c.let(t.Zeros(I32, y.shape...))
	}
	in, at := c.let(x.contiguousUntracked()), c.let(rois.contiguousUntracked())
	t.launch(program.Index, 8*y.numel, []*Tensor{y}, []*Tensor{in.touched(4 * y.numel), at})
	from := x.shape
	y.derived(a.Op+"_backward", inputs{x}, saves{rois, places}, func(b *backward) {
		c := t.begin("_"+a.Op+"_backward", b.grad, b.saved(0))
		if places := b.saved(1); places != nil {
			c.let(t.Zeros(places.dtype, places.shape...)) // its gradient, of which none came
		}
		g := c.let(t.Zeros(b.grad.dtype, from...))
		at := c.let(b.saved(0).contiguousUntracked())
		t.launch(program.Index, 8*b.grad.numel, []*Tensor{g.touched(4 * b.grad.numel)}, []*Tensor{b.grad, at})
		b.give(0, c.end(g))
	})
	return c.endPair(y.to(d), places)
}

// DeformConv2DArgs are the inputs of torchvision's deform_conv2d besides x.
type DeformConv2DArgs struct {
	Weight, Offset, Mask, Bias *Tensor
	Stride, Padding, Dilation  [2]int64
	Groups                     int64
}

// deformParallelImages is kMaxParallelImgs: the most images that deform_conv2d samples at once.
const deformParallelImages = 32

// DeformConv2D records torchvision.ops.deform_conv2d. It samples x at the offsets, one column for
// each position of the result, and multiplies the columns by the weight.
func (x *Tensor) DeformConv2D(a DeformConv2DArgs) *Tensor {
	c := x.tape.begin("deform_conv2d", x, a.Weight, a.Offset, a.Mask)
	d := x.dtype
	c.full(&x, &a.Weight, &a.Offset, &a.Mask, &a.Bias)
	at := a.plan(x)
	in := c.let(x.contiguousUntracked())
	out := c.let(c.t.Zeros(x.dtype, x.shape[0], at.outputs, at.height, at.width))
	products := c.let(c.t.Zeros(x.dtype, out.shape...))
	columns := c.let(c.t.Zeros(x.dtype, at.taps, at.images*at.height*at.width))
	for range x.shape[0] / at.images {
		c.t.launch(program.Index, 8*columns.numel, []*Tensor{columns}, []*Tensor{in, a.Offset, a.Mask})
		c.t.useBLAS()
		c.t.launchGEMM(products, a.Groups, at.outputs/a.Groups, columns.shape[1], at.taps/a.Groups, a.Weight, columns)
	}
	c.t.launchCopy(out, products)
	y := c.let(out.emptyLike(x.dtype))
	c.t.launchElementwise(y, 1, out, a.Bias)
	y.derived("deform_conv2d_backward", inputs{x, a.Weight, a.Offset, a.Mask, a.Bias},
		saves{x, a.Weight, a.Offset, a.Mask, a.Bias},
		func(b *backward) { b.giveAll(a.gradients(b, at)...) })
	return c.end(y.to(d))
}

// deformation has the sizes of a deform_conv2d.
type deformation struct {
	outputs, height, width int64
	// taps is the number of rows of a column, images how many are sampled at once.
	taps, images int64
}

func (a *DeformConv2DArgs) plan(x *Tensor) deformation {
	w := a.Weight.shape
	size := func(i int) int64 {
		return (x.shape[2+i]+2*a.Padding[i]-a.Dilation[i]*(w[2+i]-1)-1)/a.Stride[i] + 1
	}
	images := min(deformParallelImages, x.shape[0])
	for x.shape[0]%images != 0 {
		images--
	}
	return deformation{w[0], size(0), size(1), x.shape[1] * w[2] * w[3], images}
}

// gradients returns the gradients of x, weight, offset, mask and bias, in the order of
// _deform_conv2d_backward.
func (a *DeformConv2DArgs) gradients(b *backward, at deformation) []*Tensor {
	t := b.t
	x, weight, offset, mask := b.saved(0), b.saved(1), b.saved(2), b.saved(3)
	c := t.begin("_deform_conv2d_backward", b.grad, x, weight, offset)
	zeros := func(x *Tensor) *Tensor { return c.let(t.Zeros(x.dtype, x.shape...)) }
	grad := c.let(b.grad.contiguousUntracked())
	gx, goffset, gmask := zeros(x), zeros(offset), zeros(mask)
	rounds := x.shape[0] / at.images
	columns := c.let(t.empty(x.dtype, at.taps, at.images*at.height*at.width))
	for range rounds {
		t.useBLAS()
		t.launchGEMM(columns, a.Groups, at.taps/a.Groups, columns.shape[1], at.outputs/a.Groups, weight, grad)
		t.launch(program.Index, 8*columns.numel, []*Tensor{gx, goffset, gmask}, []*Tensor{columns, x, offset, mask})
	}
	c.drop(columns)
	gweight := zeros(weight)
	ordered := c.let(grad.emptyLike(grad.dtype))
	t.launchCopy(ordered, grad)
	columns = c.let(t.Zeros(x.dtype, at.taps, at.images*at.height*at.width))
	for range rounds {
		t.launch(program.Index, 8*columns.numel, []*Tensor{columns}, []*Tensor{x, offset, mask})
		t.useBLAS()
		t.launchGEMM(gweight, a.Groups, at.outputs/a.Groups, at.taps/a.Groups, columns.shape[1], ordered, columns)
	}
	c.dropLocals(columns, ordered)
	sums := grad.Sum(false, 0, 2, 3)
	gbias := c.let(sums.OnesLike().Mul(sums))
	out := []*Tensor{gx.retain(), gweight.retain(), goffset.retain(), gmask.retain(), gbias.retain()}
	c.finish()
	return out
}

package ops

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// RegionArgs are the arguments of torchvision's operators on regions of interest.
type RegionArgs struct {
	Op     string // "roi_align", "roi_pool", "ps_roi_align"
	Height int64  // of a region's result
	Width  int64
	// Channels is the result's number of channels: that of x, divided by the output positions for ps_roi_align.
	Channels int64
	// Places reports whether the operator also returns the input position of each output value, as 32-bit integers.
	Places bool
}

// Regions records an operator of torchvision on regions of interest, such as roi_align, with x [batch, channels,
// height, width] and rois [regions, 5]. Autocast runs it in fp32 and converts the result to the dtype of x.
func Regions(x *tensor, rois *tensor, a RegionArgs) (y, places *tensor) {
	t := x.Tape()
	c := t.Begin(a.Op, x, rois)
	d := x.DType()
	c.CastToFP32(&x, &rois)
	y = c.Bind(t.Zeros(x.DType(), rois.Shape()[0], a.Channels, a.Height, a.Width))
	if a.Places {
		places = c.Bind(t.Zeros(trace.I32, y.Shape()...))
	}
	in, at := c.Bind(x.ContiguousUntracked()), c.Bind(rois.ContiguousUntracked())
	t.Launch(program.Index, 8*y.Numel(), []*tensor{y}, []*tensor{in.FirstElements(4 * y.Numel()), at})
	from := x.Shape()
	y.SetGradFn(a.Op+"_backward", inputs{x}, saves{rois, places}, func(b *backward) {
		c := t.Begin("_"+a.Op+"_backward", b.Grad, b.Saved(0))
		if places := b.Saved(1); places != nil {
			c.Bind(t.Zeros(places.DType(), places.Shape()...)) // zeros for its missing gradient
		}
		g := c.Bind(t.Zeros(b.Grad.DType(), from...))
		at := c.Bind(b.Saved(0).ContiguousUntracked())
		t.Launch(program.Index, 8*b.Grad.Numel(), []*tensor{g.FirstElements(4 * b.Grad.Numel())}, []*tensor{b.Grad, at})
		b.Set(0, c.End(g))
	})
	return c.EndPair(y.AsType(d), places)
}

// DeformConv2DArgs are the arguments of torchvision's deform_conv2d besides x.
type DeformConv2DArgs struct {
	Weight, Offset, Mask, Bias *tensor
	Stride, Padding, Dilation  [2]int64
	Groups                     int64
}

// deformParallelImages is kMaxParallelImgs: the largest number of images that deform_conv2d samples at once.
const deformParallelImages = 32

// DeformConv2D records torchvision.ops.deform_conv2d. It samples x at the offsets, into one column for each output
// position, and multiplies the columns by the weight.
func DeformConv2D(x *tensor, a DeformConv2DArgs) *tensor {
	c := x.Tape().Begin("deform_conv2d", x, a.Weight, a.Offset, a.Mask)
	d := x.DType()
	c.CastToFP32(&x, &a.Weight, &a.Offset, &a.Mask, &a.Bias)
	at := a.plan(x)
	in := c.Bind(x.ContiguousUntracked())
	out := c.Bind(c.Tape().Zeros(x.DType(), x.Shape()[0], at.outputs, at.height, at.width))
	products := c.Bind(c.Tape().Zeros(x.DType(), out.Shape()...))
	columns := c.Bind(c.Tape().Zeros(x.DType(), at.taps, at.images*at.height*at.width))
	for range x.Shape()[0] / at.images {
		c.Tape().Launch(program.Index, 8*columns.Numel(), []*tensor{columns}, []*tensor{in, a.Offset, a.Mask})
		c.Tape().UseBLAS()
		c.Tape().LaunchGEMM(products, a.Groups, at.outputs/a.Groups, columns.Shape()[1], at.taps/a.Groups,
			a.Weight, columns)
	}
	c.Tape().LaunchCopy(out, products)
	y := c.Bind(out.AllocLike(x.DType()))
	c.Tape().LaunchElementwise(y, 1, out, a.Bias)
	y.SetGradFn("deform_conv2d_backward", inputs{x, a.Weight, a.Offset, a.Mask, a.Bias},
		saves{x, a.Weight, a.Offset, a.Mask, a.Bias}, func(b *backward) { b.SetAll(a.gradients(b, at)...) })
	return c.End(y.AsType(d))
}

// deformation holds the sizes of a deform_conv2d call.
type deformation struct {
	outputs, height, width int64
	// taps is the length of a column, images the number of images that are sampled at once.
	taps, images int64
}

func (a *DeformConv2DArgs) plan(x *tensor) deformation {
	w := a.Weight.Shape()
	size := func(i int) int64 {
		return (x.Shape()[2+i]+2*a.Padding[i]-a.Dilation[i]*(w[2+i]-1)-1)/a.Stride[i] + 1
	}
	images := min(deformParallelImages, x.Shape()[0])
	for x.Shape()[0]%images != 0 {
		images--
	}
	return deformation{w[0], size(0), size(1), x.Shape()[1] * w[2] * w[3], images}
}

// gradients records _deform_conv2d_backward: the gradients of x, weight, offset, mask and bias.
func (a *DeformConv2DArgs) gradients(b *backward, at deformation) []*tensor {
	t := b.Tape()
	x, weight, offset, mask := b.Saved(0), b.Saved(1), b.Saved(2), b.Saved(3)
	c := t.Begin("_deform_conv2d_backward", b.Grad, x, weight, offset)
	zeros := func(x *tensor) *tensor { return c.Bind(t.Zeros(x.DType(), x.Shape()...)) }
	grad := c.Bind(b.Grad.ContiguousUntracked())
	gx, goffset, gmask := zeros(x), zeros(offset), zeros(mask)
	rounds := x.Shape()[0] / at.images
	columns := c.Bind(t.Alloc(x.DType(), at.taps, at.images*at.height*at.width))
	for range rounds {
		t.UseBLAS()
		t.LaunchGEMM(columns, a.Groups, at.taps/a.Groups, columns.Shape()[1], at.outputs/a.Groups, weight, grad)
		t.Launch(program.Index, 8*columns.Numel(), []*tensor{gx, goffset, gmask}, []*tensor{columns, x, offset, mask})
	}
	c.Drop(columns)
	gweight := zeros(weight)
	ordered := c.Bind(grad.AllocLike(grad.DType()))
	t.LaunchCopy(ordered, grad)
	columns = c.Bind(t.Zeros(x.DType(), at.taps, at.images*at.height*at.width))
	for range rounds {
		t.Launch(program.Index, 8*columns.Numel(), []*tensor{columns}, []*tensor{x, offset, mask})
		t.UseBLAS()
		t.LaunchGEMM(gweight, a.Groups, at.outputs/a.Groups, at.taps/a.Groups, columns.Shape()[1], ordered, columns)
	}
	c.DropAll(columns, ordered)
	sums := grad.Sum(false, 0, 2, 3)
	gbias := c.Bind(sums.OnesLike().Mul(sums))
	out := []*tensor{gx.Retain(), gweight.Retain(), goffset.Retain(), gmask.Retain(), gbias.Retain()}
	c.Finish()
	return out
}

package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// PoolArgs are the arguments of a pooling operator: one number per spatial dimension, or a single one for all. An empty
// Stride means the size of the kernel.
type PoolArgs struct {
	Kernel, Stride, Padding, Dilation []int64
	// Ceil is ceil_mode: the output size is rounded up.
	Ceil bool
}

// OutShape returns the shape of the result for input x with dims spatial dimensions (pooling_output_shape).
func (a PoolArgs) OutShape(x *Tensor) []int64 {
	dims := len(x.shape) - 2
	kernel := Spatial(a.Kernel, dims, 1)
	stride, padding, dilation := kernel, Spatial(a.Padding, dims, 0), Spatial(a.Dilation, dims, 1)
	if len(a.Stride) > 0 {
		stride = Spatial(a.Stride, dims, 1)
	}
	shape := append([]int64(nil), x.shape...)
	for i := range dims {
		in := x.shape[i+2]
		room := in + 2*padding[i] - dilation[i]*(kernel[i]-1) - 1
		if a.Ceil {
			room += stride[i] - 1
		}
		out := room/stride[i] + 1
		if a.Ceil && (out-1)*stride[i] >= in+padding[i] {
			out--
		}
		shape[i+2] = out
	}
	return shape
}

// shapeWithSizes returns the shape of x with sizes in place of its last dimensions.
func (x *Tensor) shapeWithSizes(sizes []int64) []int64 {
	return slices.Concat(x.shape[:len(x.shape)-len(sizes)], sizes)
}

// Window returns the number of input elements that are reduced to one output element.
func (a PoolArgs) Window(x *Tensor) int64 { return Numel(Spatial(a.Kernel, len(x.shape)-2, 1)) }

// asTwoDimensional returns the arguments for images with a height of one, as PyTorch runs one-dimensional pooling.
func (a PoolArgs) asTwoDimensional() PoolArgs {
	two := func(v []int64, first int64) []int64 {
		if len(v) == 0 {
			return nil
		}
		return []int64{first, v[0]}
	}
	a.Kernel, a.Stride = two(a.Kernel, 1), two(a.Stride, 1)
	a.Padding, a.Dilation = two(a.Padding, 0), two(a.Dilation, 1)
	return a
}

var (
	maxPoolNames = [...]string{"", "max_pool1d", "max_pool2d", "max_pool3d"}
	maxPoolNodes = [...]string{"", "", "MaxPool2DWithIndicesBackward0", "MaxPool3DWithIndicesBackward0"}
	avgPoolNames = [...]string{"", "avg_pool1d", "avg_pool2d", "avg_pool3d"}
	avgPoolNodes = [...]string{"", "", "AvgPool2DBackward0", "AvgPool3DBackward0"}
)

// MaxPool records torch.nn.functional.max_pool1d, 2d or 3d, by the dimensions of x.
func (x *Tensor) MaxPool(args PoolArgs) *Tensor {
	return x.pool(&maxPoolNames, args, (*Tensor).maxPool)
}

// pool records a pooling operator; names has its name for each number of spatial dimensions. With one dimension, x is
// pooled as an image of height one.
func (x *Tensor) pool(names *[4]string, args PoolArgs, pool func(x *Tensor, args PoolArgs) *Tensor) *Tensor {
	dims := len(x.shape) - 2
	c := x.tape.Begin(names[dims], x)
	if dims == 1 {
		return c.End(pool(x.Unsqueeze(-2), args.asTwoDimensional()).Squeeze(-2))
	}
	return c.End(pool(x, args))
}

func (x *Tensor) maxPool(args PoolArgs) *Tensor {
	c := x.tape.Begin("max_pool_with_indices", x)
	y, _ := x.poolWithIndices(args)
	return c.End(y)
}

// MaxPoolIndices records max_pool2d or 3d with return_indices=True.
func (x *Tensor) MaxPoolIndices(args PoolArgs) (y, indices *Tensor) {
	c := x.tape.Begin("max_pool_with_indices", x)
	if len(x.shape) == 3 {
		y, indices = x.Unsqueeze(-2).MaxPoolIndices(args.asTwoDimensional())
		return c.EndPair(y.Squeeze(-2), indices.Squeeze(-2))
	}
	return c.EndPair(x.poolWithIndices(args))
}

// AdaptiveMaxPoolIndices records adaptive_max_pool1d, 2d or 3d to the given spatial sizes, with indices.
func (x *Tensor) AdaptiveMaxPoolIndices(sizes ...int64) (y, indices *Tensor) {
	c := x.tape.Begin("adaptive_max_pool", x)
	if len(sizes) == 1 {
		y, indices = x.Unsqueeze(-2).AdaptiveMaxPoolIndices(1, sizes[0])
		return c.EndPair(y.Squeeze(-2), indices.Squeeze(-2))
	}
	shape := x.shapeWithSizes(sizes)
	return c.EndPair(x.adaptiveMaxPool(shape))
}

// adaptiveMaxPool records adaptive_max_pool2d or 3d. The result has the layout of x, but the kernels need contiguous
// tensors, so others are copied before and after.
func (x *Tensor) adaptiveMaxPool(shape []int64) (y, indices *Tensor) {
	c := x.tape.Begin("adaptive_max_pool2d", x)
	last := x.SuggestsChannelsLast()
	y, indices = c.Bind(c.t.AllocIn(x.dtype, shape, last)), c.Bind(c.t.AllocIn(I64, shape, last))
	var out, places *Tensor
	if !y.IsContiguous() {
		out, places = c.Bind(c.t.Alloc(x.dtype, shape...)), c.Bind(c.t.Alloc(I64, shape...))
	}
	in := c.Bind(x.ContiguousUntracked())
	c.t.Launch(program.Reduction, x.numel, []*Tensor{y, indices}, []*Tensor{in})
	y.SetGradFn("AdaptiveMaxPool2DBackward0", inputs{x}, saves{x, indices},
		func(b *Gradients) { b.Set(0, adaptiveUnpool(b.Grad, b.Saved(0), b.Saved(1))) })
	c.DropAll(in, places, out)
	return c.EndPair(y, indices)
}

// adaptiveUnpool records adaptive_max_pool2d_backward.
func adaptiveUnpool(g, x, indices *Tensor) *Tensor {
	c := g.tape.Begin("adaptive_max_pool2d_backward", g)
	gx := c.Bind(c.t.AllocIn(x.dtype, x.shape, x.SuggestsChannelsLast()))
	g, indices = c.Bind(g.ContiguousUntracked()), c.Bind(indices.ContiguousUntracked())
	if !gx.IsContiguous() {
		c.Bind(c.t.Alloc(x.dtype, x.shape...))
	}
	c.t.Launch(program.Index, g.numel, []*Tensor{gx}, []*Tensor{g, indices})
	return c.End(gx)
}

// AdaptiveMaxPool records torch.nn.functional.adaptive_max_pool2d (or 3d) to the given spatial sizes.
func (x *Tensor) AdaptiveMaxPool(sizes ...int64) *Tensor {
	c := x.tape.Begin("adaptive_max_pool2d", x)
	shape := x.shapeWithSizes(sizes)
	y, _ := x.adaptiveMaxPool(shape)
	return c.End(y)
}

// poolWithIndices records a max pooling that keeps the 64-bit index of each maximum.
func (x *Tensor) poolWithIndices(args PoolArgs) (y, indices *Tensor) {
	c := x.tape.Begin("max_pool_with_indices", x)
	shape, last := args.OutShape(x), x.SuggestsChannelsLast()
	y = c.Bind(c.t.AllocIn(x.dtype, shape, last))
	indices = c.Bind(c.t.AllocIn(I64, shape, last))
	in := c.Bind(x.ContiguousIn(last))
	c.t.Launch(program.Reduction, y.numel*args.Window(x), []*Tensor{y, indices}, []*Tensor{in})
	y.SetGradFn(maxPoolNodes[len(x.shape)-2], inputs{x}, saves{x, indices},
		func(b *Gradients) { b.Set(0, b.Grad.unpool(b.Saved(0), b.Saved(1), last)) })
	c.DropAll(in)
	return c.EndPair(y, indices)
}

// unpool records the backward of max pooling, which adds each gradient to the element that was the maximum.
func (g *Tensor) unpool(x, indices *Tensor, last bool) *Tensor {
	c := g.tape.Begin("max_pool_with_indices_backward", g)
	gx := c.Bind(c.t.AllocIn(x.dtype, x.shape, x.SuggestsChannelsLast()))
	g = c.Bind(g.ContiguousIn(last))
	if !last && !gx.IsContiguous() {
		c.Bind(c.t.Alloc(x.dtype, x.shape...))
	}
	c.t.Launch(program.Index, 0, []*Tensor{gx}, []*Tensor{g, indices})
	return c.End(gx)
}

// AvgPool records torch.nn.functional.avg_pool1d, 2d or 3d, by the dimensions of x.
func (x *Tensor) AvgPool(args PoolArgs) *Tensor {
	return x.pool(&avgPoolNames, args, func(x *Tensor, args PoolArgs) *Tensor {
		return x.meanPool(avgPoolNodes[len(x.shape)-2], args.OutShape(x), args.Window(x))
	})
}

// meanPool records a pooling whose backward distributes the gradient equally over each window.
func (x *Tensor) meanPool(node string, shape []int64, window int64) *Tensor {
	t := x.tape
	c := t.Begin("avg_pool", x)
	last := x.SuggestsChannelsLast()
	y := c.Bind(t.AllocIn(x.dtype, shape, last))
	in := c.Bind(x.ContiguousIn(last))
	t.Launch(program.Reduction, y.numel*window, []*Tensor{y}, []*Tensor{in})
	return c.End(y.SetGradFn(node, inputs{x}, saves{x}, func(b *Gradients) {
		x := b.Saved(0)
		last := x.SuggestsChannelsLast()
		c := t.Begin("avg_pool_backward", b.Grad)
		gx := c.Bind(t.AllocIn(x.dtype, x.shape, last))
		t.LaunchElementwise(gx, window, c.Bind(b.Grad.ContiguousIn(last)))
		b.Set(0, c.End(gx))
	}))
}

var (
	adaptiveNames = [...]string{"", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}
	adaptiveNodes = [...]string{"", "", "AdaptiveAvgPool2DBackward0", "AdaptiveAvgPool3DBackward0"}
)

// AdaptiveAvgPool records torch.nn.functional.adaptive_avg_pool1d, 2d or 3d to the given spatial sizes.
func (x *Tensor) AdaptiveAvgPool(sizes ...int64) *Tensor {
	dims := len(sizes)
	c := x.tape.Begin(adaptiveNames[dims], x)
	if dims == 1 {
		return c.End(x.Unsqueeze(-2).adaptiveAvgPool([]int64{1, sizes[0]}).Squeeze(-2))
	}
	return c.End(x.adaptiveAvgPool(sizes))
}

// adaptiveAvgPool records adaptive_avg_pool2d or 3d; a result of one value per channel is recorded as a mean.
func (x *Tensor) adaptiveAvgPool(sizes []int64) *Tensor {
	c := x.tape.Begin("adaptive_avg_pool2d_symint", x)
	shape := x.shapeWithSizes(sizes)
	if Numel(sizes) != 1 {
		return c.End(x.meanPool(adaptiveNodes[len(sizes)], shape, x.numel/max(Numel(shape), 1)))
	}
	y := c.Bind(x.Mean(true, []int{-1, -2, -3}[:len(sizes)]...))
	if x.SuggestsChannelsLast() {
		c.Set(&y, y.asStrided(geometry{shape, channelsLastStrides(nil, shape)}, y.offset))
	}
	return c.End(y)
}

// MaxUnpool records max_unpool2d or 3d to the given spatial sizes: the elements of x are written at the given indices,
// among zeros. The kernels need contiguous tensors.
func (x *Tensor) MaxUnpool(indices *Tensor, sizes ...int64) *Tensor {
	t := x.tape
	c := t.Begin("max_unpool", x, indices)
	shape := x.shapeWithSizes(sizes)
	in := c.Bind(x.ContiguousUntracked())
	places := c.Bind(indices.ContiguousUntracked())
	y := c.Bind(t.Zeros(x.dtype, shape...))
	t.Launch(program.Index, x.numel, []*Tensor{y.FirstElements(x.numel)}, []*Tensor{in, places})
	node := map[int]string{2: "MaxUnpool2DBackward0", 3: "MaxUnpool3DBackward0"}[len(sizes)]
	from := x.shape
	return c.End(y.SetGradFn(node, inputs{x}, saves{indices}, func(b *Gradients) {
		c := t.Begin("max_unpool_backward", b.Grad, b.Saved(0))
		flat := append(slices.Clone(from[:len(from)-len(sizes)]), -1)
		index := c.Bind(b.Saved(0).View(flat...))
		grad := c.Bind(b.Grad.ContiguousUntracked().View(flat...))
		g := c.Bind(t.Alloc(b.Grad.dtype, index.shape...))
		t.Launch(program.Index, g.numel, []*Tensor{g}, []*Tensor{grad, index})
		b.Set(0, c.End(g.View(from...)))
	}))
}

// FractionalMaxPool records fractional_max_pool2d or 3d: the maxima of windows at random positions, and their indices.
func (x *Tensor) FractionalMaxPool(samples *Tensor, sizes ...int64) (y, indices *Tensor) {
	t := x.tape
	c := t.Begin("fractional_max_pool", x, samples)
	shape := x.shapeWithSizes(sizes)
	y, indices = c.Bind(t.Alloc(x.dtype, shape...)), c.Bind(t.Alloc(I64, shape...))
	in := c.Bind(x.ContiguousUntracked())
	t.Launch(program.Reduction, x.numel, []*Tensor{y, indices}, []*Tensor{in, samples})
	node := map[int]string{2: "FractionalMaxPool2DBackward0", 3: "FractionalMaxPool3DBackward0"}[len(sizes)]
	y.SetGradFn(node, inputs{x}, saves{x, indices}, func(b *Gradients) {
		c := t.Begin("fractional_max_pool_backward", b.Grad, b.Saved(0), b.Saved(1))
		g := c.Bind(t.Zeros(b.Grad.dtype, b.Saved(0).shape...))
		t.Launch(program.Index, b.Grad.numel, []*Tensor{g.FirstElements(b.Grad.numel)}, []*Tensor{b.Grad, b.Saved(1)})
		b.Set(0, c.End(g))
	})
	return c.EndPair(y, indices)
}

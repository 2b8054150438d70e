package trace

import "slices"

// upsampling describes torch.nn.functional.interpolate in one mode.
type upsampling struct {
	op, node string
	// channelsLast says whether the backward kernel knows that layout.
	channelsLast bool
	flops        int64 // of one output
	// contiguous kernels write and read contiguous tensors alone, and copy others.
	contiguous bool
}

var (
	nearestUpsampling = [...]upsampling{
		{},
		{"upsample_nearest1d", "UpsampleNearest1DBackward0", false, 1, false},
		{"upsample_nearest2d", "UpsampleNearest2DBackward0", true, 1, false},
		{"upsample_nearest3d", "UpsampleNearest3DBackward0", false, 1, false},
	}
	linearUpsampling = [...]upsampling{
		{},
		{"upsample_linear1d", "UpsampleLinear1DBackward0", false, 4, false},
		{"upsample_bilinear2d", "UpsampleBilinear2DBackward0", true, 12, false},
		{"upsample_trilinear3d", "UpsampleTrilinear3DBackward0", false, 28, false},
	}
	bicubicUpsampling = upsampling{"upsample_bicubic2d", "UpsampleBicubic2DBackward0", false, 60, false}
)

var (
	exactUpsampling = [...]upsampling{
		{},
		{"_upsample_nearest_exact1d", "UpsampleNearestExact1DBackward0", false, 1, false},
		{"_upsample_nearest_exact2d", "UpsampleNearestExact2DBackward0", true, 1, false},
		{"_upsample_nearest_exact3d", "UpsampleNearestExact3DBackward0", false, 1, false},
	}
	bilinearAntialiasing = upsampling{"_upsample_bilinear2d_aa", "UpsampleBilinear2DAaBackward0", true, 24, true}
	bicubicAntialiasing  = upsampling{"_upsample_bicubic2d_aa", "UpsampleBicubic2DAaBackward0", false, 120, true}
)

// UpsampleNearestExact records interpolate(x, sizes, mode="nearest-exact").
func (x *Tensor) UpsampleNearestExact(sizes ...int64) *Tensor {
	return x.upsample(&exactUpsampling[len(sizes)], sizes)
}

// UpsampleLinearAntialiased records interpolate(x, sizes, mode="bilinear",
// antialias=True).
func (x *Tensor) UpsampleLinearAntialiased(sizes ...int64) *Tensor {
	return x.upsample(&bilinearAntialiasing, sizes)
}

// UpsampleBicubicAntialiased records interpolate(x, sizes, mode="bicubic",
// antialias=True).
func (x *Tensor) UpsampleBicubicAntialiased(sizes ...int64) *Tensor {
	return x.upsample(&bicubicAntialiasing, sizes)
}

// UpsampleNearest records torch.nn.functional.interpolate(x, sizes, mode="nearest").
func (x *Tensor) UpsampleNearest(sizes ...int64) *Tensor {
	return x.upsample(&nearestUpsampling[len(sizes)], sizes)
}

// UpsampleLinear records torch.nn.functional.interpolate(x, sizes, mode="linear"),
// "bilinear" or "trilinear".
func (x *Tensor) UpsampleLinear(sizes ...int64) *Tensor {
	return x.upsample(&linearUpsampling[len(sizes)], sizes)
}

// UpsampleBicubic records torch.nn.functional.interpolate(x, sizes, mode="bicubic").
func (x *Tensor) UpsampleBicubic(sizes ...int64) *Tensor {
	return x.upsample(&bicubicUpsampling, sizes)
}

func (x *Tensor) upsample(u *upsampling, sizes []int64) *Tensor {
	c := x.tape.Begin(u.op, x)
	c.Full(&x)
	shape := append(append([]int64(nil), x.shape[:2]...), sizes...)
	y := c.Let(c.t.AllocIn(x.dtype, shape, x.SuggestsChannelsLast()))
	if in := x; u.contiguous && !y.IsContiguous() {
		out := c.Let(c.t.Alloc(x.dtype, shape...))
		in = c.Let(x.ContiguousUntracked())
		c.t.LaunchElementwise(out, u.flops, in)
		c.t.LaunchCopy(y, out)
		c.DropAll(in, out)
	} else {
		c.t.LaunchElementwise(y, u.flops, in)
	}
	from := x.shape
	return c.End(y.Derived(u.node, inputs{x}, nil, func(b *Gradients) { b.Give(0, b.Grad.downsample(u, from)) }))
}

func (g *Tensor) downsample(u *upsampling, shape []int64) *Tensor {
	c := g.tape.Begin(u.op+"_backward", g)
	last := u.channelsLast && g.SuggestsChannelsLast()
	gx := c.Let(c.t.AllocIn(g.dtype, shape, last))
	c.t.LaunchElementwise(gx, u.flops, c.Let(g.ContiguousIn(last && !u.contiguous)))
	return c.End(gx)
}

// AffineGrid records torch.nn.functional.affine_grid(x, size, align_corners): a batch of products of the base grid with
// the affine maps x. Backward makes the base grid again.
func (x *Tensor) AffineGrid(size []int64, alignCorners bool) *Tensor {
	t := x.tape
	c := t.Begin("affine_grid_generator", x)
	n, dims, points := size[0], int64(len(size)-2), Numel(size[2:])
	var grid *Tensor
	t.NoGrad(func() {
		base := c.Let(t.baseGrid(x.dtype, size, alignCorners))
		grid = base.View(n, points, dims+1).BMM(x.Transpose(1, 2))
		grid = c.Let(grid.View(slices.Concat([]int64{n}, size[2:], []int64{dims})...))
	})
	return c.End(grid.Derived("AffineGridGeneratorBackward0", inputs{x}, nil, func(b *Gradients) {
		c := t.Begin("affine_grid_generator_backward", b.Grad)
		base := c.Let(t.baseGrid(b.Grad.dtype, size, alignCorners))
		maps := b.Grad.AsShape([]int64{n, points, dims}).Transpose(1, 2).BMM(base.View(n, points, dims+1))
		b.Give(0, c.End(maps))
	}))
}

// baseGrid records make_base_grid_4D or 5D: the places of the points of size [N, C, D, H, W], without D in images, each
// followed by a one.
func (t *Tape) baseGrid(d DType, size []int64, alignCorners bool) *Tensor {
	c := t.Begin("affine_grid_base")
	dims := len(size) - 2
	base := c.Let(t.Alloc(d, slices.Concat(size[:1], size[2:], []int64{int64(dims + 1)})...))
	for k := dims + 1; k > 1; k-- {
		t.LaunchCopy(base, t.fromMinusOne(d, size[k], alignCorners))
		c.EndStatement()
	}
	t.LaunchFill(base)
	return c.End(base)
}

// fromMinusOne records linspace_from_neg_one: n numbers from -1 to 1, the centers of pixels
// unless corners are aligned.
func (t *Tape) fromMinusOne(d DType, n int64, alignCorners bool) *Tensor {
	c := t.Begin("linspace_from_neg_one")
	places := c.Let(t.Filled("linspace", d, n))
	if !alignCorners {
		c.Set(&places, places.MulScalar().DivScalar())
	}
	return c.End(places)
}

// GridSample records torch.nn.functional.grid_sample(x, grid) of images [N, C, H, W]
// at places [N, Hout, Wout, 2], or of volumes.
func (x *Tensor) GridSample(grid *Tensor) *Tensor {
	t := x.tape
	c := t.Begin("grid_sampler", x, grid)
	c.Promote(&x, &grid)
	out := grid.shape[1 : len(grid.shape)-1]
	y := c.Let(t.Alloc(x.dtype, slices.Concat(x.shape[:2], out)...))
	t.LaunchElementwise(y, 12, x, grid)
	return c.End(y.Derived("GridSampler2DBackward0", inputs{x, grid}, saves{x, grid}, func(b *Gradients) {
		x, grid := b.Saved(0), b.Saved(1)
		var gx *Tensor
		c := t.Begin("grid_sampler_2d_backward", b.Grad)
		if b.Needs(0) {
			gx = t.Alloc(x.dtype, x.shape...).Retain()
			t.LaunchFill(gx)
		}
		places := t.Alloc(grid.dtype, grid.shape...).Retain()
		t.LaunchElementwise(places, 24*x.shape[1], b.Grad, x, grid)
		c.Finish()
		b.GiveAll(gx, places)
	}))
}

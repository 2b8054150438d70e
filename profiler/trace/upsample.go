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
	c := x.tape.begin(u.op, x)
	c.full(&x)
	shape := append(append([]int64(nil), x.shape[:2]...), sizes...)
	y := c.let(c.t.emptyIn(x.dtype, shape, x.suggestChannelsLast()))
	if in := x; u.contiguous && !y.isContiguous() {
		out := c.let(c.t.empty(x.dtype, shape...))
		in = c.let(x.contiguousUntracked())
		c.t.launchElementwise(out, u.flops, in)
		c.t.launchCopy(y, out)
		c.dropLocals(in, out)
	} else {
		c.t.launchElementwise(y, u.flops, in)
	}
	from := x.shape
	return c.end(y.derived(u.node, inputs{x}, nil, func(b *backward) { b.give(0, b.grad.downsample(u, from)) }))
}

func (g *Tensor) downsample(u *upsampling, shape []int64) *Tensor {
	c := g.tape.begin(u.op+"_backward", g)
	last := u.channelsLast && g.suggestChannelsLast()
	gx := c.let(c.t.emptyIn(g.dtype, shape, last))
	c.t.launchElementwise(gx, u.flops, c.let(g.contiguousIn(last && !u.contiguous)))
	return c.end(gx)
}

// AffineGrid records torch.nn.functional.affine_grid(x, size, align_corners): a batch of products of the base grid with
// the affine maps x. Backward makes the base grid again.
func (x *Tensor) AffineGrid(size []int64, alignCorners bool) *Tensor {
	t := x.tape
	c := t.begin("affine_grid_generator", x)
	n, dims, points := size[0], int64(len(size)-2), numel(size[2:])
	var grid *Tensor
	t.NoGrad(func() {
		base := c.let(t.baseGrid(x.dtype, size, alignCorners))
		grid = base.View(n, points, dims+1).BMM(x.Transpose(1, 2))
		grid = c.let(grid.View(slices.Concat([]int64{n}, size[2:], []int64{dims})...))
	})
	return c.end(grid.derived("AffineGridGeneratorBackward0", inputs{x}, nil, func(b *backward) {
		c := t.begin("affine_grid_generator_backward", b.grad)
		base := c.let(t.baseGrid(b.grad.dtype, size, alignCorners))
		maps := b.grad.reshape([]int64{n, points, dims}).Transpose(1, 2).BMM(base.View(n, points, dims+1))
		b.give(0, c.end(maps))
	}))
}

// baseGrid records make_base_grid_4D or 5D: the places of the points of size [N, C, D, H, W], without D in images, each
// followed by a one.
func (t *Tape) baseGrid(d DType, size []int64, alignCorners bool) *Tensor {
	c := t.begin("affine_grid_base")
	dims := len(size) - 2
	base := c.let(t.empty(d, slices.Concat(size[:1], size[2:], []int64{int64(dims + 1)})...))
	for k := dims + 1; k > 1; k-- {
		t.launchCopy(base, t.fromMinusOne(d, size[k], alignCorners))
		c.statement()
	}
	t.launchFill(base)
	return c.end(base)
}

// fromMinusOne records linspace_from_neg_one: n numbers from -1 to 1, the centers of pixels
// unless corners are aligned.
func (t *Tape) fromMinusOne(d DType, n int64, alignCorners bool) *Tensor {
	c := t.begin("linspace_from_neg_one")
	places := c.let(t.Filled("linspace", d, n))
	if !alignCorners {
		c.set(&places, places.MulScalar().DivScalar())
	}
	return c.end(places)
}

// GridSample records torch.nn.functional.grid_sample(x, grid) of images [N, C, H, W]
// at places [N, Hout, Wout, 2], or of volumes.
func (x *Tensor) GridSample(grid *Tensor) *Tensor {
	t := x.tape
	c := t.begin("grid_sampler", x, grid)
	c.promote(&x, &grid)
	out := grid.shape[1 : len(grid.shape)-1]
	y := c.let(t.empty(x.dtype, slices.Concat(x.shape[:2], out)...))
	t.launchElementwise(y, 12, x, grid)
	return c.end(y.derived("GridSampler2DBackward0", inputs{x, grid}, saves{x, grid}, func(b *backward) {
		x, grid := b.saved(0), b.saved(1)
		var gx *Tensor
		c := t.begin("grid_sampler_2d_backward", b.grad)
		if b.needs(0) {
			gx = t.empty(x.dtype, x.shape...).retain()
			t.launchFill(gx)
		}
		places := t.empty(grid.dtype, grid.shape...).retain()
		t.launchElementwise(places, 24*x.shape[1], b.grad, x, grid)
		c.finish()
		b.giveAll(gx, places)
	}))
}

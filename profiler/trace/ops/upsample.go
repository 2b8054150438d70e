package ops

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// upsampling describes a mode of torch.nn.functional.interpolate.
type upsampling struct {
	node string
	// channelsLast reports whether the backward kernel supports channels-last tensors.
	channelsLast bool
	flops        int64 // of one output
	// contiguous reports whether the kernels need contiguous tensors. Other tensors are then copied.
	contiguous bool
}

var upsamplings = map[string]upsampling{
	"upsample_nearest1d":        {"UpsampleNearest1DBackward0", false, 1, false},
	"upsample_nearest2d":        {"UpsampleNearest2DBackward0", true, 1, false},
	"upsample_nearest3d":        {"UpsampleNearest3DBackward0", false, 1, false},
	"upsample_linear1d":         {"UpsampleLinear1DBackward0", false, 4, false},
	"upsample_bilinear2d":       {"UpsampleBilinear2DBackward0", true, 12, false},
	"upsample_trilinear3d":      {"UpsampleTrilinear3DBackward0", false, 28, false},
	"upsample_bicubic2d":        {"UpsampleBicubic2DBackward0", false, 60, false},
	"_upsample_nearest_exact1d": {"UpsampleNearestExact1DBackward0", false, 1, false},
	"_upsample_nearest_exact2d": {"UpsampleNearestExact2DBackward0", true, 1, false},
	"_upsample_nearest_exact3d": {"UpsampleNearestExact3DBackward0", false, 1, false},
	"_upsample_bilinear2d_aa":   {"UpsampleBilinear2DAaBackward0", true, 24, true},
	"_upsample_bicubic2d_aa":    {"UpsampleBicubic2DAaBackward0", false, 120, true},
}

// Upsample records torch.nn.functional.interpolate(x, sizes) by the operator of its mode, such as "upsample_nearest2d".
func Upsample(op string, x *tensor, sizes ...int64) *tensor {
	u := upsamplings[op]
	c := x.Tape().Begin(op, x)
	c.CastToFP32(&x)
	shape := append(append([]int64(nil), x.Shape()[:2]...), sizes...)
	y := c.Bind(c.Tape().AllocIn(x.DType(), shape, x.SuggestsChannelsLast()))
	if in := x; u.contiguous && !y.IsContiguous() {
		out := c.Bind(c.Tape().Alloc(x.DType(), shape...))
		in = c.Bind(x.ContiguousUntracked())
		c.Tape().LaunchElementwise(out, u.flops, in)
		c.Tape().LaunchCopy(y, out)
		c.DropAll(in, out)
	} else {
		c.Tape().LaunchElementwise(y, u.flops, in)
	}
	from := x.Shape()
	return c.End(y.SetGradFn(u.node, inputs{x}, nil, func(b *backward) { b.Set(0, u.gradient(op, b.Grad, from)) }))
}

func (u upsampling) gradient(op string, g *tensor, shape []int64) *tensor {
	c := g.Tape().Begin(op+"_backward", g)
	last := u.channelsLast && g.SuggestsChannelsLast()
	gx := c.Bind(c.Tape().AllocIn(g.DType(), shape, last))
	c.Tape().LaunchElementwise(gx, u.flops, c.Bind(g.ContiguousIn(last && !u.contiguous)))
	return c.End(gx)
}

// AffineGrid records torch.nn.functional.affine_grid(x, size, align_corners): a batched product of a base grid and the
// affine matrices x. Backward computes the base grid again.
func AffineGrid(x *tensor, size []int64, alignCorners bool) *tensor {
	t := x.Tape()
	c := t.Begin("affine_grid_generator", x)
	n, dims, points := size[0], int64(len(size)-2), trace.Numel(size[2:])
	var grid *tensor
	t.NoGrad(func() {
		base := c.Bind(baseGrid(t, x.DType(), size, alignCorners))
		grid = base.View(n, points, dims+1).BMM(x.Transpose(1, 2))
		grid = c.Bind(grid.View(slices.Concat([]int64{n}, size[2:], []int64{dims})...))
	})
	return c.End(grid.SetGradFn("AffineGridGeneratorBackward0", inputs{x}, nil, func(b *backward) {
		c := t.Begin("affine_grid_generator_backward", b.Grad)
		base := c.Bind(baseGrid(t, b.Grad.DType(), size, alignCorners))
		maps := b.Grad.AsShape([]int64{n, points, dims}).Transpose(1, 2).BMM(base.View(n, points, dims+1))
		b.Set(0, c.End(maps))
	}))
}

// baseGrid records make_base_grid_4D or 5D: the coordinates of all points of size [N, C, D, H, W] (images have no D),
// each followed by a one.
func baseGrid(t *tape, d trace.DType, size []int64, alignCorners bool) *tensor {
	c := t.Begin("affine_grid_base")
	dims := len(size) - 2
	base := c.Bind(t.Alloc(d, slices.Concat(size[:1], size[2:], []int64{int64(dims + 1)})...))
	for k := dims + 1; k > 1; k-- {
		t.LaunchCopy(base, fromMinusOne(t, d, size[k], alignCorners))
		c.EndStatement()
	}
	t.LaunchFill(base)
	return c.End(base)
}

// fromMinusOne records linspace_from_neg_one: n numbers from -1 to 1, at pixel centers unless alignCorners.
func fromMinusOne(t *tape, d trace.DType, n int64, alignCorners bool) *tensor {
	c := t.Begin("linspace_from_neg_one")
	places := c.Bind(t.Filled("linspace", d, n))
	if !alignCorners {
		c.Set(&places, places.MulScalar().DivScalar())
	}
	return c.End(places)
}

// GridSample records torch.nn.functional.grid_sample(x, grid): images x [N, C, H, W] are sampled at points grid [N,
// Hout, Wout, 2], or volumes at points with three coordinates.
func GridSample(x *tensor, grid *tensor) *tensor {
	t := x.Tape()
	c := t.Begin("grid_sampler", x, grid)
	c.Promote(&x, &grid)
	out := grid.Shape()[1 : len(grid.Shape())-1]
	y := c.Bind(t.Alloc(x.DType(), slices.Concat(x.Shape()[:2], out)...))
	t.LaunchElementwise(y, 12, x, grid)
	return c.End(y.SetGradFn("GridSampler2DBackward0", inputs{x, grid}, saves{x, grid}, func(b *backward) {
		x, grid := b.Saved(0), b.Saved(1)
		var gx *tensor
		c := t.Begin("grid_sampler_2d_backward", b.Grad)
		if b.Needs(0) {
			gx = t.Alloc(x.DType(), x.Shape()...).Retain()
			t.LaunchFill(gx)
		}
		places := t.Alloc(grid.DType(), grid.Shape()...).Retain()
		t.LaunchElementwise(places, 24*x.Shape()[1], b.Grad, x, grid)
		c.Finish()
		b.SetAll(gx, places)
	}))
}

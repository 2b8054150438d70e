package ops

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Im2Col records torch.nn.functional.unfold: windows of images [N, C, H, W] become columns [N, C*kh*kw, positions].
func Im2Col(x *tensor, args trace.PoolArgs) *tensor {
	c := x.Tape().Begin("im2col", x)
	y := c.Bind(im2col(x, args))
	from := x.Shape()
	return c.End(y.SetGradFn("Im2ColBackward0", inputs{x}, nil, func(b *backward) { b.Set(0, col2im(b.Grad, from)) }))
}

// Col2Im records torch.nn.functional.fold: it adds columns [N, C*kh*kw, positions] to images of the given height and
// width.
func Col2Im(x *tensor, height, width int64, args trace.PoolArgs) *tensor {
	c := x.Tape().Begin("col2im", x)
	window := trace.Numel(trace.Spatial(args.Kernel, 2, 1))
	y := c.Bind(col2im(x, []int64{x.Shape()[0], x.Shape()[1] / window, height, width}))
	return c.End(y.SetGradFn("Col2ImBackward0", inputs{x}, nil, func(b *backward) { b.Set(0, im2col(b.Grad, args)) }))
}

func im2col(x *tensor, args trace.PoolArgs) *tensor {
	out := unfoldShape(args, x)
	shape := []int64{x.Shape()[0], x.Shape()[1] * args.Window(x), trace.Numel(out[2:])}
	c := x.Tape().Begin("im2col_cuda", x)
	return c.End(likeThenResized(x, c, shape))
}

func col2im(x *tensor, shape []int64) *tensor {
	c := x.Tape().Begin("col2im_cuda", x)
	return c.End(likeThenResized(x, c, shape))
}

// unfoldShape returns the shape of the grid of windows. An empty stride means one.
func unfoldShape(a trace.PoolArgs, x *tensor) []int64 {
	a.Stride = trace.Spatial(a.Stride, 2, 1)
	return a.OutShape(x)
}

// likeThenResized records a result that is allocated like x and then resized. A larger shape gets a new storage before
// the first one is freed; a smaller one keeps the first storage.
func likeThenResized(x *tensor, c *call, shape []int64) *tensor {
	t := x.Tape()
	c.Bind(x.ContiguousUntracked())
	y := c.Bind(t.Alloc(x.DType(), x.Shape()...))
	if trace.Numel(shape) > x.Numel() {
		c.Set(&y, t.Alloc(x.DType(), shape...))
	} else {
		c.Set(&y, y.Part(0, shape...))
	}
	t.Launch(program.Index, 0, []*tensor{y}, []*tensor{x})
	return y
}

// PixelShuffle records torch.nn.functional.pixel_shuffle(x, r).
func PixelShuffle(x *tensor, r int64) *tensor {
	c := x.Tape().Begin("pixel_shuffle", x)
	return c.End(c.Bind(pixelShuffle(x, r)).SetGradFn("PixelShuffleBackward0", inputs{x}, nil,
		func(b *backward) { b.Set(0, pixelUnshuffle(b.Grad, r)) }))
}

// PixelUnshuffle records torch.nn.functional.pixel_unshuffle(x, r).
func PixelUnshuffle(x *tensor, r int64) *tensor {
	c := x.Tape().Begin("pixel_unshuffle", x)
	return c.End(c.Bind(pixelUnshuffle(x, r)).SetGradFn("PixelUnshuffleBackward0", inputs{x}, nil,
		func(b *backward) { b.Set(0, pixelShuffle(b.Grad, r)) }))
}

func pixelShuffle(x *tensor, r int64) *tensor {
	s := x.Shape()
	return shuffledTo(x, "pixel_shuffle", []int64{s[0], s[1] / (r * r), s[2] * r, s[3] * r})
}

func pixelUnshuffle(x *tensor, r int64) *tensor {
	s := x.Shape()
	return shuffledTo(x, "pixel_unshuffle", []int64{s[0], s[1] * r * r, s[2] / r, s[3] / r})
}

// shuffledTo records the reshape, permute, clone and view of pixel_shuffle as one kernel: only the clone allocates,
// because the first reshape only divides dimensions, so that it is always a view.
func shuffledTo(x *tensor, op string, shape []int64) *tensor {
	c := x.Tape().Begin(op, x)
	y := c.Bind(c.Tape().Alloc(x.DType(), shape...))
	c.Tape().LaunchCopy(y, x)
	return c.End(y)
}

package trace

import "github.com/vprof/vprof/profiler/program"

// Im2Col records torch.nn.functional.unfold: the windows of images [N, C, H, W] as
// columns [N, C*kh*kw, positions].
func (x *Tensor) Im2Col(args PoolArgs) *Tensor {
	c := x.tape.begin("im2col", x)
	y := c.let(x.im2col(args))
	from := x.shape
	return c.end(y.derived("Im2ColBackward0", inputs{x}, nil, func(b *backward) { b.give(0, b.grad.col2im(from)) }))
}

// Col2Im records torch.nn.functional.fold: columns [N, C*kh*kw, positions] added up
// to images of the given height and width.
func (x *Tensor) Col2Im(height, width int64, args PoolArgs) *Tensor {
	c := x.tape.begin("col2im", x)
	window := numel(spatial(args.Kernel, 2, 1))
	y := c.let(x.col2im([]int64{x.shape[0], x.shape[1] / window, height, width}))
	return c.end(y.derived("Col2ImBackward0", inputs{x}, nil, func(b *backward) { b.give(0, b.grad.im2col(args)) }))
}

func (x *Tensor) im2col(args PoolArgs) *Tensor {
	out := args.unfoldShape(x)
	shape := []int64{x.shape[0], x.shape[1] * args.window(x), numel(out[2:])}
	c := x.tape.begin("im2col_cuda", x)
	return c.end(x.likeThenResized(c, shape))
}

func (x *Tensor) col2im(shape []int64) *Tensor {
	c := x.tape.begin("col2im_cuda", x)
	return c.end(x.likeThenResized(c, shape))
}

// unfoldShape returns the shape of the grid of windows; the stride is one if it is
// not given.
func (a PoolArgs) unfoldShape(x *Tensor) []int64 {
	a.Stride = spatial(a.Stride, 2, 1)
	return a.outShape(x)
}

// likeThenResized returns a result made like x and then resized: a larger one gets
// a storage of its own while the first still lives, a smaller one keeps it.
func (x *Tensor) likeThenResized(c *call, shape []int64) *Tensor {
	t := x.tape
	c.let(x.contiguousUntracked())
	y := c.let(t.empty(x.dtype, x.shape...))
	if numel(shape) > x.numel {
		c.set(&y, t.empty(x.dtype, shape...))
	} else {
		c.set(&y, y.alias(shape, contiguousStrides(nil, shape), 0))
	}
	t.launch(program.Index, 0, []*Tensor{y}, []*Tensor{x})
	return y
}

// PixelShuffle records torch.nn.functional.pixel_shuffle(x, r).
func (x *Tensor) PixelShuffle(r int64) *Tensor {
	c := x.tape.begin("pixel_shuffle", x)
	return c.end(c.let(x.pixelShuffle(r)).derived("PixelShuffleBackward0", inputs{x}, nil,
		func(b *backward) { b.give(0, b.grad.pixelUnshuffle(r)) }))
}

// PixelUnshuffle records torch.nn.functional.pixel_unshuffle(x, r).
func (x *Tensor) PixelUnshuffle(r int64) *Tensor {
	c := x.tape.begin("pixel_unshuffle", x)
	return c.end(c.let(x.pixelUnshuffle(r)).derived("PixelUnshuffleBackward0", inputs{x}, nil,
		func(b *backward) { b.give(0, b.grad.pixelShuffle(r)) }))
}

func (x *Tensor) pixelShuffle(r int64) *Tensor {
	s := x.shape
	return x.shuffledTo("pixel_shuffle", []int64{s[0], s[1] / (r * r), s[2] * r, s[3] * r})
}

func (x *Tensor) pixelUnshuffle(r int64) *Tensor {
	s := x.shape
	return x.shuffledTo("pixel_unshuffle", []int64{s[0], s[1] * r * r, s[2] / r, s[3] / r})
}

// shuffledTo records reshape, permute, clone and view in one. The reshape only divides dimensions,
// which is a view of any input, so that only the clone allocates.
func (x *Tensor) shuffledTo(op string, shape []int64) *Tensor {
	c := x.tape.begin(op, x)
	y := c.let(c.t.empty(x.dtype, shape...))
	c.t.launchCopy(y, x)
	return c.end(y)
}

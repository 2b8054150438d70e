package trace

import "github.com/vprof/vprof/profiler/program"

// Im2Col records torch.nn.functional.unfold: the windows of images [N, C, H, W] as
// columns [N, C*kh*kw, positions].
func (x *Tensor) Im2Col(args PoolArgs) *Tensor {
	c := x.tape.Begin("im2col", x)
	y := c.Let(x.im2col(args))
	from := x.shape
	return c.End(y.Derived("Im2ColBackward0", inputs{x}, nil, func(b *Gradients) { b.Give(0, b.Grad.col2im(from)) }))
}

// Col2Im records torch.nn.functional.fold: columns [N, C*kh*kw, positions] added up
// to images of the given height and width.
func (x *Tensor) Col2Im(height, width int64, args PoolArgs) *Tensor {
	c := x.tape.Begin("col2im", x)
	window := Numel(spatial(args.Kernel, 2, 1))
	y := c.Let(x.col2im([]int64{x.shape[0], x.shape[1] / window, height, width}))
	return c.End(y.Derived("Col2ImBackward0", inputs{x}, nil, func(b *Gradients) { b.Give(0, b.Grad.im2col(args)) }))
}

func (x *Tensor) im2col(args PoolArgs) *Tensor {
	out := args.unfoldShape(x)
	shape := []int64{x.shape[0], x.shape[1] * args.window(x), Numel(out[2:])}
	c := x.tape.Begin("im2col_cuda", x)
	return c.End(x.likeThenResized(c, shape))
}

func (x *Tensor) col2im(shape []int64) *Tensor {
	c := x.tape.Begin("col2im_cuda", x)
	return c.End(x.likeThenResized(c, shape))
}

// unfoldShape returns the shape of the grid of windows; the stride is one if it is
// not given.
func (a PoolArgs) unfoldShape(x *Tensor) []int64 {
	a.Stride = spatial(a.Stride, 2, 1)
	return a.outShape(x)
}

// likeThenResized returns a result made like x and then resized: a larger one gets
// a storage of its own while the first still lives, a smaller one keeps it.
func (x *Tensor) likeThenResized(c *Call, shape []int64) *Tensor {
	t := x.tape
	c.Let(x.ContiguousUntracked())
	y := c.Let(t.Alloc(x.dtype, x.shape...))
	if Numel(shape) > x.numel {
		c.Set(&y, t.Alloc(x.dtype, shape...))
	} else {
		c.Set(&y, y.Alias(shape, contiguousStrides(nil, shape), 0))
	}
	t.Launch(program.Index, 0, []*Tensor{y}, []*Tensor{x})
	return y
}

// PixelShuffle records torch.nn.functional.pixel_shuffle(x, r).
func (x *Tensor) PixelShuffle(r int64) *Tensor {
	c := x.tape.Begin("pixel_shuffle", x)
	return c.End(c.Let(x.pixelShuffle(r)).Derived("PixelShuffleBackward0", inputs{x}, nil,
		func(b *Gradients) { b.Give(0, b.Grad.pixelUnshuffle(r)) }))
}

// PixelUnshuffle records torch.nn.functional.pixel_unshuffle(x, r).
func (x *Tensor) PixelUnshuffle(r int64) *Tensor {
	c := x.tape.Begin("pixel_unshuffle", x)
	return c.End(c.Let(x.pixelUnshuffle(r)).Derived("PixelUnshuffleBackward0", inputs{x}, nil,
		func(b *Gradients) { b.Give(0, b.Grad.pixelShuffle(r)) }))
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
	c := x.tape.Begin(op, x)
	y := c.Let(c.t.Alloc(x.dtype, shape...))
	c.t.LaunchCopy(y, x)
	return c.End(y)
}

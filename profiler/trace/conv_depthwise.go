package trace

// depthwiseConv is _conv_depthwise2d (and conv_depthwise3d) of ATen's CUDA
// kernels: no workspace.
func (x *Tensor) depthwiseConv(w *Tensor, args ConvArgs) *Tensor {
	c := x.tape.begin("_conv_depthwise2d", x, w)
	y := c.let(c.t.empty(x.dtype, args.outShape(x, w)...))
	c.let(w.contiguousUntracked())
	return c.end(y)
}

// depthwiseConvBackward gives the gradient of the weight first.
func depthwiseConvBackward(g, x, w *Tensor, args ConvArgs, needX, needW bool) (gx, gw *Tensor) {
	c := g.tape.begin("conv_depthwise2d_backward", g, x, w)
	c.let(g.contiguousUntracked())
	if needW {
		c.let(x.contiguousUntracked())
		gw = c.let(c.t.empty(w.dtype, w.shape...))
	}
	if needX {
		c.let(w.contiguousUntracked())
		gx = c.let(c.t.empty(x.dtype, x.shape...))
	}
	return c.endPair(gx, gw)
}

package trace

// constantPad is at::constant_pad_nd: pads are pairs (before, after) from the
// last dimension backwards; a negative one cuts.
func (x *Tensor) constantPad(pads []int64) *Tensor {
	t := x.tape
	c := t.begin("constant_pad_nd", x)
	shape := append([]int64(nil), x.shape...)
	for i := 0; i+1 < len(pads); i += 2 {
		shape[len(shape)-1-i/2] += pads[i] + pads[i+1]
	}
	y := c.let(t.emptyIn(x.dtype, shape, x.suggestChannelsLast()))
	t.launchCopy(y, x)
	if n := t.record("ConstantPadNdBackward0", x); n != nil {
		n.yields(y)
		back := make([]int64, len(pads))
		for i, p := range pads {
			back[i] = -p
		}
		n.apply = func(b *backward) { b.give(0, b.grad.constantPad(back)) }
	}
	return c.end(y)
}

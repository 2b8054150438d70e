package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
)

// Pad records torch.nn.functional.pad(x, pads) with a constant. Pads are pairs (before, after) from the last dimension
// backwards; negative ones cut.
func (x *Tensor) Pad(pads ...int64) *Tensor {
	c := x.tape.Begin("pad", x)
	return c.End(x.PadConstant(pads))
}

// PadReflect records torch.nn.functional.pad(x, pads, mode="reflect") of one or two dimensions.
func (x *Tensor) PadReflect(pads ...int64) *Tensor {
	nodes := [...]string{"", "ReflectionPad1DBackward0", "ReflectionPad2DBackward0", "ReflectionPad3DBackward0"}
	return x.borderPad(nodes[len(pads)/2], "reflection_pad_backward", pads)
}

// PadReplicate records torch.nn.functional.pad(x, pads, mode="replicate").
func (x *Tensor) PadReplicate(pads ...int64) *Tensor {
	nodes := [...]string{"", "ReplicationPad1DBackward0", "ReplicationPad2DBackward0", "ReplicationPad3DBackward0"}
	return x.borderPad(nodes[len(pads)/2], "replication_pad_backward", pads)
}

// PadCircular records torch.nn.functional.pad(x, pads, mode="circular"): x is copied
// into the middle, then each border from the opposite side, in place.
func (x *Tensor) PadCircular(pads ...int64) *Tensor {
	c := x.tape.Begin("pad", x)
	shape := x.paddedShape(pads)
	out := c.Bind(c.t.Alloc(x.dtype, shape...))
	middle, from := out, x
	for i := 0; i+1 < len(pads); i += 2 {
		d := len(shape) - 1 - i/2
		before, after := pads[i], pads[i+1]
		middle = middle.SliceStep(d, max(before, 0), shape[d]-max(after, 0), 1)
		from = from.SliceStep(d, max(-before, 0), x.shape[d]-max(-after, 0), 1)
	}
	middle.CopyInPlace(from)
	c.EndStatement()
	for i := 0; i+1 < len(pads); i += 2 {
		d := len(shape) - 1 - i/2
		before, after := pads[i], pads[i+1]
		if before > 0 {
			end := shape[d] - max(after, 0)
			out.Narrow(d, 0, before).CopyInPlace(out.Narrow(d, end-before, before))
			c.EndStatement()
		}
		if after > 0 {
			start := max(before, 0)
			out.Narrow(d, shape[d]-after, after).CopyInPlace(out.Narrow(d, start, after))
			c.EndStatement()
		}
	}
	return c.End(out)
}

func (x *Tensor) paddedShape(pads []int64) []int64 {
	shape := append([]int64(nil), x.shape...)
	for i := 0; i+1 < len(pads); i += 2 {
		shape[len(shape)-1-i/2] += pads[i] + pads[i+1]
	}
	return shape
}

// borderPad pads with values of x itself; backward adds their gradients.
func (x *Tensor) borderPad(node, back string, pads []int64) *Tensor {
	t := x.tape
	c := t.Begin("pad", x)
	y := c.Bind(t.Alloc(x.dtype, x.paddedShape(pads)...))
	t.LaunchCopy(y, c.Bind(x.ContiguousUntracked()))
	return c.End(y.SetGradFn(node, inputs{x}, saves{x}, func(b *Gradients) {
		c := t.Begin(back, b.Grad)
		gx := c.Bind(t.Alloc(b.Grad.dtype, b.Saved(0).shape...))
		t.LaunchCopy(gx, c.Bind(b.Grad.ContiguousUntracked()))
		b.Set(0, c.End(gx))
	}))
}

// PadConstant records at::constant_pad_nd: a narrowed clone if nothing is added.
func (x *Tensor) PadConstant(pads []int64) *Tensor {
	c := x.tape.Begin("constant_pad_nd", x)
	var y *Tensor
	if !slices.ContainsFunc(pads, func(p int64) bool { return p > 0 }) {
		y = c.Bind(x.narrowByPads(pads).AllocLike(x.dtype))
	} else {
		y = c.Bind(c.t.AllocIn(x.dtype, x.paddedShape(pads), x.SuggestsChannelsLast()))
	}
	back := lists.Map(pads, func(p int64) int64 { return -p })
	return c.End(x.recordCopy("ConstantPadNdBackward0", y, func(g *Tensor) *Tensor { return g.PadConstant(back) }))
}

// narrowByPads returns the view that negative pads leave.
func (x *Tensor) narrowByPads(pads []int64) *Tensor {
	offset := x.offset
	for i := 0; i+1 < len(pads); i += 2 {
		offset -= pads[i] * x.strides[len(x.shape)-1-i/2]
	}
	return x.Alias(x.paddedShape(pads), x.strides, offset)
}

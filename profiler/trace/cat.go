package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// Cat records torch.cat(xs, dim).
func Cat(dim int, xs ...*Tensor) *Tensor {
	t := xs[0].tape
	c := t.BeginList("cat", xs)
	d := xs[0].dtype
	like := xs[0]
	for _, x := range xs {
		if !x.legacyEmpty() {
			like = x
			break
		}
	}
	shape := slices.Clone(like.shape)
	dim = like.Dim(dim)
	shape[dim] = 0
	last := true
	for _, x := range xs {
		d = PromoteTypes(d, x.dtype)
		if x.legacyEmpty() {
			continue
		}
		shape[dim] += x.shape[dim]
		last = last && x.SuggestsChannelsLast()
	}
	var y *Tensor
	if last {
		y = t.newTensor(d, t.channelsLast(shape))
	} else {
		y = t.Alloc(d, shape...)
	}
	t.Launch(program.Copy, 0, []*Tensor{y}, xs)
	sizes := lists.Map(xs, func(x *Tensor) int64 { return x.shape[min(dim, len(x.shape)-1)] })
	return c.End(y.SetGradFn("CatBackward0", xs, nil, func(b *Gradients) {
		from := int64(0)
		for i, size := range sizes {
			if b.Needs(i) && size > 0 {
				b.Out[i] = b.Grad.Slice(dim, from, from+size).Retain()
			}
			from += size
		}
		b.EndStatement()
	}))
}

// legacyEmpty reports whether x has one dimension and no element. torch.cat skips such tensors.
func (x *Tensor) legacyEmpty() bool { return len(x.shape) == 1 && x.numel == 0 }

// Stack records torch.stack(xs, dim).
func Stack(dim int, xs ...*Tensor) *Tensor {
	t := xs[0].tape
	c := t.BeginList("stack", xs)
	d := xs[0].dtype
	for _, x := range xs {
		d = PromoteTypes(d, x.dtype)
	}
	n := len(xs[0].shape)
	if dim < 0 {
		dim += n + 1
	}
	shape := slices.Insert(slices.Clone(xs[0].shape), dim, int64(len(xs)))
	y := t.Alloc(d, shape...)
	t.Launch(program.Copy, 0, []*Tensor{y}, xs)
	return c.End(y.SetGradFn("StackBackward0", xs, nil, func(b *Gradients) {
		for i := range b.Out {
			if b.Needs(i) {
				b.Out[i] = b.Grad.Select(dim, int64(i)).Retain()
			}
		}
		b.EndStatement()
	}))
}

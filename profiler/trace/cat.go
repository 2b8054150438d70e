package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Cat records torch.cat(xs, dim).
func Cat(dim int, xs ...*Tensor) *Tensor {
	t := xs[0].tape
	c := t.beginList("cat", xs)
	d := xs[0].dtype
	like := xs[0]
	for _, x := range xs {
		if !x.legacyEmpty() {
			like = x
			break
		}
	}
	shape := slices.Clone(like.shape)
	dim = like.dim(dim)
	shape[dim] = 0
	last := true
	for _, x := range xs {
		d = promote(d, x.dtype)
		if x.legacyEmpty() {
			continue
		}
		shape[dim] += x.shape[dim]
		last = last && x.suggestChannelsLast()
	}
	var y *Tensor
	if last {
		y = t.fresh(d, t.channelsLast(shape))
	} else {
		y = t.empty(d, shape...)
	}
	t.launch(program.Copy, 0, []*Tensor{y}, xs)
	sizes := make([]int64, len(xs))
	for i, x := range xs {
		sizes[i] = x.shape[min(dim, len(x.shape)-1)]
	}
	return c.end(y.derived("CatBackward0", xs, nil, func(b *backward) {
		from := int64(0)
		for i, size := range sizes {
			if b.needs(i) && size > 0 {
				b.out[i] = b.grad.Slice(dim, from, from+size).retain()
			}
			from += size
		}
		b.statement()
	}))
}

// legacyEmpty says that x has one dimension and no element: cat skips such
// tensors whatever the others' dimensions.
func (x *Tensor) legacyEmpty() bool { return len(x.shape) == 1 && x.numel == 0 }

// Stack records torch.stack(xs, dim).
func Stack(dim int, xs ...*Tensor) *Tensor {
	t := xs[0].tape
	c := t.beginList("stack", xs)
	d := xs[0].dtype
	for _, x := range xs {
		d = promote(d, x.dtype)
	}
	n := len(xs[0].shape)
	if dim < 0 {
		dim += n + 1
	}
	shape := slices.Insert(slices.Clone(xs[0].shape), dim, int64(len(xs)))
	y := t.empty(d, shape...)
	t.launch(program.Copy, 0, []*Tensor{y}, xs)
	return c.end(y.derived("StackBackward0", xs, nil, func(b *backward) {
		for i := range b.out {
			if b.needs(i) {
				b.out[i] = b.grad.Select(dim, int64(i)).retain()
			}
		}
		b.statement()
	}))
}

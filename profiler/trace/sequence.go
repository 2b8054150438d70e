package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Style is how parallelize_module wraps the calls of a module.
type Style struct {
	Ranks int64
	// Gathers gives the module the tokens of all ranks (PrepareModuleInput). Otherwise it
	// computes with the rank's own, as a DTensor (SequenceParallel).
	Gathers bool
}

// Parallelize wraps the calls of a module in a style.
func (t *Tape) Parallelize(p *Path, s Style) {
	if t.ranks.styles == nil {
		t.ranks.styles = map[*Path]Style{}
	}
	t.ranks.styles[p] = s
}

// ParallelInput returns argument x of the frame's module as its code receives it under the style of [Tape.Parallelize].
func (f *Frame) ParallelInput(x *Tensor) *Tensor {
	switch {
	case f.style.Ranks == 0:
		return x
	case f.style.Gathers:
		return f.Bind(x.gatherTokens(f.style.Ranks))
	}
	f.t.ranks.subclassed = true // until the frame ends
	return f.Bind(x.viewAs("_FromTorchTensor", "_FromTorchTensorBackward", x.layout, x.offset, func(b *Gradients) {
		b.Set(0, b.Grad)
	}))
}

// gatherTokens records redistribute(Replicate()) of the tokens of all ranks: [batch, tokens, ...].
// In backward the parts of the gradient are summed and scattered by tokens.
func (x *Tensor) gatherTokens(ranks int64) *Tensor {
	var y *Tensor
	withValue(&x.tape.ranks.subclassed, true, func() {
		y = x.redistributed("all_gather_into_tensor", func(x *Tensor) *Tensor { return x.gathered(ranks, 1) },
			func(g *Tensor) *Tensor { return g.scatterSum(ranks) })
	})
	return y
}

// scatterTokens records redistribute(Shard(1)) of a part of a sum, and to_local().
func (x *Tensor) scatterTokens(ranks int64) *Tensor {
	return x.redistributed("reduce_scatter_tensor", func(x *Tensor) *Tensor { return x.scatterAsync(ranks) },
		func(g *Tensor) *Tensor { return g.gathered(ranks, 1) })
}

// gatherOutputs records redistribute(Replicate()) of the last dimension, and to_local().
func (x *Tensor) gatherOutputs(ranks int64) *Tensor {
	last := x.NDim() - 1
	return x.redistributed("all_gather_into_tensor", func(x *Tensor) *Tensor { return x.gathered(ranks, last) },
		func(g *Tensor) *Tensor {
			f := g.tape.functionFrame(g)
			return f.Return(f.Bind(g.Narrow(last, 0, g.Size(last)/ranks)).Contiguous())
		})
}

// asyncCollective is a collective whose result is returned before it has ended (AsyncCollectiveTensor). The first
// operator that reads the result waits, and only then is the input released.
type asyncCollective struct {
	result *storage
	input  *Tensor
}

// releasesWhenRead keeps the input of a collective until its result y is read. Code of other ranks reads no tensors.
func (y *Tensor) releasesWhenRead(input *Tensor) {
	if !y.tape.ranks.here() {
		return
	}
	y.store.pending = true
	y.tape.ranks.collectives = append(y.tape.ranks.collectives, asyncCollective{y.store, input.Retain()})
}

// waitForRead ends the collectives whose results the running operators read.
func (t *Tape) waitForRead() {
	if !t.readsStorage(func(s *storage) bool { return s.pending }) {
		return
	}
	for i := len(t.ranks.collectives) - 1; i >= 0; i-- {
		if f := t.ranks.collectives[i]; t.readsStorage(func(s *storage) bool { return s == f.result }) {
			f.result.pending = false
			t.ranks.collectives = slices.Delete(t.ranks.collectives, i, i+1)
			f.input.Release()
		}
	}
}

// readsStorage reports whether a running operator has a tensor as argument whose storage satisfies such.
func (t *Tape) readsStorage(such func(s *storage) bool) bool {
	for _, c := range t.calls[:t.depth] {
		for _, x := range c.args[:c.nargs] {
			if such(x.store) {
				return true
			}
		}
	}
	return false
}

// gathered records all_gather_single. Ranks lie one after the other in the collective's result,
// which is reordered unless only dimensions of size one precede dim.
func (x *Tensor) gathered(ranks int64, dim int) *Tensor {
	t := x.tape
	f := t.functionFrame(x)
	all := append([]int64{}, x.shape...)
	all[0] *= ranks
	flat := f.Bind(t.Alloc(x.dtype, all...))
	t.Collective(program.AllGather, ranks, flat, x)
	switch {
	case dim == 0:
		return f.Return(flat)
	case Numel(x.shape[:dim]) == 1:
		all[0] = 1
		all[dim] *= ranks
		return f.Return(flat.View(all...))
	}
	return f.Return(Cat(dim, f.BindAll(flat.Chunk(ranks, 0))...))
}

// scatterSum records reduce_scatter_single: the sum over the ranks of their parts of the tokens.
func (x *Tensor) scatterSum(ranks int64) *Tensor {
	f := x.tape.functionFrame(x)
	return f.Return(f.Bind(x.byRank(ranks)).sumOwn(ranks))
}

// scatterAsync records scatterSum that nothing waits for before its result is read.
func (x *Tensor) scatterAsync(ranks int64) *Tensor {
	f := x.tape.functionFrame(x)
	parts := f.Bind(x.byRank(ranks))
	y := parts.sumOwn(ranks)
	y.releasesWhenRead(parts)
	return f.Return(y)
}

// GatherAsync records all_gather_single(x, gather_dim=0), which releases x when something waits for its result.
func (x *Tensor) GatherAsync(ranks int64) *Tensor {
	all := slices.Clone(x.shape)
	all[0] *= ranks
	return x.async(program.AllGather, ranks, all)
}

// PermuteAsync records permute_tensor: the tensor that another rank sends for x.
func (x *Tensor) PermuteAsync(ranks int64) *Tensor { return x.async(program.Send, ranks, x.shape) }

func (x *Tensor) async(how program.Work, ranks int64, shape []int64) *Tensor {
	y := x.tape.Alloc(x.dtype, shape...)
	x.tape.Collective(how, ranks, y, x)
	y.releasesWhenRead(x)
	return y
}

// AllToAll records all_to_all_single: rows are sent to the ranks of a group, and received from them. The result is
// awaited only when it is read. Backward sends the gradients back.
func (x *Tensor) AllToAll(ranks, rows int64) *Tensor {
	c := x.tape.Begin("all_to_all_single", x)
	exchange := func(x *Tensor, rows int64) *Tensor {
		shape := slices.Clone(x.shape)
		shape[0] = rows
		return x.async(program.Send, ranks, shape)
	}
	var y *Tensor
	c.t.NoGrad(func() { y = exchange(x, rows) })
	sent := x.shape[0]
	return c.End(y.SetGradFn("AllToAllSingleBackward", inputs{x}, nil, func(b *Gradients) {
		f := b.Grad.tape.functionFrame(b.Grad)
		g := f.Bind(exchange(f.Bind(b.Grad.Contiguous()), sent))
		g.Wait()
		b.Set(0, f.Return(g))
	}))
}

// Wait ends the collective that makes x, if it has not ended (AsyncCollectiveTensor.wait).
func (x *Tensor) Wait() {
	c := x.tape.Begin("wait_tensor", x)
	c.t.waitForRead()
	c.Finish()
}

// byRank records a copy with the ranks' tokens one after the other.
func (x *Tensor) byRank(ranks int64) *Tensor {
	f := x.tape.functionFrame(x)
	if !x.IsContiguous() {
		x = f.Bind(x.Contiguous())
	}
	return f.Return(Cat(0, f.BindAll(x.Chunk(ranks, 1))...))
}

// sumOwn returns the rank's part of the sum over the ranks.
func (x *Tensor) sumOwn(ranks int64) *Tensor {
	own := append([]int64{}, x.shape...)
	own[0] /= ranks
	y := x.tape.Alloc(x.dtype, own...)
	x.tape.Collective(program.ReduceScatter, ranks, y, x)
	return y
}

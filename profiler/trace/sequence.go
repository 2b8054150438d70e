package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Style describes the wrapper that parallelize_module puts around the calls of a module.
type Style struct {
	Ranks int64
	// Gathers reports whether the module receives the tokens of all ranks (PrepareModuleInput). Otherwise it receives
	// the rank's own tokens as a DTensor (SequenceParallel).
	Gathers bool
}

// Parallelize sets the style of the calls of a module.
func (t *Tape) Parallelize(p *Path, s Style) {
	if t.ranks.styles == nil {
		t.ranks.styles = map[*Path]Style{}
	}
	t.ranks.styles[p] = s
}

// ParallelInput returns x, an argument of the frame's module, as the module's code receives it: gathered or as a
// DTensor, by the style that [Tape.Parallelize] set.
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

// gatherTokens records redistribute(Replicate()) of tokens [batch, tokens, ...] that are sharded over the ranks. In
// backward, the gradient is summed over the ranks and scattered by tokens.
func (x *Tensor) gatherTokens(ranks int64) *Tensor {
	var y *Tensor
	withValue(&x.tape.ranks.subclassed, true, func() {
		y = x.redistribute("all_gather_into_tensor", func(x *Tensor) *Tensor { return x.gathered(ranks, 1) },
			func(g *Tensor) *Tensor { return g.scatterSum(ranks) })
	})
	return y
}

// scatterTokens records redistribute(Shard(1)) and to_local() of x, the rank's summand (a Partial DTensor).
func (x *Tensor) scatterTokens(ranks int64) *Tensor {
	return x.redistribute("reduce_scatter_tensor", func(x *Tensor) *Tensor { return x.scatterAsync(ranks) },
		func(g *Tensor) *Tensor { return g.gathered(ranks, 1) })
}

// gatherOutputs records redistribute(Replicate()) and to_local() of a tensor that is sharded along the last dimension.
func (x *Tensor) gatherOutputs(ranks int64) *Tensor {
	last := x.NDim() - 1
	return x.redistribute("all_gather_into_tensor", func(x *Tensor) *Tensor { return x.gathered(ranks, last) },
		func(g *Tensor) *Tensor {
			f := g.tape.functionFrame(g)
			return f.Return(f.Bind(g.Narrow(last, 0, g.Size(last)/ranks)).Contiguous())
		})
}

// asyncCollective is a collective that returns its result before it ends (AsyncCollectiveTensor). The first operator
// that reads the result waits for the end; then the input is released.
type asyncCollective struct {
	result *storage
	input  *Tensor
}

// releasesWhenRead holds the input of a collective until an operator reads the result y. Code of other ranks does not
// hold it, because its operators are not recorded.
func (y *Tensor) releasesWhenRead(input *Tensor) {
	if !y.tape.ranks.isRecordedDevice() {
		return
	}
	y.store.pending = true
	y.tape.ranks.collectives = append(y.tape.ranks.collectives, asyncCollective{y.store, input.Retain()})
}

// waitForRead ends the collectives whose results are arguments of the running operators.
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

// readsStorage reports whether an argument of a running operator has a storage for which matches returns true.
func (t *Tape) readsStorage(matches func(s *storage) bool) bool {
	for _, c := range t.calls[:t.depth] {
		for _, x := range c.args[:c.nargs] {
			if matches(x.store) {
				return true
			}
		}
	}
	return false
}

// gathered records all_gather_single along dim. The collective concatenates the ranks' tensors along the first
// dimension; the result is copied into order unless all dimensions before dim have size one.
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

// scatterSum records reduce_scatter_single: each rank receives the sum over the ranks of its tokens.
func (x *Tensor) scatterSum(ranks int64) *Tensor {
	f := x.tape.functionFrame(x)
	return f.Return(f.Bind(x.concatByRank(ranks)).reduceScatter(ranks))
}

// scatterAsync records scatterSum without waiting: the first operator that reads the result waits.
func (x *Tensor) scatterAsync(ranks int64) *Tensor {
	f := x.tape.functionFrame(x)
	parts := f.Bind(x.concatByRank(ranks))
	y := parts.reduceScatter(ranks)
	y.releasesWhenRead(parts)
	return f.Return(y)
}

// GatherAsync records all_gather_single(x, gather_dim=0). The first reader of the result waits, and releases x.
func (x *Tensor) GatherAsync(ranks int64) *Tensor {
	all := slices.Clone(x.shape)
	all[0] *= ranks
	return x.async(program.AllGather, ranks, all)
}

// PermuteAsync records permute_tensor: x is sent to another rank, and the result is received from one.
func (x *Tensor) PermuteAsync(ranks int64) *Tensor { return x.async(program.Send, ranks, x.shape) }

func (x *Tensor) async(how program.Work, ranks int64, shape []int64) *Tensor {
	y := x.tape.Alloc(x.dtype, shape...)
	x.tape.Collective(how, ranks, y, x)
	y.releasesWhenRead(x)
	return y
}

// AllToAll records all_to_all_single: rows of x are sent to the ranks of a group, and rows are received from them. The
// first operator that reads the result waits. Backward sends the gradients back.
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

// Wait waits for the collective whose result is x, unless it has ended (AsyncCollectiveTensor.wait).
func (x *Tensor) Wait() {
	c := x.tape.Begin("wait_tensor", x)
	c.t.waitForRead()
	c.Finish()
}

// concatByRank records a copy of x that concatenates the ranks' tokens along the first dimension.
func (x *Tensor) concatByRank(ranks int64) *Tensor {
	f := x.tape.functionFrame(x)
	if !x.IsContiguous() {
		x = f.Bind(x.Contiguous())
	}
	return f.Return(Cat(0, f.BindAll(x.Chunk(ranks, 1))...))
}

// reduceScatter records a reduce-scatter and returns its result: the rank's shard of the sum over the ranks.
func (x *Tensor) reduceScatter(ranks int64) *Tensor {
	own := append([]int64{}, x.shape...)
	own[0] /= ranks
	y := x.tape.Alloc(x.dtype, own...)
	x.tape.Collective(program.ReduceScatter, ranks, y, x)
	return y
}

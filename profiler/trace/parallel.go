package trace

import (
	"fmt"
	"strings"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
)

// Split is how a group of ranks shards the weight of a linear layer: the placement of a DTensor.
type Split uint8

// The splits of a weight [out, in].
const (
	// Whole gives every rank the whole weight.
	Whole Split = iota
	// ByColumn gives each rank some of the outputs (ColwiseParallel, Shard(0)): the
	// gradient of the input is the sum over the ranks.
	ByColumn
	// ByRow gives each rank some of the inputs (RowwiseParallel, Shard(1)): the output is the sum over the ranks.
	ByRow
	// ByWord gives each rank some of the rows of embeddings (RowwiseParallel, Shard(0)): the
	// output is the sum over the ranks, with zeros for tokens of other ranks.
	ByWord
)

// Sharing is how the ranks of a group share a parameter and the layer's input and output.
type Sharing struct {
	Split Split
	Ranks int64
	// Tokens reports whether ranks share the tokens of sequences outside the layer (sequence parallelism). All tokens
	// are gathered before a layer that is split by column, unless the enclosing module did so (Inside), and sums over
	// the ranks are scattered by tokens. Every rank then has a part of a Whole parameter's gradient.
	Tokens, Inside bool
	// Gathered reports whether a layer that is split by column gathers the outputs of all ranks.
	Gathered bool
	// InPlace reports whether a layer that is split by row sums its output over the ranks in place, without autograd.
	InPlace bool
}

// ShareAmong marks x as one rank's part of a parameter.
func (x *Tensor) ShareAmong(s Sharing) {
	t := x.tape
	if t.ranks.splits == nil {
		t.ranks.splits = map[*Tensor]Sharing{}
	}
	t.ranks.splits[x] = s
}

// SplitLike copies the sharding of y to x, a parameter that replaces y.
func (x *Tensor) SplitLike(y *Tensor) {
	t := x.tape
	if of, split := t.ranks.splits[y]; split {
		delete(t.ranks.splits, y)
		t.ranks.splits[x] = of
	}
}

// parallelLinear records a linear layer under parallelize_module, whose weight is a DTensor. Its input and output are
// plain tensors, or DTensors of which the rank holds a shard.
func (x *Tensor) parallelLinear(weight, bias *Tensor, of Sharing) *Tensor {
	f := x.tape.functionFrame()
	f.Bind(x)
	if of.Split != ByRow { // embeddings may share their weight with the output layer
		switch {
		case of.Inside:
		case of.Tokens:
			x = f.Bind(x.gatherTokens(of.Ranks))
		default:
			x = x.fromReplicas(of.Ranks)
		}
		y := x.linearOf(weight, bias, false)
		if of.Gathered {
			y = f.Bind(y).gatherOutputs(of.Ranks)
		}
		return f.Return(y)
	}
	y := f.Bind(x.linearOf(weight, bias, true))
	switch {
	case of.Tokens:
		return f.Return(y.scatterTokens(of.Ranks))
	case of.InPlace && !y.tape.RequiresGrad(y):
		y.tape.Collective(program.AllReduce, of.Ranks, y, y)
		return f.Return(y)
	}
	return f.Return(y.sumOverRanks(of.Ranks))
}

// fromReplicas records DTensor.from_local(x, mesh, [Replicate()]). In backward the ranks sum the gradient.
func (x *Tensor) fromReplicas(ranks int64) *Tensor {
	return x.viewAs("_FromTorchTensor", "_FromTorchTensorBackward", x.layout, x.offset, func(b *Gradients) {
		b.Set(0, b.Grad.allReduce(ranks))
	})
}

// Local records x.to_local() of a DTensor x whose result is used outside of autograd: backward never reaches x.
func (x *Tensor) Local() *Tensor {
	return x.viewAs("_ToTorchTensor", "_ToTorchTensorBackward", x.layout, x.offset, func(b *Gradients) {
		b.Set(0, b.Grad)
	})
}

// SumInPlace records the forward of transformers' _AllReduceForward: it replaces x by the sum over the ranks.
func (x *Tensor) SumInPlace(ranks int64) *Tensor {
	x.tape.Collective(program.AllReduce, ranks, x, x)
	return x.viewAs("_AllReduceForward", "_AllReduceForwardBackward", x.layout, x.offset, func(b *Gradients) {
		b.Set(0, b.Grad)
	})
}

// SumGradient records transformers' _AllReduceBackward: backward replaces the gradient by the sum over the ranks.
func (x *Tensor) SumGradient(ranks int64) *Tensor {
	return x.viewAs("_AllReduceBackward", "_AllReduceBackwardBackward", x.layout, x.offset, func(b *Gradients) {
		g := b.Grad.Contiguous()
		g.tape.Collective(program.AllReduce, ranks, g, g)
		b.Set(0, g)
	})
}

// OwnRows records redistribute(Shard(0)) and to_local() of a tensor that all ranks hold: a copy of the rank's rows.
// Backward gathers the rows' gradient from all ranks.
func (x *Tensor) OwnRows(ranks int64) *Tensor {
	rows := x.shape[0]
	return x.redistribute("split", func(x *Tensor) *Tensor { return x.ownRows(ranks) },
		func(g *Tensor) *Tensor { return g.allRows(ranks, rows) })
}

// AllRows records full_tensor() of rows that are sharded over the ranks.
func (x *Tensor) AllRows(ranks, rows int64) *Tensor {
	return x.redistribute("all_gather_into_tensor", func(x *Tensor) *Tensor { return x.allRows(ranks, rows) },
		func(g *Tensor) *Tensor { return g.ownRows(ranks) })
}

// ownRows returns the rows of the first rank, which has the most if the number of rows is not divisible.
func (x *Tensor) ownRows(ranks int64) *Tensor {
	f := x.tape.functionFrame(x)
	return f.Return(f.Bind(x.Narrow(0, 0, ceil.Div(x.shape[0], ranks))).Clone())
}

func (x *Tensor) allRows(ranks, rows int64) *Tensor {
	f := x.tape.functionFrame(x)
	all := f.Bind(x.gathered(ranks, 0))
	if rows < all.shape[0] {
		return f.Return(all.Narrow(0, 0, rows))
	}
	return f.Return(all)
}

// sumOverRanks records redistribute(Replicate()) and to_local() of x, the rank's summand (a Partial DTensor).
func (x *Tensor) sumOverRanks(ranks int64) *Tensor {
	return x.redistribute("all_reduce", func(x *Tensor) *Tensor { return x.allReduce(ranks) },
		func(g *Tensor) *Tensor { return g })
}

// redistribute records DTensor.redistribute: one collective for x, and one for its gradient.
func (x *Tensor) redistribute(op string, forward, back func(*Tensor) *Tensor) *Tensor {
	c := x.tape.Begin(op, x)
	var y *Tensor
	c.t.NoGrad(func() { y = forward(x) })
	return c.End(y.SetGradFn("RedistributeBackward", inputs{x}, nil, func(b *Gradients) { b.Set(0, back(b.Grad)) }))
}

// allReduce records _c10d_functional.all_reduce: a copy of x is reduced in place. The compute stream waits for it.
func (x *Tensor) allReduce(ranks int64) *Tensor {
	y := x.CloneContiguous()
	x.tape.Collective(program.AllReduce, ranks, y, y)
	return y
}

// parallelEmbedding records an embedding layer whose rows are sharded over ranks. Tokens whose rows are on other ranks
// are looked up as the first row, and their results are zeroed before the sum over the ranks.
func (x *Tensor) parallelEmbedding(weight *Tensor, of Sharing) *Tensor {
	t := x.tape
	f := t.functionFrame()
	var mask, y *Tensor
	t.NoGrad(func() {
		var own *Tensor
		mask, own = f.ownIndices(x)
		f.BindEach(mask, own)
		y = f.Bind(own.Embedding(weight.withoutHistory()))
		f.Del(&own)
	})
	rows := weight.shape[0] * of.Ranks
	y.SetGradFn("EmbeddingBackward0", inputs{weight}, saves{x},
		func(b *Gradients) { b.Set(0, b.Grad.embeddingBackward(b.Saved(0), rows)) })
	forward, back := func(y *Tensor) *Tensor { return y.allReduce(of.Ranks) }, func(g *Tensor) *Tensor { return g }
	if of.Tokens {
		forward = func(y *Tensor) *Tensor { return y.scatterAsync(of.Ranks) }
		back = func(g *Tensor) *Tensor { return g.gathered(of.Ranks, 1) }
	}
	return f.Return(y.redistribute("all_reduce", func(y *Tensor) *Tensor {
		y.MaskedFillInPlace(mask)
		f.Del(&mask)
		return forward(y)
	}, back))
}

// ownIndices records _MaskPartial._partition_value: the mask of indices whose rows are on other ranks, and the indices
// relative to the rank's first row.
func (f *Frame) ownIndices(indices *Tensor) (mask, own *Tensor) {
	g := f.FunctionFrame(indices)
	low := g.Bind(indices.GtScalar())
	high := g.Bind(indices.GtScalar())
	mask = g.Bind(low.And(high))
	g.Del(&high, &low)
	copied := g.Bind(indices.Clone())
	own = g.Bind(copied.AddScalar())
	g.Del(&copied)
	own.MaskedFillInPlace(mask)
	return g.ReturnPair(mask, own)
}

// OwnGradient returns the gradient that fully_shard uses for x: g, or its redistribution if another group shares x.
func (x *Tensor) OwnGradient(g *Tensor) *Tensor {
	of, shared := x.tape.ranks.splits[x]
	switch {
	case !shared:
		return g
	case of.Split == Whole && of.Tokens:
		return g.allReduce(of.Ranks)
	case of.Split == ByWord:
		f := x.tape.functionFrame(g)
		return f.Return(f.Bind(g.Narrow(0, 0, g.Size(0)/of.Ranks)).Clone())
	}
	return g
}

// misfit returns the error for a model whose dimensions (what) do not match a rank's shard of a weight.
func misfit(what string) error {
	return fmt.Errorf("the part of a rank in the linear layers does not fit the model's shapes (%s); use a number of "+
		"ranks that divides the heads of query, key and value, or name other layers with col= and row= in --strategy",
		strings.TrimPrefix(what, "trace: "))
}

// CrossEntropyAmong records torch.nn.functional.cross_entropy of fp32 logits [rows, classes] under
// torch.distributed.tensor.parallel.loss_parallel, with the classes sharded over the ranks. The Python handlers in
// PyTorch's loss.py replace the operators.
func (x *Tensor) CrossEntropyAmong(target *Tensor, ranks int64) *Tensor {
	c := x.tape.Begin("cross_entropy_loss", x, target)
	return c.End(c.Bind(x.logSoftmaxAmong(ranks)).nllAmong(target, ranks))
}

// logSoftmaxAmong records DTensor's _log_softmax_handler. Its backward passes the incoming gradient on unchanged,
// because the backward of the loss already computes the gradient of the logits.
func (x *Tensor) logSoftmaxAmong(ranks int64) *Tensor {
	t := x.tape
	var y *Tensor
	t.NoGrad(func() {
		f := t.functionFrame(x)
		most := f.Bind(x.AMax(true, -1))
		f.Set(&most, most.allReduce(ranks))
		shifted := f.Bind(x.Sub(most))
		sum := f.Bind(shifted.Exp().Sum(true, -1))
		f.Set(&sum, sum.allReduce(ranks))
		logarithm := f.Bind(sum.Log())
		y = f.Return(shifted.Sub(logarithm))
	})
	return y.SetGradFn("LogSoftmaxBackward0", inputs{x}, saves{y}, func(b *Gradients) { b.Set(0, b.Grad) })
}

// nllAmong records _nll_loss_forward_handler with mean reduction; x is [rows, classes].
func (x *Tensor) nllAmong(target *Tensor, ranks int64) *Tensor {
	t := x.tape
	var y, total *Tensor
	t.NoGrad(func() {
		f := t.functionFrame(x, target)
		safe := f.Bind(WhereScalar(target.GtScalar(), target))
		rows := f.Bind(safe.Unsqueeze(1))
		mask, own := f.ownIndices(rows)
		f.BindEach(mask, own)
		part := f.Bind(x.Gather(own))
		part.MaskedFillInPlace(mask)
		f.Del(&mask)
		sum := f.Bind(part.allReduce(ranks))
		result := f.Bind(sum.Squeeze(1).Neg())
		f.Set(&result, WhereScalar(target.GtScalar(), result))
		total = f.Bind(target.GtScalar().Sum(false).To(x.dtype))
		y = f.Bind(result.Sum(false).Div(total))
		f.End(y, total)
	})
	return y.SetGradFn("NllLossBackward0", inputs{x}, saves{x, target, total}, func(b *Gradients) {
		b.Set(0, b.Saved(0).nllAmongBackward(b.Grad, b.Saved(1), b.Saved(2)))
	})
}

// nllAmongBackward records _nll_loss_and_log_softmax_backward; x holds log-probabilities.
func (x *Tensor) nllAmongBackward(grad, target, total *Tensor) *Tensor {
	t := x.tape
	f := t.functionFrame(grad, x, target, total)
	f.Set(&grad, grad.Div(total))
	rows := f.Bind(target.Unsqueeze(1))
	safe := f.Bind(WhereScalar(rows.GtScalar(), rows))
	result := f.Bind(x.ZerosLike())
	f.Set(&safe, safe.View(-1))
	mask, own := f.ownIndices(safe)
	f.BindEach(mask, own)
	update := f.Bind(mask.To(x.dtype).AddScalar())
	places := f.Bind(t.Arange(own.numel))
	result.SetItem(update, places, own)
	f.Set(&grad, WhereScalar(rows.GtScalar(), grad))
	return f.Return(result.Add(x.Exp()).Mul(grad))
}

package trace

import (
	"fmt"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// Split is how the ranks of a group share the weight of a linear layer, as the placement
// of a DTensor says.
type Split uint8

// The splits of a weight [out, in].
const (
	// Whole is a weight of which every rank has all.
	Whole Split = iota
	// ByColumn gives each rank some of the outputs (ColwiseParallel, Shard(0)): the
	// gradient of the input is the sum over the ranks.
	ByColumn
	// ByRow gives each rank some of the inputs (RowwiseParallel, Shard(1)): the output
	// is the sum over the ranks.
	ByRow
)

// splitAmong is a weight that ranks share.
type splitAmong struct {
	split Split
	ranks int64
}

// SplitAmong marks x as the part of a weight that one of several ranks has.
func (x *Tensor) SplitAmong(ranks int64, s Split) {
	t := x.tape
	if t.splits == nil {
		t.splits = map[*Tensor]splitAmong{}
	}
	t.splits[x] = splitAmong{s, ranks}
}

// SplitLike gives x the mark of y, whose place it takes.
func (x *Tensor) SplitLike(y *Tensor) {
	t := x.tape
	if of, split := t.splits[y]; split {
		delete(t.splits, y)
		t.splits[x] = of
	}
}

// parallelLinear is a linear layer under parallelize_module: its weight is a DTensor,
// what comes in and goes out are plain tensors.
func (x *Tensor) parallelLinear(weight, bias *Tensor, of splitAmong) *Tensor {
	f := x.tape.funcFrame()
	var y *Tensor
	if of.split == ByColumn {
		y = f.Let(x).fromReplicas(of.ranks).linearOf(weight, bias, false)
	} else {
		y = f.Let(x.linearOf(weight, bias, true)).sumOverRanks(of.ranks)
	}
	f.End(y)
	return y
}

// fromReplicas is DTensor.from_local(x, mesh, [Replicate()]): what comes back in
// backward is a part of the gradient, which the ranks sum.
func (x *Tensor) fromReplicas(ranks int64) *Tensor {
	return x.viewAs("_FromTorchTensor", "_FromTorchTensorBackward", x.layout, x.offset, func(b *backward) {
		b.give(0, b.grad.reduced(ranks))
	})
}

// sumOverRanks is redistribute(Replicate()) of a part of a sum, and to_local().
func (x *Tensor) sumOverRanks(ranks int64) *Tensor {
	c := x.tape.begin("all_reduce", x)
	var y *Tensor
	c.t.NoGrad(func() { y = x.reduced(ranks) })
	return c.end(y.derived("RedistributeBackward", inputs{x}, nil, func(b *backward) { b.give(0, b.grad) }))
}

// reduced is _c10d_functional.all_reduce: a copy, which is reduced in place. The compute
// stream waits for it.
func (x *Tensor) reduced(ranks int64) *Tensor {
	y := x.CloneContiguous()
	x.tape.Collective(program.AllReduce, ranks, y, y)
	return y
}

// misfit is the error for a model whose shapes do not fit the part of a weight that a
// rank has.
func misfit(what string) error {
	return fmt.Errorf("what a rank has of the linear layers does not fit the model's shapes (%s); take a number of "+
		"ranks that divides the heads of attention, those of key and value too, or name other layers with col= and "+
		"row=",
		strings.TrimPrefix(what, "trace: "))
}

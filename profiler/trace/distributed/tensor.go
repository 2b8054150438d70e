package distributed

import (
	"fmt"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Linear is a linear layer whose weight ranks share.
type Linear struct {
	// Path is that of its module.
	Path  string
	Split trace.Split
	// Weight and Bias are where the model finds its parameters; Bias may be nil.
	Weight, Bias **trace.Tensor
}

// ParallelizeModule shares the weights of linear layers out among the ranks of a world,
// one layer after the other (parallelize_module with ColwiseParallel and
// RowwiseParallel). With meta the weights are on the meta device: nothing is allocated.
func ParallelizeModule(t *trace.Tape, w World, layers []Linear, meta bool) error {
	if err := w.Check(); err != nil {
		return err
	}
	for _, l := range layers {
		dim := 0
		if l.Split == trace.ByRow {
			dim = 1
		}
		if n := (*l.Weight).Size(dim); n%w.Size != 0 {
			return fmt.Errorf("%d ranks cannot share the %d %s of %s evenly", w.Size, n,
				[]string{"outputs", "inputs"}[dim], l.Path)
		}
		split := split
		if meta {
			split = splitOnMeta
		}
		split(t, w, l.Weight, dim)
		(*l.Weight).SplitAmong(w.Size, l.Split)
		if l.Bias != nil && l.Split == trace.ByColumn {
			split(t, w, l.Bias, 0)
		}
	}
	return nil
}

// splitOnMeta puts the rank's chunk in a parameter's place where neither has memory.
func splitOnMeta(t *trace.Tape, w World, p **trace.Tensor, dim int) {
	x := *p
	shape := append([]int64{}, x.Shape()...)
	shape[dim] /= w.Size
	var own *trace.Tensor
	t.Unplaced(func() { own = t.Hold(t.New("empty_like", program.Weights, x.DType(), shape...)) })
	if x.RequiresGrad() {
		own.Leaf()
	}
	*p = own
	t.Release(x)
}

// split puts the rank's chunk in a parameter's place (distribute_tensor with Shard): the
// first rank scatters chunks, which are copied where they are not contiguous.
func split(t *trace.Tape, w World, p **trace.Tensor, dim int) {
	x := *p
	shape := append([]int64{}, x.Shape()...)
	shape[dim] /= w.Size
	frame := t.Frame()
	var own *trace.Tensor
	t.NoGrad(func() {
		if dim > 0 && w.Size > 1 {
			var chunks []*trace.Tensor
			for range w.Size {
				chunks = append(chunks, t.New("contiguous", program.Temporaries, x.DType(), shape...))
			}
			frame.LetList(chunks)
		}
		own = t.Hold(t.New("empty_like", program.Weights, x.DType(), shape...))
		t.Collective(program.Broadcast, w.Size, own, nil)
	})
	if x.RequiresGrad() {
		own.Leaf()
	}
	frame.End()
	*p = own
	t.Release(x)
}

package distributed

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// SharedLayer is a linear or embedding layer whose weight ranks share by tensor parallelism.
type SharedLayer struct {
	// Path is the module path of the layer.
	Path string
	trace.Sharing
	// Weight and Bias point to the model's fields for the layer's parameters; Bias may be nil.
	Weight, Bias **trace.Tensor
}

// splitDim is the dimension along which ColwiseParallel, RowwiseParallel or a vocabulary split divide a weight.
var splitDim = map[trace.Split]int{trace.ByColumn: 0, trace.ByWord: 0, trace.ByRow: 1}

// ParallelizeModule shards the weights of layers over the ranks, one layer after another (parallelize_module with
// ColwiseParallel, RowwiseParallel and SequenceParallel). If meta is set, the weights are on the meta device and
// nothing is allocated.
func ParallelizeModule(t *trace.Tape, w World, layers []SharedLayer, meta bool) error {
	if err := w.Check(); err != nil {
		return err
	}
	for _, l := range layers {
		l.Ranks = w.Size
		if l.Split == trace.Whole {
			for _, p := range []**trace.Tensor{l.Weight, l.Bias} {
				if p != nil {
					(*p).ShareAmong(l.Sharing)
				}
			}
			continue
		}
		dim := splitDim[l.Split]
		if n := (*l.Weight).Size(dim); n%w.Size != 0 {
			return fmt.Errorf("%d ranks cannot share the %d %s of the linear layer %s evenly; use another number of "+
				"ranks (tp=)", w.Size, n, []string{"outputs", "inputs"}[dim], l.Path)
		}
		split := splitParameter
		if meta {
			split = splitMetaParameter
		}
		split(t, w, l.Weight, dim)
		(*l.Weight).ShareAmong(l.Sharing)
		if l.Bias != nil && l.Split == trace.ByColumn {
			split(t, w, l.Bias, 0)
		}
	}
	return nil
}

// ParametersToDevice allocates parameters of the meta device on the GPU (to_empty). If warm is set, one block as large
// as all of them is allocated and freed first (from_pretrained).
func ParametersToDevice(t *trace.Tape, params []Param, warm bool) {
	params = slices.Clone(params)
	slices.SortStableFunc(params, func(a, b Param) int { return a.Order - b.Order })
	if warm {
		warmUpAllocator(t, parameterBytes(params))
	}
	for _, p := range params {
		(*p.Tensor).AllocStorage("empty_like", program.Weights)
	}
}

// warmUpAllocator records caching_allocator_warmup of transformers: a block as large as the weights to load, freed at
// once.
func warmUpAllocator(t *trace.Tape, bytes int64) {
	t.Release(t.Hold(t.New("empty", program.Temporaries, trace.U8, bytes)))
}

// splitMetaParameter replaces a parameter on the meta device by the rank's chunk. Neither uses memory.
func splitMetaParameter(t *trace.Tape, w World, p **trace.Tensor, dim int) {
	x := *p
	shape := append([]int64{}, x.Shape()...)
	shape[dim] /= w.Size
	var own *trace.Tensor
	t.WithoutWeightMemory(func() { own = t.Hold(t.New("empty_like", program.Weights, x.DType(), shape...)) })
	own.RequireGrad(x.RequiresGrad())
	*p = own
	t.Release(x)
}

// splitParameter replaces a parameter by the rank's chunk (distribute_tensor with Shard): the first rank scatters
// chunks, and copies non-contiguous ones.
func splitParameter(t *trace.Tape, w World, p **trace.Tensor, dim int) {
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
			frame.BindList(chunks)
		}
		own = t.Hold(t.New("empty_like", program.Weights, x.DType(), shape...))
		t.Collective(program.Broadcast, w.Size, own, nil)
	})
	own.RequireGrad(x.RequiresGrad())
	frame.End()
	*p = own
	t.Release(x)
}

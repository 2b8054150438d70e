// Package distributed records what one rank allocates when several train a model together: PyTorch's fully_shard
// (FSDP2), DistributedDataParallel and ZeroRedundancyOptimizer. Each follows its original in PyTorch 2.11 statement by
// statement (torch/distributed/fsdp/_fully_shard, torch/csrc/distributed/c10d/reducer.cpp, torch/distributed/optim).
// DeepSpeed's ZeRO follows DeepSpeed 0.19.8. NCCL's own allocations are not recorded.
package distributed

import (
	"fmt"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// World describes the ranks of the training.
type World struct {
	// Size is the number of ranks, Rank the index of the recorded one.
	Size, Rank int64
}

// Check returns an error if the number of ranks or the rank is invalid.
func (w World) Check() error {
	switch {
	case w.Size < 1 || w.Size > maxRanks:
		return fmt.Errorf("%d ranks: need 1 or more", w.Size)
	case w.Rank < 0 || w.Rank >= w.Size:
		return fmt.Errorf("there is no rank %d among %d ranks; ranks begin with 0", w.Rank, w.Size)
	}
	return nil
}

// maxRanks is the largest number of ranks that is accepted.
const maxRanks = 1 << 20

// Param is a parameter of a model.
type Param struct {
	// Name is the name in named_parameters().
	Name string
	// Tensor points to the model's field for the parameter.
	Tensor **trace.Tensor
	// Order is the index of the parameter among all parameters of the model.
	Order int
	// TiedTo is the name of an earlier parameter whose shard this parameter uses; empty for none.
	TiedTo string
}

// newEmpty records torch.empty(n) on the device.
func newEmpty(t *trace.Tape, c program.Class, d trace.DType, n int64) *trace.Tensor {
	return t.New("empty_memory_format", c, d, n)
}

package distributed

import (
	"fmt"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// shardedParam is a parameter that is sharded by rows (FSDPParam).
type shardedParam struct {
	name  string
	shape []int64
	// row is the number of elements in a row of the parameter's first dimension, rows the number of rows per rank.
	row, rows int64
	dtype     trace.DType // of the shard
	gathered  trace.DType // of the whole
	trains    bool
	world     World
	order     int // among the model's parameters
	tiedTo    string

	// data is the padded shard; local is the shard without padding, which the optimizer updates.
	data, local *trace.Tensor
	// part is the rank's shard between forward and backward, if fewer ranks share the parameter then
	// ([Options.ReshardRanks]).
	part *trace.Tensor
	// output is the flat buffer of the whole parameter, empty between uses; whole is the parameter as a view of it,
	// with which the model computes.
	output, whole *trace.Tensor
	used          bool // it was gathered before
	// accumulated is an unreduced gradient in the reduction's type.
	accumulated *trace.Tensor
}

// newShardedParam computes the layout of a parameter's shards: rows of the first dimension, as in torch.chunk, padded
// to equal sizes. The method shard allocates the memory.
func newShardedParam(p Param, w World, o Options) (*shardedParam, error) {
	x := *p.Tensor
	shape := x.Shape()
	if len(shape) == 0 {
		return nil, fmt.Errorf("AssertionError: Shard dim 0 is invalid for 0D tensor: the parameter %s is a scalar; "+
			"give it a dimension", p.Name)
	}
	s := &shardedParam{
		name: p.Name, shape: shape, row: 1, dtype: x.DType(), gathered: x.DType(),
		trains: x.RequiresGrad(), world: w, order: p.Order, tiedTo: p.TiedTo,
	}
	for _, d := range shape[1:] {
		s.row *= d
	}
	s.rows = ceil.Div(shape[0], w.Size)
	if o.ParamType != nil {
		s.gathered = *o.ParamType
	}
	return s, nil
}

// shard allocates the rank's rows, in host memory if onHost is set, or uses the shard of the tied parameter.
func (s *shardedParam) shard(t *trace.Tape, onHost bool, tied *shardedParam) {
	if tied != nil {
		s.data, s.local = t.Hold(tied.data), t.Hold(tied.local)
	} else {
		s.allocateRows(t, onHost)
	}
	s.output = t.Hold(t.Unallocated(s.gathered, s.padded(s.world)))
	s.whole = t.Hold(s.output.Part(0, s.shape...))
	if s.trains {
		s.whole.Leaf()
	}
}

func (s *shardedParam) allocateRows(t *trace.Tape, onHost bool) {
	w := s.world
	padded := append([]int64{s.rows}, s.shape[1:]...)
	var x *trace.Tensor
	if onHost {
		x = t.Hold(t.Unallocated(s.dtype, s.rows*s.row))
		s.offload(t.Host(), x.Bytes())
	} else {
		x = t.Hold(t.New("new_zeros", program.Weights, s.dtype, padded...))
	}
	s.data = t.Hold(x.Part(0, s.rows*s.row))
	own := min(s.rows, max(0, s.shape[0]-w.Rank*s.rows))
	s.local = t.Hold(x.Part(0, append([]int64{own}, s.shape[1:]...)...))
	t.Release(x)
	if s.trains {
		s.local.Leaf()
	}
}

// offload counts the rank's rows in host memory: weights (FSDPParam._init_sharded_param) and gradients. Both are
// page-locked, since they are copied asynchronously.
func (s *shardedParam) offload(h *trace.Host, bytes int64) {
	h.Pin(&h.Weights, bytes)
	if s.trains {
		h.Pin(&h.Gradients, bytes)
		h.Stepped += bytes
	}
}

// padded returns the number of elements of the whole parameter, including padding.
func (s *shardedParam) padded(w World) int64 { return s.rows * s.row * w.Size }

// allocate allocates the memory of the whole parameter.
func (s *shardedParam) allocate() {
	op := "resize_bytes_cuda"
	if !s.used {
		op, s.used = "empty_memory_format", true
	}
	s.output.AllocStorage(op, program.Weights)
}

// keepPart stores a part of the parameter until backward; nil releases it.
func (s *shardedParam) keepPart(part *trace.Tensor) {
	if was := s.part; was != nil {
		was.Tape().Release(was)
	}
	s.part = part
}

// free frees the memory of the whole parameter.
func (s *shardedParam) free() { s.output.FreeStorage() }

package distributed

import (
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// DeepSpeed holds the options that all stages of DeepSpeed's ZeRO share. The recorded stages follow
// deepspeed/runtime/zero of release 0.19.8. The optimizer's state is on the device or on the host.
type DeepSpeed struct {
	// Bucket is reduce_bucket_size, in elements; zero is DeepSpeed's default.
	Bucket int64
	// Overlap is overlap_comm: a second bucket fills while the first is reduced.
	Overlap bool
	// OffloadOptimizer keeps master weights, their gradients and the optimizer's states in host memory and runs the
	// optimizer there.
	OffloadOptimizer bool
}

// defaultReduceBucket is DeepSpeed's default of reduce_bucket_size.
const defaultReduceBucket = 500_000_000

// The streams of DeepSpeed's reductions and gathers.
const (
	zeroReduceStream program.Stream = 1
	zeroGatherStream program.Stream = 2
)

func (o DeepSpeed) bucket() int64 {
	if o.Bucket > 0 {
		return o.Bucket
	}
	return defaultReduceBucket
}

// masterWeights are the fp32 weights that the optimizer updates, one tensor for each parameter group, and how gradients
// reach them. There are none if the host has them.
type masterWeights struct {
	tape  *trace.Tape
	parts []*trace.Tensor
}

func (m *masterWeights) allocate(d trace.DType, n int64) {
	t := m.tape
	t.NoGrad(func() {
		f := t.Frame()
		op := "clone"
		if d != trace.F32 {
			f.Bind(t.New(op, program.Temporaries, d, n))
			op = "to_dtype"
		}
		x := t.Hold(t.New(op, program.Weights, trace.F32, n))
		m.parts = append(m.parts, x.Leaf())
		f.End()
	})
}

// setGradient sets the gradient of master weight i: the reduced gradients, concatenated and cast to fp32.
func (m *masterWeights) setGradient(i int, reduced []*trace.Tensor) {
	t := m.tape
	t.NoGrad(func() {
		f := t.Frame()
		x := m.parts[i]
		flat := reduced[0]
		if len(reduced) > 1 {
			flat = f.Bind(t.New("flatten_dense_tensors", program.Gradients, flat.DType(), x.Numel()))
		}
		if flat.DType() == trace.F32 {
			x.SetGrad(flat)
		} else {
			g := f.Bind(t.New("to_dtype", program.Gradients, trace.F32, x.Numel()))
			trace.Update("copy_", 0, g, flat)
			x.SetGrad(g)
		}
		f.End()
	})
}

// recordGradNorm records the computation of the gradients' norm: an fp64 copy of each gradient. sizes are the numbers
// of elements of each gradient that belong to the rank.
func recordGradNorm(t *trace.Tape, sizes []int64) {
	t.NoGrad(func() {
		f := t.Frame()
		for _, n := range sizes {
			f.Discard(t.New("to_dtype", program.Temporaries, trace.F64, n))
		}
		f.End()
	})
}

// elementSpan is the position of a parameter in a flat buffer, in elements.
type elementSpan struct{ begin, end int64 }

// overlap returns the length of the intersection of two spans.
func (s elementSpan) overlap(o elementSpan) int64 {
	return max(0, min(s.end, o.end)-max(s.begin, o.begin))
}

// alignToRanks rounds n up to a number that all ranks can share equally.
func alignToRanks(n, ranks int64) int64 { return ceil.Div(n, 2*ranks) * 2 * ranks }

// Partition divides parameters among ranks as ZeroRedundancyOptimizer does: the largest first, each to the rank with
// the fewest elements. The rank's optimizer updates its parameters in this order.
func Partition(params []*trace.Tensor, ranks int64) [][]*trace.Tensor {
	sorted := slices.Clone(params)
	slices.SortStableFunc(sorted, func(a, b *trace.Tensor) int { return int(b.Numel() - a.Numel()) })
	out := make([][]*trace.Tensor, ranks)
	sizes := make([]int64, ranks)
	for _, x := range sorted {
		least := 0
		for r, n := range sizes {
			if n < sizes[least] {
				least = r
			}
		}
		out[least] = append(out[least], x)
		sizes[least] += x.Numel()
	}
	return out
}

// LargestPart returns the rank that a partition gives the most elements.
func LargestPart(parts [][]*trace.Tensor) int64 {
	most, at := int64(-1), 0
	for r, part := range parts {
		if n := trace.TotalNumel(part); n > most {
			most, at = n, r
		}
	}
	return int64(at)
}

// BroadcastParameters records the end of the optimizer's step: each rank broadcasts the parameters that it updated.
func BroadcastParameters(t *trace.Tape, params []*trace.Tensor, ranks int64) {
	t.WaitStream(communicationStream, 0)
	t.OnStream(communicationStream, func() {
		for _, x := range params {
			t.Collective(program.Broadcast, ranks, x, x)
		}
	})
	t.WaitStream(0, communicationStream)
}

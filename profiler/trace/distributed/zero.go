package distributed

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Partition shares parameters out among ranks as ZeroRedundancyOptimizer does: the largest first, each to the rank that
// has least. A rank's optimizer steps through its own in this order.
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

// Largest returns the rank with most elements of a partition.
func Largest(parts [][]*trace.Tensor) int64 {
	most, at := int64(-1), 0
	for r, part := range parts {
		if n := trace.TotalNumel(part); n > most {
			most, at = n, r
		}
	}
	return int64(at)
}

// SendParameters records the end of the optimizer's step: every rank sends the parameters it has updated to the others.
func SendParameters(t *trace.Tape, params []*trace.Tensor, ranks int64) {
	t.WaitStream(communication, 0)
	t.On(communication, func() {
		for _, x := range params {
			t.Collective(program.Broadcast, ranks, x, x)
		}
	})
	t.WaitStream(0, communication)
}

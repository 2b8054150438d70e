package cuda

import (
	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/profiler/device"
)

// workOf returns an op's work in the kernels' types. Its ranges reuse the slices of the given work.
func workOf(w kernels.Work, k device.Kernel) kernels.Work {
	return kernels.Work{
		Kind: k.Work, Precision: k.Precision, FLOPs: k.FLOPs,
		M: k.M, N: k.N, K: k.K, Batch: k.Batch, Window: k.Window,
		Reads: ranges(w.Reads[:0], k.Reads), Writes: ranges(w.Writes[:0], k.Writes),
	}
}

func ranges(to []kernels.Range, from []device.Range) []kernels.Range {
	for _, r := range from {
		to = append(to, kernels.Range(r))
	}
	return to
}

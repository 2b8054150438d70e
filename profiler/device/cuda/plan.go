package cuda

import (
	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// works and precisions are the kernels' words for the program's.
var (
	works = [...]kernels.Kind{
		program.Elementwise:     kernels.ElementwiseWork,
		program.Copy:            kernels.CopyWork,
		program.Reduction:       kernels.ReductionWork,
		program.Normalization:   kernels.NormalizationWork,
		program.Softmax:         kernels.SoftmaxWork,
		program.Index:           kernels.IndexWork,
		program.Matmul:          kernels.MatmulWork,
		program.Convolution:     kernels.ConvolutionWork,
		program.Attention:       kernels.AttentionWork,
		program.OptimizerUpdate: kernels.UpdateWork,
	}
	precisions = [...]kernels.Precision{
		program.FP32: kernels.FP32,
		program.TF32: kernels.TF32,
		program.FP16: kernels.FP16,
		program.BF16: kernels.BF16Precision,
		program.FP64: kernels.FP64,
	}
)

// workOf is an op's work in the kernels' words. Its ranges go into the slices
// of the work given, which are used again.
func workOf(w kernels.Work, k device.Kernel) kernels.Work {
	return kernels.Work{
		Kind: works[k.Work], Precision: precisions[k.Precision], FLOPs: k.FLOPs,
		M: k.M, N: k.N, K: k.K, Batch: k.Batch,
		Reads: ranges(w.Reads[:0], k.Reads), Writes: ranges(w.Writes[:0], k.Writes),
	}
}

func ranges(to []kernels.Range, from []device.Range) []kernels.Range {
	for _, r := range from {
		to = append(to, kernels.Range(r))
	}
	return to
}

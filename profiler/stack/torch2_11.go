package stack

import "github.com/vprof/vprof/profiler/trace"

var torch2_11 = release{
	Versions:      Versions{Torch: "2.11", CUDA: "13.0", CuDNN: "9.19", CuBLAS: "13.1"},
	cudnnVersions: []string{completeRelease},
	change: func(r *trace.Rules) {
		// check_prefer_cudnn_attention asks for a cuDNN above 9.15.
		r.Attention.CuDNNFirst = []int{9, 10}
	},
	settings: []string{"large_segment_size_mb"},
}

package stack

import (
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/trace"
)

var torch2_12 = release{
	Versions: Versions{Torch: "2.12", CUDA: "13.0", CuDNN: "9.20", CuBLAS: "13.1"},
	// Whatever it was asked, it answered as 9.19 does.
	cudnnVersions: []string{"9.20"},
	settings:      []string{"throw_on_cudamalloc_oom", "pinned_free_catch_all"},
	allocator:     func(r *allocator.Rules) { r.OrdersByAddress = false },
	change: func(r *trace.Rules) {
		// One workspace serves cuBLAS and cuBLASLt; Blackwell's is as large as Hopper's.
		r.Products = trace.Workspaces{
			BLAS: trace.ByCapability{
				{From: 0, Value: blasWorkspace},
				{From: 90, Value: blasWorkspaceHopper},
			},
		}
	},
}

package stack

import "github.com/vprof/vprof/profiler/trace"

var torch2_15 = release{
	Versions:      Versions{Torch: "2.15", CUDA: "13.2", CuDNN: "9.26"},
	cudnnVersions: []string{"9.26"},
	settings:      []string{"expandable_segments_reserve", "expandable_segments_reserve_by_class"},
	change: func(r *trace.Rules) {
		// Each product has a workspace of its own; that of cuBLASLt has its old size again.
		r.Products.PerCall = true
		r.Products.Epilogue = 1 << 20
		r.Attention.EfficientGrouped = true
		r.Attention.OneHead = true
		r.Attention.EfficientSeeds = true
		r.Attention.MultiheadFrees = true
		r.GatherEndsFirst = true // release_all_gather_state_for_comm_reuse; 2.11 held it in a variable until the end
		r.ReduceFreesAll = true  // no loop variable of foreach_reduce, _default_reduce_scatter_input_fn holds the last
		r.StagesReceiveLate = true
		r.Operators = trace.Operators{
			ExtremumMasksFirst: true, RMSNormInFP32: true, GroupNormWidens: true,
			EmbeddingSortsFewBits: true, ForeachNormByChunk: true, RankOneByProduct: true, FusedAdagrad: true,
		}
	},
}

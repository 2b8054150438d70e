package nn_test

import (
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/aten/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

// indexOperators read and write at positions, or put in order.
func indexOperators() map[string]opvectors.Call {
	index := operator("index.Tensor")
	gather := operator("gather.default", along(-1))
	embedding := operatorWith("embedding.default", func(_ *vector, _ *tensor, p params) []aten.Arg { return learned(p, "weight") })
	return map[string]opvectors.Call{
		"index_select":  operator("index_select.default", along(1)),
		"index_adv":     index,
		"index_adv_big": index,
		"index_two":     index,
		"index_put": one(func(_ *vector, in []*tensor, _ params) *tensor {
			return in[0].IndexPut(in[1:2], in[2], false)
		}),
		"index_add":   operator("index_add.default", along(0)),
		"gather":      gather,
		"gather_big":  gather,
		"scatter":     operator("scatter.src", along(1)),
		"scatter_add": operator("scatter_add.default", along(1)),
		"scatter_scalar_": unary(func(i *tensor) *tensor {
			return i.Tape().Zeros(trace.F32, i.Size(0), 512).ScatterInPlace(i)
		}),
		"one_hot":       operator("one_hot.default", arg("num_classes", int64(512))),
		"one_hot_float": unary(func(x *tensor) *tensor { return x.OneHot(512).To(trace.F32) }),
		"nonzero_free_mask_select": unary(func(x *tensor) *tensor {
			return trace.Where(x.GtScalar(), x, x.ZerosLike())
		}),
		"embedding":            embedding,
		"embedding_padding":    embedding,
		"F_embedding_codebook": binary((*tensor).Embedding),
		"sort":                 operator("sort.default"),
		"topk": func(_ *trace.Frame, v *vector, in []*tensor, _ params) []*tensor {
			return pair(in[0].TopK(v.Int("k", 0), -1))
		},
		"argsort": operator("argsort.default"),
		"tied_embedding": one(func(_ *vector, in []*tensor, p params) *tensor {
			return in[0].Embedding(p["e.weight"]).Linear(p["e.weight"], nil)
		}),
	}
}

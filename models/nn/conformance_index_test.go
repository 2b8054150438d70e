package nn_test

import (
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// indexOperators returns operators that read and write at positions, or sort.
func indexOperators() map[string]opvectors.Call {
	index := operator("index.Tensor")
	gather := operator("gather.default", along(-1))
	embedding := operatorWith("embedding.default", func(_ *vector, _ *tensor, p params) []aten.Arg {
		return learned(p, "weight")
	})
	return map[string]opvectors.Call{
		"index_select":  operator("index_select.default", along(1)),
		"index_adv":     index,
		"index_adv_big": index,
		"index_two":     index,
		"index_put": one(func(_ *vector, in []*tensor, _ params) *tensor {
			return at("index_put.default", in[0], arg("indices", in[1:2]), arg("values", in[2]))
		}),
		"index_add":   operator("index_add.default", along(0)),
		"gather":      gather,
		"gather_big":  gather,
		"scatter":     operator("scatter.src", along(1)),
		"scatter_add": operator("scatter_add.default", along(1)),
		"scatter_scalar_": unary(func(i *tensor) *tensor {
			return i.Tape().Zeros(trace.F32, i.Size(0), 512).ScatterInPlace(i)
		}),
		"one_hot": operator("one_hot.default", whole("num_classes", 512)),
		"one_hot_float": unary(func(x *tensor) *tensor {
			return at("to.dtype", at("one_hot.default", x, whole("num_classes", 512)), arg("dtype", trace.F32))
		}),
		"nonzero_free_mask_select": unary(func(x *tensor) *tensor {
			return at("where.self", positive(x), x, at("zeros_like.default", x))
		}),
		"embedding":         embedding,
		"embedding_padding": embedding,
		"F_embedding_codebook": binary(func(indices, weight *tensor) *tensor {
			return at("embedding.default", weight, indices)
		}),
		"sort": operator("sort.default"),
		"topk": operatorWith("topk.default", func(v *vector, _ *tensor, _ params) []aten.Arg {
			return []aten.Arg{whole("k", v.Int("k", 0))}
		}),
		"argsort": operator("argsort.default"),
		"tied_embedding": one(func(_ *vector, in []*tensor, p params) *tensor {
			return at("linear.default", at("embedding.default", p["e.weight"], in[0]), p["e.weight"])
		}),
	}
}

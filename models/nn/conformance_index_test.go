package nn_test

import (
	"github.com/vprof/vprof/profiler/aten/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

// indexOperators read and write at positions, or put in order.
func indexOperators() map[string]opvectors.Call {
	index := one(func(_ *vector, in []*tensor, _ params) *tensor { return in[0].Index(in[1:]...) })
	gather := binary((*tensor).Gather)
	embedding := one(func(_ *vector, in []*tensor, p params) *tensor { return in[0].Embedding(p["weight"]) })
	return map[string]opvectors.Call{
		"index_select":  binary(func(x, i *tensor) *tensor { return x.IndexSelect(1, i) }),
		"index_adv":     index,
		"index_adv_big": index,
		"index_two":     index,
		"index_put": one(func(_ *vector, in []*tensor, _ params) *tensor {
			return in[0].IndexPut(in[1:2], in[2], false)
		}),
		"index_add":   one(func(_ *vector, in []*tensor, _ params) *tensor { return in[0].IndexAdd(0, in[1], in[2]) }),
		"gather":      gather,
		"gather_big":  gather,
		"scatter":     one(func(_ *vector, in []*tensor, _ params) *tensor { return in[0].Scatter(in[1], in[2]) }),
		"scatter_add": one(func(_ *vector, in []*tensor, _ params) *tensor { return in[0].ScatterAdd(in[1], in[2]) }),
		"scatter_scalar_": unary(func(i *tensor) *tensor {
			return i.Tape().Zeros(trace.F32, i.Size(0), 512).ScatterInPlace(i)
		}),
		"one_hot":       unary(func(x *tensor) *tensor { return x.OneHot(512) }),
		"one_hot_float": unary(func(x *tensor) *tensor { return x.OneHot(512).To(trace.F32) }),
		"nonzero_free_mask_select": unary(func(x *tensor) *tensor {
			return trace.Where(x.GtScalar(), x, x.ZerosLike())
		}),
		"embedding":            embedding,
		"embedding_padding":    embedding,
		"F_embedding_codebook": binary((*tensor).Embedding),
		"sort":                 some(func(x *tensor) []*tensor { return pair(x.Sort(-1)) }),
		"topk": func(_ *trace.Frame, v *vector, in []*tensor, _ params) []*tensor {
			return pair(in[0].TopK(v.Int("k", 0), -1))
		},
		"argsort": unary(func(x *tensor) *tensor { return x.ArgSort(-1) }),
		"tied_embedding": one(func(_ *vector, in []*tensor, p params) *tensor {
			return in[0].Embedding(p["e.weight"]).Linear(p["e.weight"], nil)
		}),
	}
}

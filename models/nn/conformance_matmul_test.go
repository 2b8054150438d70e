package nn_test

import (
	"github.com/vprof/vprof/profiler/aten/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

// matmulOperators are matrix products and what is made of them.
func matmulOperators() map[string]opvectors.Call {
	linear := one(func(_ *vector, in []*tensor, p params) *tensor {
		return in[0].Linear(p["weight"], p["bias"])
	})
	return map[string]opvectors.Call{
		"linear":             linear,
		"linear_noncontig":   linear,
		"mm":                 binary((*tensor).MM),
		"mm_tA":              binary(func(a, b *tensor) *tensor { return a.T().Matmul(b) }),
		"mm_tB":              binary(func(a, b *tensor) *tensor { return a.Matmul(b.T()) }),
		"tied_head":          binary(func(a, b *tensor) *tensor { return a.Matmul(b.T()) }),
		"mv":                 binary((*tensor).MV),
		"dot":                binary((*tensor).Dot),
		"outer":              binary((*tensor).Outer),
		"addmm":              one(func(_ *vector, in []*tensor, _ params) *tensor { return in[0].AddMM(in[1], in[2]) }),
		"bmm":                binary((*tensor).BMM),
		"baddbmm":            one(func(_ *vector, in []*tensor, _ params) *tensor { return in[0].BAddBMM(in[1], in[2]) }),
		"matmul_4d_t":        binary(transposedProduct),
		"matmul_4d_nc":       binary(transposedProduct),
		"matmul_bcast":       binary((*tensor).Matmul),
		"matmul_bcast_left":  binary((*tensor).Matmul),
		"matmul_bcast_batch": binary((*tensor).Matmul),
		"matmul_vec":         binary((*tensor).Matmul),
		"einsum_bhid":        einsum("bhid,bhjd->bhij"),
		"einsum_bij_bjk":     einsum("bij,bjk->bik"),
		"einsum_bct_bt":      einsum("bct,bt->bc"),
		"einsum_bnd_kd":      einsum("bnd,kd->bnk"),
	}
}

func einsum(equation string) opvectors.Call {
	return binary(func(a, b *tensor) *tensor { return trace.Einsum(equation, a, b) })
}

// transposedProduct is q @ k^T.
func transposedProduct(q, k *tensor) *tensor { return q.Matmul(k.Transpose(-2, -1)) }

package nn_test

import (
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/tools/opvectors"
)

// matmulOperators returns matrix products and operators made of them.
func matmulOperators() map[string]opvectors.Call {
	linear := operatorWith("linear.default", func(_ *vector, _ *tensor, p params) []aten.Arg {
		return learned(p, "weight", "bias")
	})
	return map[string]opvectors.Call{
		"linear":             linear,
		"linear_noncontig":   linear,
		"mm":                 operator("mm.default"),
		"mm_tA":              binary(func(a, b *tensor) *tensor { return at("matmul.default", at("t.default", a), b) }),
		"mm_tB":              binary(byTransposed),
		"tied_head":          binary(byTransposed),
		"mv":                 operator("mv.default"),
		"dot":                operator("dot.default"),
		"outer":              operator("outer.default"),
		"addmm":              operator("addmm.default"),
		"bmm":                operator("bmm.default"),
		"baddbmm":            operator("baddbmm.default"),
		"matmul_4d_t":        binary(transposedProduct),
		"matmul_4d_nc":       binary(transposedProduct),
		"matmul_bcast":       operator("matmul.default"),
		"matmul_bcast_left":  operator("matmul.default"),
		"matmul_bcast_batch": operator("matmul.default"),
		"matmul_vec":         operator("matmul.default"),
		"einsum_bhid":        einsum("bhid,bhjd->bhij"),
		"einsum_bij_bjk":     einsum("bij,bjk->bik"),
		"einsum_bct_bt":      einsum("bct,bt->bc"),
		"einsum_bnd_kd":      einsum("bnd,kd->bnk"),
	}
}

func einsum(equation string) opvectors.Call {
	return operator("einsum.default", arg("equation", equation))
}

// byTransposed returns a @ b.t().
func byTransposed(a, b *tensor) *tensor { return at("matmul.default", a, at("t.default", b)) }

// transposedProduct records q @ k^T.
func transposedProduct(q, k *tensor) *tensor {
	return at("matmul.default", q, at("transpose.int", k, whole("dim0", -2), whole("dim1", -1)))
}

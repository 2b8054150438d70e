package aten

import (
	"errors"

	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// productOperators are matrix products, convolutions and attention.
var productOperators = operatorFamily{
	"_grouped_mm":          groupedMM,
	"mm":                   (*tensor).MM,
	"mv":                   (*tensor).MV,
	"dot vdot":             (*tensor).Dot,
	"outer ger":            (*tensor).Outer,
	"bmm":                  (*tensor).BMM,
	"matmul linalg_matmul": (*tensor).Matmul,
	"linear":               (*tensor).Linear,
	"bilinear":             ops.Bilinear,
	"einsum": func(a *Args) *tensor {
		return ops.EinsumAlong(a.Ints("path"), a.Text("equation"), a.Tensors("tensors")...)
	},
	"scaled_dot_product_attention": func(a *Args) *tensor {
		return a.first(0).ScaledDotProductAttention(a.Tensor("key"), a.Tensor("value"), trace.AttentionArgs{
			Mask: a.Tensor("attn_mask"), Dropout: a.Float("dropout_p"), IsCausal: a.Bool("is_causal"),
			EnableGQA: a.Bool("enable_gqa"),
		})
	},
	"inner":            func(x, y *tensor) *tensor { return x.Matmul(transposeLast(y)) },
	"linalg_vecdot":    func(a *Args) *tensor { return a.first(0).Mul(a.first(1)).Sum(false, a.Dim("dim")) },
	"chain_matmul":     func(a *Args) *tensor { return product(a.Tensors("matrices")) },
	"linalg_multi_dot": func(a *Args) *tensor { return product(a.Tensors("tensors")) },
	"addmv":            (*tensor).AddMV,
	"addbmm":           (*tensor).AddBMM,
	"tensordot":        (*tensor).TensorDot,
	"kron":             (*tensor).Kron,
	"convolution":      (*tensor).Conv,
	"conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding": (*tensor).Conv,
	"conv_transpose1d conv_transpose2d.input conv_transpose3d.input":    (*tensor).Conv,
	"addmm":   (*tensor).AddMMScaled,
	"baddbmm": (*tensor).BAddBMMScaled,
}

// convArgs returns the arguments of a convolution, whose padding may be "same" or "valid". A convolution with
// output_padding is transposed unless an argument says otherwise.
func (a *Args) convArgs() trace.ConvArgs {
	c := trace.ConvArgs{
		Stride: a.Ints("stride"), Padding: a.Ints("padding"), Dilation: a.Ints("dilation"), Groups: a.Int("groups"),
		Same: a.Text("padding") == "same",
	}
	if a.op.index("output_padding") >= 0 {
		c.OutputPadding = a.Ints("output_padding")
		c.Transposed = a.op.index("transposed") < 0 || a.Bool("transposed")
	}
	return c
}

// product records the product of several matrices, from left to right.
func product(xs []*tensor) *tensor {
	y := xs[0]
	for _, x := range xs[1:] {
		y = y.Matmul(x)
	}
	return y
}

func groupedMM(a *Args) *tensor {
	if a.Tensor("offs") == nil || a.Tensor("bias") != nil {
		a.Tape().Raise(errors.New("vprof supports _grouped_mm only with offs and without a bias"))
	}
	return a.first(0).GroupedMM(a.Tensor("mat2"), a.Tensor("offs"))
}

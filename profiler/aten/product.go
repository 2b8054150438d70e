package aten

import (
	"errors"

	"github.com/vprof/vprof/profiler/trace"
)

// products are matrix products, convolutions and attention.
var products = family{
	"_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor": one(groupedMM),
	"mm(Tensor self, Tensor mat2) -> Tensor":      binary((*tensor).MM),
	"mv(Tensor self, Tensor vec) -> Tensor":       binary((*tensor).MV),
	"dot(Tensor self, Tensor tensor) -> Tensor":   binary((*tensor).Dot),
	"outer(Tensor self, Tensor vec2) -> Tensor":   binary((*tensor).Outer),
	"bmm(Tensor self, Tensor mat2) -> Tensor":     binary((*tensor).BMM),
	"matmul(Tensor self, Tensor other) -> Tensor": binary((*tensor).Matmul),
	"addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).AddMMScaled(a.Tensor("mat1"), a.Tensor("mat2"), a.factors())
		}),
	"baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).BAddBMMScaled(a.Tensor("batch1"), a.Tensor("batch2"), a.factors())
		}),
	"linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Linear(a.Tensor("weight"), a.Tensor("bias"))
	}),
	"bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tensor("input1").Bilinear(a.Tensor("input2"), a.Tensor("weight"), a.Tensor("bias"))
	}),
	"einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor": one(func(a *Args) *tensor {
		return trace.Einsum(a.Text("equation"), a.Tensors("tensors")...)
	}),
	"scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float " +
		"dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).ScaledDotProductAttention(a.Tensor("key"), a.Tensor("value"), trace.AttentionArgs{
				Mask: a.Tensor("attn_mask"), Dropout: a.Float("dropout_p"), IsCausal: a.Bool("is_causal"),
				EnableGQA: a.Bool("enable_gqa"),
			})
		}),

	"ger(Tensor self, Tensor vec2) -> Tensor":   binary((*tensor).Outer),
	"vdot(Tensor self, Tensor other) -> Tensor": binary((*tensor).Dot),
	"inner(Tensor self, Tensor other) -> Tensor": binary(func(x, y *tensor) *tensor {
		return x.Matmul(transposeLast(y))
	}),
	"linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Mul(a.first(1)).Sum(false, a.Dim("dim"))
	}),
	"chain_matmul(Tensor[] matrices) -> Tensor": one(func(a *Args) *tensor {
		return product(a.Tensors("matrices"))
	}),
	"linalg_multi_dot(Tensor[] tensors) -> Tensor": one(func(a *Args) *tensor {
		return product(a.Tensors("tensors"))
	}),
	"addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).AddMV(a.Tensor("mat"), a.Tensor("vec"))
		}),
	"addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).AddBMM(a.Tensor("batch1"), a.Tensor("batch2"))
		}),
	"tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).TensorDot(a.first(1), a.Dims("dims_self"), a.Dims("dims_other"))
	}),
	"linalg_matmul(Tensor self, Tensor other) -> Tensor": binary((*tensor).Matmul),
	"kron(Tensor self, Tensor other) -> Tensor":          binary((*tensor).Kron),
	"convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, " +
		"bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor": one(convolution),
	"conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, SymInt[1] padding=0, SymInt[1] " +
		"dilation=1, SymInt groups=1) -> Tensor": one(conv),
	"conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, str padding='valid', " +
		"SymInt[1] dilation=1, SymInt groups=1) -> Tensor": one(conv),
	"conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=0, SymInt[2] " +
		"dilation=1, SymInt groups=1) -> Tensor": one(conv),
	"conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, str padding='valid', " +
		"SymInt[2] dilation=1, SymInt groups=1) -> Tensor": one(conv),
	"conv3d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, SymInt[3] padding=0, SymInt[3] " +
		"dilation=1, SymInt groups=1) -> Tensor": one(conv),
	"conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, str padding='valid', " +
		"SymInt[3] dilation=1, SymInt groups=1) -> Tensor": one(conv),
	"conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, SymInt[1] padding=0, " +
		"SymInt[1] output_padding=0, SymInt groups=1, SymInt[1] dilation=1) -> Tensor": one(convTranspose),
	"conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] " +
		"padding=0, SymInt[2] output_padding=0, SymInt groups=1, SymInt[2] dilation=1) -> Tensor": one(convTranspose),
	"conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, SymInt[3] " +
		"padding=0, SymInt[3] output_padding=0, SymInt groups=1, SymInt[3] dilation=1) -> Tensor": one(convTranspose),
}

// conv is a convolution; its padding may be "same" or "valid".
func conv(a *Args) *tensor {
	return a.first(0).Conv(a.Tensor("weight"), a.Tensor("bias"), trace.ConvArgs{
		Stride: a.Ints("stride"), Padding: a.Ints("padding"), Dilation: a.Ints("dilation"),
		Groups: a.Int("groups"), Same: a.Text("padding") == "same",
	})
}

func convTranspose(a *Args) *tensor {
	return a.first(0).Conv(a.Tensor("weight"), a.Tensor("bias"), trace.ConvArgs{
		Stride: a.Ints("stride"), Padding: a.Ints("padding"), Dilation: a.Ints("dilation"),
		Groups: a.Int("groups"), OutputPadding: a.Ints("output_padding"), Transposed: true,
	})
}

// product multiplies all matrices, from left to right.
func product(xs []*tensor) *tensor {
	y := xs[0]
	for _, x := range xs[1:] {
		y = y.Matmul(x)
	}
	return y
}

// factors are those of beta * x + alpha * a @ b.
func (a *Args) factors() trace.Factors {
	return trace.Factors{Beta: a.Float("beta") != 1, Alpha: a.Float("alpha") != 1}
}

// convolution is any of them, told by its arguments which.
func convolution(a *Args) *tensor {
	return a.first(0).Conv(a.Tensor("weight"), a.Tensor("bias"), trace.ConvArgs{
		Stride: a.Ints("stride"), Padding: a.Ints("padding"), Dilation: a.Ints("dilation"), Groups: a.Int("groups"),
		Transposed: a.Bool("transposed"), OutputPadding: a.Ints("output_padding"),
	})
}

func groupedMM(a *Args) *tensor {
	if a.Tensor("offs") == nil || a.Tensor("bias") != nil {
		a.Tape().Raise(errors.New("_grouped_mm is described for rows in groups (offs), without a bias"))
	}
	return a.first(0).GroupedMM(a.Tensor("mat2"), a.Tensor("offs"))
}

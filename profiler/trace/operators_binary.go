package trace

import (
	"slices"
	"strings"
)

// formulas are derivatives by argument.
type formulas = map[string]string

// binaryOperators are functions of several tensors.
var binaryOperators = []*Operator{
	{
		Schema:  "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
		InPlace: true, flops: 1, result: promoted,
		gradients: formulas{"self": "grad", "other": "grad"},
	},
	{
		Schema:  "sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
		Aliases: []string{"subtract.Tensor"}, InPlace: true, flops: 1, result: promoted,
		gradients: formulas{"self": "grad", "other": "-grad"},
	},
	{
		Schema:  "mul.Tensor(Tensor self, Tensor other) -> Tensor",
		Aliases: []string{"multiply.Tensor"}, InPlace: true, flops: 1, result: promoted,
		gradients: formulas{"self": "grad * other.conj()", "other": "grad * self.conj()"},
	},
	{
		Schema:  "div.Tensor(Tensor self, Tensor other) -> Tensor",
		Aliases: []string{"divide.Tensor", "true_divide.Tensor"}, InPlace: true, flops: 4,
		gradients: formulas{"self": "grad / other", "other": "-grad * ((self / other) / other)"},
	},
	{
		Schema: "remainder.Tensor(Tensor self, Tensor other) -> Tensor", flops: 2, result: promoted,
		Aliases:   []string{"fmod.Tensor"},
		gradients: formulas{"self": "grad", "other": "-grad * div_floor(self, other)"},
	},
	{
		Schema: "maximum(Tensor self, Tensor other) -> Tensor", Aliases: []string{"max.other"},
		flops: 1, result: promoted,
		gradients: formulas{"self": "extremum_backward(grad, self, other)", "other": "extremum_backward(grad, self, other)"},
	},
	{
		Schema: "minimum(Tensor self, Tensor other) -> Tensor", Aliases: []string{"min.other"},
		flops: 1, result: promoted,
		gradients: formulas{"self": "extremum_backward(grad, self, other)", "other": "extremum_backward(grad, self, other)"},
	},
	{
		Schema: "fmax(Tensor self, Tensor other) -> Tensor", Aliases: []string{"fmin"}, flops: 1, result: promoted,
		gradients: formulas{
			"self":  "grad.masked_fill((self >= other).logical_or_(other.isnan()), 0)",
			"other": "grad.masked_fill((self >= other).logical_or_(other.isnan()), 0)",
		},
	},
	{
		Schema: "hypot(Tensor self, Tensor other) -> Tensor", flops: 8, result: promoted,
		gradients: formulas{"self": "grad * self / result", "other": "grad * other / result"},
	},
	{
		Schema:  "logaddexp(Tensor self, Tensor other) -> Tensor",
		Aliases: []string{"logaddexp2"}, flops: 20, result: promoted,
		gradients: formulas{
			"self":  "grad / (exp(other - self) + 1)",
			"other": "grad / (exp(self - other) + 1)",
		},
	},
	{
		Schema:  "xlogy.Tensor(Tensor self, Tensor other) -> Tensor",
		Aliases: []string{"special_xlogy"}, flops: transcendentalFLOPs, native: "xlogy",
		gradients: formulas{
			"self":  "xlogy(grad, other).masked_fill((self == 0) & (other <= 0), 0)",
			"other": "grad * self / other",
		},
	},
	{
		Schema: "special_xlog1py(Tensor self, Tensor other) -> Tensor", flops: transcendentalFLOPs,
		gradients: formulas{
			"self":  "special_xlog1py(grad, other).masked_fill((self == 0) & (other <= -1), 0)",
			"other": "grad * self / (other + 1)",
		},
	},
	{
		Schema: "lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor", InPlace: true, flops: 3, result: selfTyped,
		gradients: formulas{"self": "grad * (1 - weight)", "end": "grad * weight"},
	},
	{
		Schema: "lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor",
		flops:  3, result: selfTyped, node: "LerpBackward1",
		gradients: formulas{"self": "grad * (1 - weight)", "end": "grad * weight", "weight": "grad * (end - self)"},
	},
	{
		Schema:  "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
		InPlace: true, flops: 3, casts: castWidest, result: promoted,
		gradients: formulas{"self": "grad", "tensor1": "grad * (tensor2 * value)", "tensor2": "grad * (tensor1 * value)"},
	},
	{
		Schema: "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
		flops:  6, casts: castWidest, result: promoted,
		gradients: formulas{
			"self":    "grad",
			"tensor1": "grad * (value / tensor2)",
			"tensor2": "-grad * (value * tensor1 / (tensor2 * tensor2))",
		},
	},
	{
		Schema: "pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", node: "PowBackward1",
		flops: powFLOPs, casts: castFull, result: promoted,
		gradients: formulas{
			"self":     "pow_backward_self(grad, self, exponent)",
			"exponent": "pow_backward_exponent(grad, self, exponent, result)",
		},
	},
}

// scalarOperators take a tensor and a number, which can lift the type of the result. Python's
// x + 1 calls the form for tensors, and that is how it is recorded.
var scalarOperators = []*Operator{
	{
		Schema:  "add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
		InPlace: true, native: "add_Tensor", flops: 1, result: promoted, gradients: gradient("grad"),
	},
	{
		Schema:  "sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
		Aliases: []string{"subtract.Scalar"}, InPlace: true, native: "add_Tensor", node: "AddBackward0",
		flops: 1, result: promoted, gradients: gradient("grad"),
	},
	{
		Schema:  "mul.Scalar(Tensor self, Scalar other) -> Tensor",
		Aliases: []string{"multiply.Scalar"}, InPlace: true, native: "mul_Tensor",
		flops: 1, result: promoted, gradients: gradient("grad * other"),
	},
	{
		Schema:  "div.Scalar(Tensor self, Scalar other) -> Tensor",
		Aliases: []string{"divide.Scalar", "true_divide.Scalar"}, InPlace: true, native: "div_Tensor",
		flops: 1, gradients: gradient("grad / other"),
	},
	{
		Schema: "rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
		native: "rsub_Scalar", node: "RsubBackward1", flops: 1, result: promoted, gradients: gradient("-grad"),
	},
	{
		Schema:  "remainder.Scalar(Tensor self, Scalar other) -> Tensor",
		Aliases: []string{"fmod.Scalar"}, native: "remainder_Scalar",
		flops: 1, result: promoted, gradients: gradient("grad"),
	},
}

// PointwiseOperators are the operators that are rows.
func PointwiseOperators() []*Operator {
	return slices.Concat(unaryOperators, activationOperators, binaryOperators, scalarOperators)
}

// operatorIndex finds rows by name, with the overload and, for the first of them, without.
var operatorIndex = func() map[string]*Operator {
	all := make(map[string]*Operator, 256)
	for _, o := range PointwiseOperators() {
		full := o.Name()
		all[full] = o
		base, _, overloaded := strings.Cut(full, ".")
		if overloaded && all[base] == nil {
			all[base] = o
		}
	}
	return all
}()

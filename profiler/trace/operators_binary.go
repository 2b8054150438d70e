package trace

import (
	"slices"
	"strings"
)

// binaryOperators are functions of several tensors.
var binaryOperators = []*Operator{
	row("add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", inPlace|keepsType, 1,
		"grad").and("other", "grad"),
	row("sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", inPlace|keepsType, 1,
		"grad", "subtract.Tensor").and("other", "-grad"),
	row("mul.Tensor(Tensor self, Tensor other) -> Tensor", inPlace|keepsType, 1,
		"grad * other.conj()", "multiply.Tensor").and("other", "grad * self.conj()"),
	row("div.Tensor(Tensor self, Tensor other) -> Tensor", inPlace, 4,
		"grad / other.conj()", "divide.Tensor", "true_divide.Tensor").
		and("other", "-grad * ((self / other) / other).conj()"),
	row("remainder.Tensor(Tensor self, Tensor other) -> Tensor", keepsType, 2,
		"grad", "fmod.Tensor").and("other", "-grad * div_floor(self, other)"),
	row("maximum(Tensor self, Tensor other) -> Tensor", keepsType, 1,
		"extremum_backward(grad, self, other)", "max.other").
		and("other", "extremum_backward(grad, self, other)"),
	row("minimum(Tensor self, Tensor other) -> Tensor", keepsType, 1,
		"extremum_backward(grad, self, other)", "min.other").
		and("other", "extremum_backward(grad, self, other)"),
	row("fmax(Tensor self, Tensor other) -> Tensor", keepsType, 1,
		"grad.masked_fill((self >= other).logical_or_(other.isnan()), 0)", "fmin").
		and("other", "grad.masked_fill((self >= other).logical_or_(other.isnan()), 0)"),
	row("linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor", inWidest|keepsType, 5,
		"linalg_cross(other, grad)", "cross(Tensor self, Tensor other, int? dim=None) -> Tensor").
		and("other", "linalg_cross(grad, self)"),
	row("heaviside(Tensor self, Tensor values) -> Tensor", keepsType, 1, ""),
	row("gcd(Tensor self, Tensor other) -> Tensor", keepsType, 10, "", "lcm"),
	row("_standard_gamma_grad(Tensor self, Tensor output) -> Tensor", ofSelf, specialFLOPs, ""),
	row("hypot(Tensor self, Tensor other) -> Tensor", keepsType, 8,
		"grad * self / result").and("other", "grad * other / result"),
	row("logaddexp(Tensor self, Tensor other) -> Tensor", keepsType, 20,
		"grad / (exp(other - self) + 1)", "logaddexp2").and("other", "grad / (exp(self - other) + 1)"),
	row("xlogy.Tensor(Tensor self, Tensor other) -> Tensor", 0, transcendentalFLOPs,
		"xlogy(grad, other).masked_fill((self == 0) & (other <= 0), 0)", "special_xlogy").
		and("other", "grad * self / other").recordedAs("xlogy"),
	row("special_xlog1py(Tensor self, Tensor other) -> Tensor", 0, transcendentalFLOPs,
		"special_xlog1py(grad, other).masked_fill((self == 0) & (other <= -1), 0)").
		and("other", "grad * self / (other + 1)"),
	row("lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor", inPlace|ofSelf, 3,
		"grad * (1 - weight)").and("end", "grad * weight"),
	row("lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor", ofSelf, 3,
		"grad * (1 - weight)").and("end", "grad * weight").and("weight", "grad * (end - self)").as("LerpBackward1"),
	row("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
		inPlace|inWidest|keepsType, 3,
		"grad").and("tensor1", "grad * (tensor2 * value)").and("tensor2", "grad * (tensor1 * value)"),
	row("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", inWidest|keepsType, 6,
		"grad").and("tensor1", "grad * (value / tensor2)").
		and("tensor2", "-grad * (value * tensor1 / (tensor2 * tensor2))"),
	row("pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", inFull|keepsType, powFLOPs,
		"pow_backward_self(grad, self, exponent)").
		and("exponent", "pow_backward_exponent(grad, self, exponent, result)").as("PowBackward1"),
}

// scalarOperators take a tensor and a number, which can lift the type of the result. Python's
// x + 1 calls the form for tensors, and that is how it is recorded.
var scalarOperators = []*Operator{
	row("add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", inPlace|keepsType, 1, "grad").
		recordedAs("add_Tensor"),
	row("sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", inPlace|keepsType, 1,
		"grad", "subtract.Scalar").as("AddBackward0").recordedAs("add_Tensor"),
	row("mul.Scalar(Tensor self, Scalar other) -> Tensor", inPlace|keepsType, 1,
		"grad * other", "multiply.Scalar").recordedAs("mul_Tensor"),
	row("div.Scalar(Tensor self, Scalar other) -> Tensor", inPlace, 1,
		"grad / other", "divide.Scalar", "true_divide.Scalar").recordedAs("div_Tensor"),
	row("rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", keepsType, 1, "-grad").as("RsubBackward1").
		recordedAs("rsub_Scalar"),
	row("remainder.Scalar(Tensor self, Scalar other) -> Tensor", keepsType, 1, "grad", "fmod.Scalar").
		recordedAs("remainder_Scalar"),
}

// PointwiseOperators returns the operators that are rows.
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

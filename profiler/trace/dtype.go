package trace

import "github.com/vprof/vprof/profiler/program"

// DType is a PyTorch element type (torch.dtype).
type DType uint8

// The element types, in order of promotion within their kind.
const (
	Bool DType = iota
	U8
	I32
	I64
	F16
	BF16
	F32
	F64
	C64
	numDTypes
)

var (
	dtypeSizes = [numDTypes]int64{1, 1, 4, 8, 2, 2, 4, 8, 8}
	dtypeNames = [numDTypes]string{"bool", "u8", "i32", "i64", "f16", "bf16", "f32", "f64", "c64"}
	torchNames = [numDTypes]string{
		"bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32",
		"float64", "complex64",
	}
)

// Size returns the number of bytes of one element.
func (d DType) Size() int64 { return dtypeSizes[d] }

// String returns the short name of the type, such as "fp32".
func (d DType) String() string { return dtypeNames[d] }

// Torch returns PyTorch's name of the type.
func (d DType) Torch() string { return torchNames[d] }

// IsFloat reports whether d is a real floating-point type.
func (d DType) IsFloat() bool { return d >= F16 && d <= F64 }

// IsHalf reports whether d is one of the two 16-bit floating-point types.
func (d DType) IsHalf() bool { return d == F16 || d == BF16 }

func (d DType) differentiable() bool { return d >= F16 }

// precision returns the precision of arithmetic on elements of type d.
func (d DType) precision() program.Precision {
	switch d {
	case F16:
		return program.FP16
	case BF16:
		return program.BF16
	case F64:
		return program.FP64
	default:
		return program.FP32
	}
}

// accumulate returns the type in which elements of type d are summed (at::opmath_type).
func (d DType) accumulate() DType {
	if d.IsHalf() {
		return F32
	}
	return d
}

// PromoteTypes implements torch.promote_types.
func PromoteTypes(a, b DType) DType {
	if (a == F16 && b == BF16) || (a == BF16 && b == F16) {
		return F32
	}
	return max(a, b)
}

// kind returns the rank of the type's category in promotion: bool, integer, real, complex.
func (d DType) kind() int {
	switch {
	case d == Bool:
		return 0
	case d < F16:
		return 1
	case d < C64:
		return 2
	default:
		return 3
	}
}

// resultType implements torch.result_type. Tensors without dimensions count only if their category (bool, integer,
// float) is higher than the category of all others.
func resultType(xs ...*Tensor) DType {
	var dimmed, zero DType
	var hasDimmed, hasZero bool
	for _, x := range xs {
		if len(x.shape) > 0 {
			dimmed, hasDimmed = PromoteTypes(dimmed, x.dtype), true
		} else {
			zero, hasZero = PromoteTypes(zero, x.dtype), true
		}
	}
	switch {
	case !hasDimmed:
		return zero
	case !hasZero || zero.kind() <= dimmed.kind():
		return dimmed
	default:
		return PromoteTypes(dimmed, zero)
	}
}

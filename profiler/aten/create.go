package aten

import (
	"math"

	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// creationOperators has the operators that create tensors without an input tensor, including random numbers.
var creationOperators = operatorFamily{
	"full":        full,
	"multinomial": ops.Multinomial,
	"randperm": func(a *Args) *tensor {
		return ops.RandPerm(a.Tape(), a.Int("n"), a.DType("dtype", trace.I64))
	},
	"zero_":                     (*tensor).ZeroInPlace,
	"hann_window":               ops.HannWindow,
	"tril_indices triu_indices": triangleIndices,
	"arange":                    func(a *Args) *tensor { return a.arange(0, a.Float("end"), 1) },
	"arange.start":              func(a *Args) *tensor { return a.arange(a.Float("start"), a.Float("end"), 1) },
	"arange.start_step": func(a *Args) *tensor {
		return a.arange(a.Float("start"), a.Float("end"), a.Float("step"))
	},
	"zeros ones rand randn empty.memory_format": newFilled,
	"new_zeros new_ones new_empty new_full": func(a *Args) *tensor {
		return a.newResult(a.first(0).DType(), a.Ints("size")...)
	},
	"zeros_like ones_like empty_like full_like rand_like randn_like":    newLike,
	"randint_like randint_like.low_dtype bernoulli bernoulli.p poisson": newLike,
	"uniform_ normal_ bernoulli_.float bernoulli_.Tensor exponential_":  overwriteInPlace,
	"random_ log_normal_ cauchy_ geometric_":                            overwriteInPlace,
	"linspace logspace": func(a *Args) *tensor {
		return a.newResult(trace.F32, a.Int("steps"))
	},
	"eye": func(a *Args) *tensor { return a.newResult(trace.F32, a.Int("n"), a.Int("n")) },
	"eye.m": func(a *Args) *tensor {
		return a.newResult(trace.F32, a.Int("n"), a.Int("m"))
	},
	"scalar_tensor": func(a *Args) *tensor { return a.newResult(trace.F32) },
	"randint randint.low": func(a *Args) *tensor {
		return a.newResult(trace.I64, a.Ints("size")...)
	},
	"empty_strided":     func(a *Args) *tensor { return a.newStrided(trace.F32) },
	"new_empty_strided": func(a *Args) *tensor { return a.newStrided(a.first(0).DType()) },
}

// newResult returns a new tensor of the given size, whose values the operator sets. Its type is the argument dtype, or
// otherwise if dtype is None.
func (a *Args) newResult(otherwise trace.DType, size ...int64) *tensor {
	return a.tape.Filled(a.op.base(), a.DType("dtype", otherwise), size...)
}

func (a *Args) newStrided(otherwise trace.DType) *tensor {
	return a.tape.FilledStrided(a.op.base(), a.DType("dtype", otherwise), a.Ints("size"), a.Ints("stride"))
}

func newFilled(a *Args) *tensor { return a.newResult(trace.F32, a.Ints("size")...) }

// full records aten::full, whose result has the type of its fill value.
func full(a *Args) *tensor { return a.newResult(numberType(a.value("fill_value")), a.Ints("size")...) }

// numberType returns the element type of a tensor that is made from a number.
func numberType(v Value) trace.DType {
	switch v.(type) {
	case bool:
		return trace.Bool
	case int64:
		return trace.I64
	default:
		return trace.F32
	}
}

// arange records torch.arange. The result has integers if start, end and step are integers.
func (a *Args) arange(start, end, step float64) *tensor {
	d := trace.I64
	for i, p := range a.op.Arguments {
		if p.Type != "Scalar" {
			continue
		}
		if _, real := a.values[i].(float64); real {
			d = trace.F32
		}
	}
	n := int64(0)
	if step != 0 {
		n = max(int64(math.Ceil((end-start)/step)), 0)
	}
	return a.newResult(d, n)
}

// newLike records an operator such as zeros_like: a new tensor with the shape and layout of the first argument.
func newLike(a *Args) *tensor {
	x, op := a.first(0), a.op.base()
	d := x.DType()
	if a.op.index("dtype") >= 0 {
		d = a.DType("dtype", d)
	}
	if a.op.index("memory_format") >= 0 {
		switch a.Format("memory_format") {
		case ContiguousFormat:
			return a.tape.Filled(op, d, x.Shape()...)
		case ChannelsLast:
			return a.tape.FilledChannelsLast(op, d, x.Shape()...)
		}
	}
	return x.FilledLike(op, d)
}

// overwriteInPlace records an operator that overwrites all values of its argument.
func overwriteInPlace(a *Args) *tensor { return a.first(0).FillInPlace(a.op.base()) }

// triangleIndices records tril_indices or triu_indices: the rows and columns of a triangle of a matrix.
func triangleIndices(a *Args) *tensor {
	rows, columns, offset := a.Int("row"), a.Int("col"), a.Int("offset")
	n := int64(0)
	for i := range rows {
		if a.op.Name == "aten::tril_indices" {
			n += min(max(i+offset+1, 0), columns)
		} else {
			n += columns - min(max(i+offset, 0), columns)
		}
	}
	return a.Tape().Filled("tril_indices", a.DType("dtype", trace.I64), 2, n)
}

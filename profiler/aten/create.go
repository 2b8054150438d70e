package aten

import (
	"math"

	"github.com/vprof/vprof/profiler/trace"
)

// creation are operators that make tensors of no others, and random numbers.
var creation = family{
	"zeros(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.filled("zeros")
	}),
	"ones(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.filled("ones")
	}),
	"rand(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.filled("rand")
	}),
	"randn(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.filled("randn")
	}),
	"empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None, MemoryFormat? memory_format=None) -> Tensor": one(func(a *Args) *tensor {
		return a.filled("empty")
	}),
	"full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, " +
		"bool? pin_memory=None) -> Tensor": one(full),
	"new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, " +
		"bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.filledAs("new_zeros")
	}),
	"new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, " +
		"bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.filledAs("new_ones")
	}),
	"new_empty(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, " +
		"bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.filledAs("new_empty")
	}),
	"new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, " +
		"Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.filledAs("new_full")
	}),
	"zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None, MemoryFormat? memory_format=None) -> Tensor": like("zeros_like"),
	"ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None, MemoryFormat? memory_format=None) -> Tensor": like("ones_like"),
	"empty_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None, MemoryFormat? memory_format=None) -> Tensor": like("empty_like"),
	"full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, " +
		"bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor": like("full_like"),
	"multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).Multinomial(a.Int("num_samples"), a.Bool("replacement"))
		}),
	"randperm(SymInt n, *, ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool? pin_memory=None) " +
		"-> Tensor": one(func(a *Args) *tensor {
		return a.Tape().RandPerm(a.Int("n"), a.DType("dtype", trace.I64))
	}),
	"zero_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).ZeroInPlace),
	"rand_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None, MemoryFormat? memory_format=None) -> Tensor": like("rand_like"),
	"randn_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None, MemoryFormat? memory_format=None) -> Tensor": like("randn_like"),
	"randint_like(Tensor self, SymInt high, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, " +
		"bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor": like("randint_like"),
	"randint_like.low_dtype(Tensor self, SymInt low, SymInt high, *, ScalarType? dtype=None, Layout? layout=None, " +
		"Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor": like("randint_like"),
	"bernoulli(Tensor self, *, Generator? generator=None) -> Tensor":            like("bernoulli"),
	"bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor": like("bernoulli"),
	"poisson(Tensor self, Generator? generator=None) -> Tensor":                 like("poisson"),
	"randint(SymInt high, SymInt[] size, *, ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(integers),
	"randint.low(SymInt low, SymInt high, SymInt[] size, *, ScalarType? dtype=long, Layout? layout=None, Device? " +
		"device=None, bool? pin_memory=None) -> Tensor": one(integers),
	"uniform_(Tensor(a!) self, float from=0, float to=1, *, Generator? generator=None) -> Tensor(a!)": overwrittenBy(
		"uniform_"),
	"normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)": overwrittenBy(
		"normal_"), "bernoulli_.float(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)": overwrittenBy("bernoulli_"),
	"exponential_(Tensor(a!) self, float lambd=1, *, Generator? generator=None) -> Tensor(a!)": overwrittenBy(
		"exponential_"),
	"random_(Tensor(a!) self, *, Generator? generator=None) -> Tensor(a!)":                                overwrittenBy("random_"),
	"log_normal_(Tensor(a!) self, float mean=1, float std=2, *, Generator? generator=None) -> Tensor(a!)": overwrittenBy("log_normal_"),
	"cauchy_(Tensor(a!) self, float median=0, float sigma=1, *, Generator? generator=None) -> Tensor(a!)": overwrittenBy("cauchy_"),
	"geometric_(Tensor(a!) self, float p, *, Generator? generator=None) -> Tensor(a!)":                    overwrittenBy("geometric_"),
	"bernoulli_.Tensor(Tensor(a!) self, Tensor p, *, Generator? generator=None) -> Tensor(a!)":            overwrittenBy("bernoulli_"),
	"linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None, Layout? layout=None, Device? " +
		"device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Filled("linspace", a.DType("dtype", trace.F32), a.Int("steps"))
	}),
	"logspace(Scalar start, Scalar end, int steps, float base=10.0, *, ScalarType? dtype=None, Layout? layout=None, " +
		"Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Filled("logspace", a.DType("dtype", trace.F32), a.Int("steps"))
	}),
	"eye(SymInt n, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> " +
		"Tensor": one(func(a *Args) *tensor {
		return a.Tape().Filled("eye", a.DType("dtype", trace.F32), a.Int("n"), a.Int("n"))
	}),
	"eye.m(SymInt n, SymInt m, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Filled("eye", a.DType("dtype", trace.F32), a.Int("n"), a.Int("m"))
	}),
	"scalar_tensor(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Filled("scalar_tensor", a.DType("dtype", trace.F32))
	}),
	"empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, Device? " +
		"device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().FilledStrided("empty_strided", a.DType("dtype", trace.F32), a.Ints("size"), a.Ints("stride"))
	}),
	"new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, " +
		"Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().FilledStrided("new_empty_strided", a.DType("dtype", a.first(0).DType()), a.Ints("size"),
			a.Ints("stride"))
	}),
	"hann_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().HannWindow(a.Int("window_length"))
	}),
	"tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=long, Layout? layout=None, Device? " +
		"device=None, bool? pin_memory=None) -> Tensor": one(triangle),
	"triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=long, Layout? layout=None, Device? " +
		"device=None, bool? pin_memory=None) -> Tensor": one(triangle),
	"arange(Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) " +
		"-> Tensor": one(func(a *Args) *tensor {
		return a.arange(0, a.Float("end"), 1)
	}),
	"arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, " +
		"bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.arange(a.Float("start"), a.Float("end"), 1)
	}),
	"arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, Layout? layout=None, " +
		"Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.arange(a.Float("start"), a.Float("end"), a.Float("step"))
	}),
}

// filled is a tensor of the given size and type, single precision unless told
// otherwise.
func (a *Args) filled(op string) *tensor {
	return a.Tape().Filled(op, a.DType("dtype", trace.F32), a.Ints("size")...)
}

// filledAs is one of the type of the first argument.
func (a *Args) filledAs(op string) *tensor {
	return a.Tape().Filled(op, a.DType("dtype", a.first(0).DType()), a.Ints("size")...)
}

// full has the type of its number.
func full(a *Args) *tensor {
	return a.Tape().Filled("full", a.DType("dtype", numberType(a.value("fill_value"))), a.Ints("size")...)
}

// numberType is the type of a tensor made of a number.
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

// arange counts in integers if all of its numbers are.
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
	return a.Tape().Filled("arange", a.DType("dtype", d), n)
}

// like is a tensor in the shape and layout of the first argument.
func like(op string) body {
	return one(func(a *Args) *tensor {
		x := a.first(0)
		d := x.DType()
		if a.op.index("dtype") >= 0 {
			d = a.DType("dtype", d)
		}
		if a.op.index("memory_format") >= 0 {
			switch a.Format("memory_format") {
			case ContiguousFormat:
				return a.Tape().Filled(op, d, x.Shape()...)
			case ChannelsLast:
				return a.Tape().FilledChannelsLast(op, d, x.Shape()...)
			}
		}
		return x.FilledLike(op, d)
	})
}

// overwrittenBy is the body of an operator that fills its argument.
func overwrittenBy(op string) body {
	return unary(func(x *tensor) *tensor { return x.FillInPlace(op) })
}

func integers(a *Args) *tensor {
	return a.Tape().Filled("randint", a.DType("dtype", trace.I64), a.Ints("size")...)
}

// triangle are the places of a triangle of a matrix: rows and columns.
func triangle(a *Args) *tensor {
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

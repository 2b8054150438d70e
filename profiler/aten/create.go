package aten

import (
	"math"

	"github.com/vprof/vprof/profiler/trace"
)

// creation are operators that make tensors of no others, and random numbers.
var creation = family{
	"zeros(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                                        one(func(a *Args) *tensor { return a.filled("zeros") }),
	"ones(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                                         one(func(a *Args) *tensor { return a.filled("ones") }),
	"rand(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                                         one(func(a *Args) *tensor { return a.filled("rand") }),
	"randn(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                                        one(func(a *Args) *tensor { return a.filled("randn") }),
	"empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor":        one(func(a *Args) *tensor { return a.filled("empty") }),
	"full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                      one(full),
	"new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                       one(func(a *Args) *tensor { return a.filledAs("new_zeros") }),
	"new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                        one(func(a *Args) *tensor { return a.filledAs("new_ones") }),
	"new_empty(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                       one(func(a *Args) *tensor { return a.filledAs("new_empty") }),
	"new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                     one(func(a *Args) *tensor { return a.filledAs("new_full") }),
	"zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor":                   unary((*tensor).ZerosLike),
	"ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor":                    unary((*tensor).OnesLike),
	"empty_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor":                   unary((*tensor).EmptyLike),
	"full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor": unary((*tensor).OnesLike),
	"zero_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).ZeroInPlace),
	"arange(Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                         one(func(a *Args) *tensor { return a.arange(0, a.Float("end"), 1) }),
	"arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                     one(func(a *Args) *tensor { return a.arange(a.Float("start"), a.Float("end"), 1) }),
	"arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor { return a.arange(a.Float("start"), a.Float("end"), a.Float("step")) }),
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

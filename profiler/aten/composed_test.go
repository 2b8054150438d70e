package aten

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/trace"
)

func TestComposedOperatorsGiveTheirShapes(t *testing.T) {
	one := func(shape ...int64) func(f *trace.Frame) []Arg {
		return func(f *trace.Frame) []Arg { return []Arg{{"self", input(f, shape...)}} }
	}
	for _, c := range []struct {
		target string
		args   func(f *trace.Frame) []Arg
		want   []int64
	}{
		{"atleast_3d.default", one(), []int64{1, 1, 1}},
		{"atleast_3d.default", one(5), []int64{1, 5, 1}},
		{"atleast_3d.default", one(4, 5), []int64{4, 5, 1}},
		{"atleast_3d.default", one(3, 4, 5, 6), []int64{3, 4, 5, 6}},
		{"dstack.default", func(f *trace.Frame) []Arg {
			return []Arg{{"tensors", []*trace.Tensor{input(f, 4, 5), input(f, 4, 5)}}}
		}, []int64{4, 5, 2}},
		{"diagflat.default", one(2, 3), []int64{6, 6}},
		{"cross.default", func(f *trace.Frame) []Arg {
			return []Arg{{"self", input(f, 7, 3)}, {"other", input(f, 7, 3)}, {"dim", int64(1)}}
		}, []int64{7, 3}},
		{"native_channel_shuffle.default", func(f *trace.Frame) []Arg {
			return []Arg{{"self", input(f, 2, 8, 4, 4)}, {"groups", int64(2)}}
		}, []int64{2, 8, 4, 4}},
		{"trapezoid.dx", func(f *trace.Frame) []Arg {
			return []Arg{{"y", input(f, 4, 5)}, {"dim", int64(0)}}
		}, []int64{5}},
		{"hamming_window.default", func(*trace.Frame) []Arg {
			return []Arg{{"window_length", int64(64)}}
		}, []int64{64}},
		{"normal.float_float", func(*trace.Frame) []Arg {
			return []Arg{{"mean", 0.0}, {"std", 1.0}, {"size", []int64{4, 5}}}
		}, []int64{4, 5}},
	} {
		out, err := call(t, c.target, c.args)
		require.NoError(t, err, c.target)
		require.Equal(t, c.want, out[0].(*trace.Tensor).Shape(), c.target)
	}
}

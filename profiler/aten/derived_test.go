package aten

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// TestDerivedOperatorsAllocateAsTheirFormulasSay has operators whose rules are derived from PyTorch's derivatives and
// kernels: what they allocate, in bytes and in order, forward and backward (the incoming gradient left out), is what
// PyTorch 2.11 allocates on fake tensors. What kernels of CUDA take besides is marked.
func TestDerivedOperatorsAllocateAsTheirFormulasSay(t *testing.T) {
	x := func(f *trace.Frame, shape ...int64) *trace.Tensor { return f.Bind(input(f, shape...).Leaf().Clone()) }
	ids := func(f *trace.Frame, shape ...int64) *trace.Tensor {
		return f.Bind(f.Tape().New("ids", program.Batch, trace.I64, shape...))
	}
	mask := func(f *trace.Frame, shape ...int64) *trace.Tensor {
		return f.Bind(f.Tape().New("mask", program.Batch, trace.Bool, shape...))
	}
	self := func(shape ...int64) func(f *trace.Frame) []Arg {
		return func(f *trace.Frame) []Arg { return []Arg{{"self", x(f, shape...)}} }
	}
	const cubPartials = 1279 // temporary storage of a scan of 512 elements
	release, err := stack.Lookup("2.11")
	require.NoError(t, err)
	for _, c := range []struct {
		target            string
		args              func(f *trace.Frame) []Arg
		forward, backward []int64
	}{
		{"nansum.default", self(4, 8, 16), []int64{4}, []int64{512, 512, 2048}},
		{"trace.default", self(8, 8), []int64{4}, []int64{256, 64}},
		{"histc.default", self(4, 8, 16), []int64{400}, nil},
		{"bincount.default", func(f *trace.Frame) []Arg { // on a simulated GPU, as PyTorch 2.15 took it
			return []Arg{{"self", ids(f, 1000)}, {"minlength", int64(50)}}
		}, []int64{8, 8, 400}, nil},
		{"bincount.default", func(f *trace.Frame) []Arg {
			return []Arg{{"self", ids(f, 1000)}, {"weights", input(f, 1000)}, {"minlength", int64(50)}}
		}, []int64{8, 8, 200}, nil},
		{"where.self", func(f *trace.Frame) []Arg { // a condition of bytes
			bytes := f.Bind(f.Tape().New("bytes", program.Batch, trace.U8, 4, 8))
			return []Arg{{"condition", bytes}, {"self", x(f, 4, 8)}, {"other", x(f, 4, 8)}}
		}, []int64{32, 128}, []int64{4, 32, 128, 4, 32, 128}},
		{
			"logcumsumexp.default", func(f *trace.Frame) []Arg {
				return []Arg{{"self", x(f, 4, 8, 16)}, {"dim", int64(1)}}
			},
			[]int64{2048},
			[]int64{
				4, 2048, 2048, 512, 2048, 512, 2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048,
				2048, 2048, 2048,
			},
		},
		{"xlogy.Tensor", func(f *trace.Frame) []Arg {
			return []Arg{{"self", x(f, 4, 8)}, {"other", x(f, 4, 8)}}
		}, []int64{128}, []int64{128, 128, 128, 32, 32, 32, 128}},
		{"float_power.Tensor_Scalar", func(f *trace.Frame) []Arg {
			return []Arg{{"self", x(f, 4, 8)}, {"exponent", 2.0}}
		}, []int64{256, 256}, []int64{256, 256, 256, 128}},
		{"cumulative_trapezoid.dx", func(f *trace.Frame) []Arg {
			return []Arg{{"y", x(f, 4, 8)}, {"dim", int64(1)}}
		}, []int64{112, 112, 112}, []int64{112, 112, 112, 112, 128, 128}},
		{
			"max_unpool2d.default", func(f *trace.Frame) []Arg {
				return []Arg{
					{"self", x(f, 1, 2, 4, 4)},
					{"indices", ids(f, 1, 2, 4, 4)},
					{"output_size", []int64{8, 8}},
				}
			}, []int64{512}, []int64{128},
		},
		{
			"fractional_max_pool2d.default", func(f *trace.Frame) []Arg {
				return []Arg{
					{"self", x(f, 1, 2, 8, 8)},
					{"kernel_size", []int64{2, 2}},
					{"output_size", []int64{4, 4}},
					{"random_samples", input(f, 1, 2, 2)},
				}
			}, []int64{128, 256}, []int64{512},
		},
		{
			"multi_margin_loss.default", func(f *trace.Frame) []Arg {
				return []Arg{{"self", x(f, 8, 16)}, {"target", ids(f, 8)}}
			},
			[]int64{32, 4},
			[]int64{512}, // 32: a number a sample
		},
		{
			"masked_scatter.default", func(f *trace.Frame) []Arg {
				return []Arg{{"self", x(f, 4, 8, 16)}, {"mask", mask(f, 4, 8, 16)}, {"source", x(f, 4, 16)}}
			}, []int64{2048, 4096, cubPartials}, []int64{2048, 256, 4, 1536}, // places of the mask before and after
		},
		{
			"embedding_bag.padding_idx", func(f *trace.Frame) []Arg {
				return []Arg{
					{"weight", x(f, 10, 8)},
					{"indices", ids(f, 32)},
					{"offsets", ids(f, 4)},
					{"scale_grad_by_freq", false},
					{"mode", int64(2)},
					{"sparse", false},
					{"per_sample_weights", nil},
					{"include_last_offset", false},
					{"padding_idx", nil},
				}
			}, []int64{32, 256, 128, 256}, []int64{320},
		},
		{
			"roi_pool.default", func(f *trace.Frame) []Arg {
				return []Arg{
					{"input", x(f, 1, 2, 8, 8)},
					{"rois", input(f, 5, 5)},
					{"spatial_scale", 1.0},
					{"pooled_height", int64(7)},
					{"pooled_width", int64(7)},
				}
			}, []int64{1960, 1960}, []int64{1960, 512},
		},
		{
			"deform_conv2d.default", func(f *trace.Frame) []Arg {
				one, zero := int64(1), int64(0)
				return []Arg{
					{"input", x(f, 2, 3, 8, 8)},
					{"weight", x(f, 4, 3, 3, 3)},
					{"offset", x(f, 2, 18, 8, 8)},
					{"mask", x(f, 2, 9, 8, 8)},
					{"bias", x(f, 4)},
					{"stride_h", one},
					{"stride_w", one},
					{"pad_h", one},
					{"pad_w", one},
					{"dilation_h", one},
					{"dilation_w", one},
					{"groups", one},
					{"offset_groups", one},
					{"use_mask", zero != one},
				}
			},
			[]int64{2048, 2048, 13824, 2048}, // 13824: columns
			[]int64{1536, 9216, 4608, 13824, 432, 2048, 13824, 16, 16, 16},
		},
	} {
		op, ok := ByTarget("torch.ops.aten." + c.target)
		if !ok {
			op, ok = ByTarget("torch.ops.torchvision." + c.target)
		}
		require.True(t, ok, c.target)
		tape := trace.New(opvectors.GPUs["rtx-5060-ti"], release.Rules(), trace.Options{Warm: true})
		f := tape.Frame()
		args, err := op.Bind(c.args(f)...)
		require.NoError(t, err, c.target)
		rec := opvectors.NewRecorder(tape)
		values, err := op.Call(tape, args)
		require.NoError(t, err, c.target)
		out := tensorsOf(values)
		f.BindAll(out)
		require.Equal(t, c.forward, sizes(t, rec), "%s forward", c.target)
		if !out[0].RequiresGrad() {
			require.Nil(t, c.backward, c.target)
			continue
		}
		grad := f.Bind(out[0].NewGradient())
		rec.Events()
		trace.Backward(out[:1], []*trace.Tensor{grad})
		require.Equal(t, c.backward, sizes(t, rec), "%s backward", c.target)
	}
}

// sizes returns the bytes of the allocations since the recorder was last asked.
func sizes(t *testing.T, rec *opvectors.Recorder) []int64 {
	var out []int64
	for _, e := range rec.Events() {
		if bytes, ok := strings.CutPrefix(e, "+"); ok {
			var n int64
			_, err := fmt.Sscan(bytes, &n)
			require.NoError(t, err)
			out = append(out, n)
		}
	}
	return out
}

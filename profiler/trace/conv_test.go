package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// convCase is a convolution that has an output.
type convCase struct {
	x, w []int64
	args trace.ConvArgs
}

func drawConv(rt *rapid.T) convCase {
	dims := rapid.IntRange(1, 3).Draw(rt, "dims")
	groups := rapid.Int64Range(1, 3).Draw(rt, "groups")
	in, out := groups*rapid.Int64Range(1, 5).Draw(rt, "in"), groups*rapid.Int64Range(1, 5).Draw(rt, "out")
	c := convCase{x: []int64{rapid.Int64Range(1, 4).Draw(rt, "batch"), in}, w: []int64{out, in / groups}}
	c.args = trace.ConvArgs{Groups: groups, Transposed: rapid.Bool().Draw(rt, "transposed")}
	if c.args.Transposed {
		c.w = []int64{in, out / groups}
	}
	for range dims {
		kernel := rapid.Int64Range(1, 4).Draw(rt, "kernel")
		dilation := rapid.Int64Range(1, 2).Draw(rt, "dilation")
		c.x = append(c.x, rapid.Int64Range(dilation*(kernel-1)+1, 20).Draw(rt, "size"))
		c.w = append(c.w, kernel)
		c.args.Dilation = append(c.args.Dilation, dilation)
		c.args.Stride = append(c.args.Stride, rapid.Int64Range(1, 3).Draw(rt, "stride"))
		c.args.Padding = append(c.args.Padding, rapid.Int64Range(0, (dilation*(kernel-1))/2).Draw(rt, "padding"))
	}
	return c
}

// run records forward and backward and returns the leaves.
func (c convCase) run(gpu trace.GPU, d trace.DType) (tape *trace.Tape, x, w, b *tensor) {
	tape = trace.New(gpu, rules, trace.Options{Warm: true})
	f := tape.Frame()
	out := c.w[0]
	if c.args.Transposed {
		out = c.w[1] * c.args.Groups
	}
	x = f.Bind(tape.New("x", program.Batch, d, c.x...).Leaf())
	w = f.Bind(tape.New("w", program.Weights, d, c.w...).Leaf())
	b = f.Bind(tape.New("b", program.Weights, d, out).Leaf())
	y := f.Bind(x.Conv(w, b, c.args))
	trace.Backward([]*tensor{y}, []*tensor{y.NewGradient()})
	return tape, x, w, b
}

func TestConvGradientsHaveTheShapeOfTheirTensor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawConv(rt)
		_, x, w, b := c.run(hopper, rapid.SampledFrom([]trace.DType{trace.F32, trace.F16, trace.BF16}).
			Draw(rt, "dtype"))
		for _, leaf := range []*tensor{x, w, b} {
			require.Equal(t, leaf.Shape(), leaf.Grad().Shape())
			require.Equal(t, leaf.DType(), leaf.Grad().DType())
		}
	})
}

// Forward, gradient of the input and gradient of the weight are the same sum of products, taken along different axes.
func TestConvDirectionsDoEqualWork(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawConv(rt)
		tape, _, _, _ := c.run(hopper, trace.F32)
		channels := [2]int64{c.w[0], c.w[1] * c.args.Groups}
		var work []program.Op
		for _, op := range tape.Program().Ops {
			if op.Work == program.Convolution {
				work = append(work, op)
			}
		}
		require.Len(t, work, 3)
		for _, op := range work {
			require.Equal(t, work[0].FLOPs, op.FLOPs)
			p := tape.Program().ProductOf(&op)
			require.Equal(t, 2*p.M*p.N*p.K*p.Batch, op.FLOPs)
			if lanes := p.Window.Groups; p.Window.Images > 0 {
				require.Equal(t, [2]int64{}, [2]int64{channels[0] % lanes, channels[1] % lanes})
				require.NotEqual(t, [2]int64{}, [2]int64{channels[0] % (2 * lanes), channels[1] % (2 * lanes)})
			}
		}
	})
}

// A gradient of one channel that comes out of permute(0, 2, 3, 1) fits both layouts, and its strides say
// channels_last: to() of an input that is not so copies it, and cuDNN works in the layout of the input.
func TestGradientOfOneChannelIsCopiedToTheLayoutOfTheInput(t *testing.T) {
	run := func(loss func(y *tensor) *tensor) int64 {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		y := leaf(tape, true, 2, 16, 8, 8).Conv(leaf(tape, true, 1, 16, 1, 1), nil, trace.ConvArgs{Groups: 1})
		loss(y).Backward()
		return allocated(tape.Program())
	}
	plain := run(func(y *tensor) *tensor { return y.Add(y).Sum(false) })
	require.Equal(t, plain+2*8*8*4, run(func(y *tensor) *tensor {
		z := y.Permute(0, 2, 3, 1)
		return z.Add(z).Contiguous().Sum(false)
	}))
}

func TestSamePaddingKeepsTheSize(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawConv(rt)
		c.args = trace.ConvArgs{Same: true, Dilation: c.args.Dilation, Groups: c.args.Groups}
		c.w = append([]int64{c.x[1], c.x[1] / c.args.Groups}, c.w[2:]...)
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		f := tape.Frame()
		x, w := f.Bind(tape.New("x", program.Batch, trace.F32, c.x...)),
			f.Bind(tape.New("w", program.Weights, trace.F32, c.w...))
		require.Equal(t, c.x, f.Bind(x.Conv(w, nil, c.args)).Shape())
	})
}

// Which library runs a depthwise convolution, after use_cudnn_depthwise of ATen/native/Convolution.cpp.
func TestDepthwiseConvsGoWhereATenSendsThem(t *testing.T) {
	const native, cudnn = "_conv_depthwise2d", "cudnn_convolution"
	one := func(k, stride, dilation int64) trace.ConvArgs {
		return trace.ConvArgs{
			Stride: []int64{stride}, Dilation: []int64{dilation},
			Padding: []int64{dilation * (k - 1) / 2},
		}
	}
	for _, c := range []struct {
		why   string
		dtype trace.DType
		shape []int64
		k     []int64
		args  trace.ConvArgs
		want  string
	}{
		{"fp32 stays native", trace.F32, []int64{4, 64, 100}, []int64{7}, one(7, 1, 1), native},
		{"bf16 too", trace.BF16, []int64{4, 64, 100}, []int64{7}, one(7, 1, 1), native},
		{"fp16 in one dimension", trace.F16, []int64{4, 64, 100}, []int64{7}, one(7, 1, 1), cudnn},
		{"fewer than 32 channels", trace.F16, []int64{4, 31, 100}, []int64{7}, one(7, 1, 1), native},
		{"dilated", trace.F16, []int64{4, 64, 100}, []int64{7}, one(7, 1, 2), native},
		{"5x5", trace.F16, []int64{4, 64, 14, 14}, []int64{5, 5}, one(5, 1, 1), cudnn},
		{"7x7 is not tuned", trace.F16, []int64{4, 64, 14, 14}, []int64{7, 7}, one(7, 1, 1), native},
		{"narrow image", trace.F16, []int64{4, 64, 14, 6}, []int64{3, 3}, one(3, 1, 1), native},
		{"stride 2, few channels", trace.F16, []int64{4, 64, 14, 14}, []int64{3, 3}, one(3, 2, 1), native},
		{"stride 2, many channels", trace.F16, []int64{4, 512, 14, 14}, []int64{3, 3}, one(3, 2, 1), cudnn},
		{"stride 2, one sample", trace.F16, []int64{1, 64, 14, 14}, []int64{3, 3}, one(3, 2, 1), cudnn},
		{"stride 3", trace.F16, []int64{1, 64, 14, 14}, []int64{3, 3}, one(3, 3, 1), native},
	} {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		f := tape.Frame()
		channels := c.shape[1]
		x := f.Bind(tape.New("x", program.Batch, c.dtype, c.shape...))
		w := f.Bind(tape.New("w", program.Weights, c.dtype, append([]int64{channels, 1}, c.k...)...))
		c.args.Groups = channels
		from := len(tape.Program().Buffers)
		f.Bind(x.Conv(w, nil, c.args))
		p := tape.Program()
		require.Equal(t, c.want, p.Sites[p.Buffers[from].Site].Native, c.why)
	}
}

// BenchmarkConvolution records the forward and backward of one convolution among many alike.
func BenchmarkConvolution(b *testing.B) {
	tape := trace.New(hopper, rules, trace.Options{Warm: true})
	f := tape.Frame()
	x := f.Bind(tape.New("x", program.Batch, trace.F16, 16, 64, 56, 56).Leaf())
	w := f.Bind(tape.New("w", program.Weights, trace.F16, 64, 64, 3, 3).Leaf())
	args := trace.ConvArgs{Padding: []int64{1}, Groups: 1}
	b.ReportAllocs()
	for b.Loop() {
		y := x.Conv(w, nil, args)
		trace.Backward([]*tensor{y}, []*tensor{y.NewGradient()})
	}
}

package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// fresh returns a new fp32 leaf that requires grad.
func fresh(shape ...int64) (*trace.Frame, *tensor) {
	tape := trace.New(hopper, rules, trace.Options{Warm: true})
	f := tape.Frame()
	return f, f.Bind(tape.New("x", program.Batch, trace.F32, shape...).Leaf())
}

// Rounding up may add one window at the end, but none that begins beyond the input and the padding before it.
func TestCeilModeAddsNoWindowBeyondTheInput(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kernel := rapid.Int64Range(1, 5).Draw(rt, "kernel")
		stride := rapid.Int64Range(1, 5).Draw(rt, "stride")
		padding := rapid.Int64Range(0, kernel/2).Draw(rt, "padding")
		size := rapid.Int64Range(kernel, 40).Draw(rt, "size")
		args := trace.PoolArgs{Kernel: []int64{kernel}, Stride: []int64{stride}, Padding: []int64{padding}}
		f, x := fresh(2, 3, size)
		down := f.Bind(x.MaxPool(args)).Size(-1)
		args.Ceil = true
		up := f.Bind(x.MaxPool(args)).Size(-1)
		require.GreaterOrEqual(t, up, down)
		require.LessOrEqual(t, up, down+1)
		require.Less(t, (up-1)*stride, size+padding)
		if size+2*padding-kernel-(down-1)*stride == 0 {
			require.Equal(t, down, up, "the windows end where the input does")
		}
	})
}

// These operators change the size; their gradients change it back.
func TestResizingGradientsHaveTheInputShape(t *testing.T) {
	three := trace.PoolArgs{Kernel: []int64{3}, Stride: []int64{2}, Padding: []int64{1}}
	resize := map[string]func(*tensor) *tensor{
		"max_pool":      func(x *tensor) *tensor { return x.MaxPool(three) },
		"avg_pool":      func(x *tensor) *tensor { return x.AvgPool(three) },
		"adaptive_avg":  func(x *tensor) *tensor { return x.AdaptiveAvgPool(3, 2) },
		"adaptive_max":  func(x *tensor) *tensor { return x.AdaptiveMaxPool(3, 2) },
		"nearest":       func(x *tensor) *tensor { return ops.Upsample("upsample_nearest2d", x, 20, 21) },
		"bilinear":      func(x *tensor) *tensor { return ops.Upsample("upsample_bilinear2d", x, 20, 21) },
		"bicubic":       func(x *tensor) *tensor { return ops.Upsample("upsample_bicubic2d", x, 5, 7) },
		"im2col":        func(x *tensor) *tensor { return ops.Im2Col(x, three) },
		"shuffle":       func(x *tensor) *tensor { return ops.PixelShuffle(x, 2) },
		"unshuffle":     func(x *tensor) *tensor { return ops.PixelUnshuffle(x, 2) },
		"pad":           func(x *tensor) *tensor { return x.Pad(1, -2, 3, 0) },
		"pad_reflect":   func(x *tensor) *tensor { return x.PadReflect(1, 2, 3, 0) },
		"pad_replicate": func(x *tensor) *tensor { return x.PadReplicate(1, 2, 3, 0) },
		"pad_circular":  func(x *tensor) *tensor { return x.PadCircular(1, 2, 3, 0) },
	}
	rapid.Check(t, func(rt *rapid.T) {
		shape := []int64{
			2, 4, 2 * rapid.Int64Range(2, 8).Draw(rt, "height"),
			2 * rapid.Int64Range(2, 8).Draw(rt, "width"),
		}
		f, x := fresh(shape...)
		op := resize[rapid.SampledFrom(names(resize)).Draw(rt, "op")]
		in := x
		if rapid.Bool().Draw(rt, "channels_last") {
			in = f.Bind(x.ContiguousChannelsLast())
		}
		y := f.Bind(op(in))
		trace.Backward([]*tensor{y}, []*tensor{y.NewGradient()})
		require.Equal(t, shape, x.Grad().Shape())
		require.Equal(t, x.Strides(), x.Grad().Strides(), "a leaf's gradient is laid out as the leaf")
	})
}

// Dividing dimensions is a view of any layout, so that shuffled pixels are copied once.
func TestShuffledPixelsAreCopiedOnce(t *testing.T) {
	f, x := fresh(2, 8, 6, 6)
	part := f.Bind(x.Slice(1, 0, 4))
	for _, shuffle := range []func() *tensor{
		func() *tensor { return ops.PixelUnshuffle(part, 2) },
		func() *tensor { return ops.PixelShuffle(part, 2) },
	} {
		before := allocated(f.Tape().Program())
		y := f.Bind(shuffle())
		require.Equal(t, y.Bytes(), allocated(f.Tape().Program())-before)
	}
}

// One column of the spectrogram for each hop, and one more.
func TestSpectrogramHasAFramePerHop(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := 2 * rapid.Int64Range(2, 64).Draw(rt, "half of n")
		hop := rapid.Int64Range(1, n).Draw(rt, "hop")
		samples := rapid.Int64Range(n, 1000).Draw(rt, "samples")
		f, x := fresh(2, samples)
		w := f.Bind(ops.HannWindow(f.Tape(), rapid.Int64Range(1, n).Draw(rt, "window")))
		y := f.Bind(ops.STFT(x, n, hop, w).Abs())
		require.Equal(t, []int64{2, n/2 + 1, 1 + samples/hop}, y.Shape())
		trace.Backward([]*tensor{y}, []*tensor{y.NewGradient()})
		require.Equal(t, []int64{2, samples}, x.Grad().Shape())
	})
}

package kernels_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/profiler/program"
)

// convolutions are the sizes of a convolution in half precision and in each direction the work that a program has for
// it: the sizes of the product, what is read and what is written.
type convolutions struct {
	window                 program.Window
	channels, filters      int64 // of a group
	groups                 int64
	outHeight, outWidth    int64
	input, weight, outputs int64 // bytes
}

func convolutionOf(w program.Window, channels, filters, groups int64) convolutions {
	k := kernels.Conv{
		Height: w.Height, Width: w.Width, TapsY: w.TapsY, TapsX: w.TapsX, StrideY: w.StrideY, StrideX: w.StrideX,
		PadY: w.PadY, PadX: w.PadX, DilationY: w.DilationY, DilationX: w.DilationX,
	}
	c := convolutions{
		window: w, channels: channels, filters: filters, groups: groups, outHeight: k.OutHeight(),
		outWidth: k.OutWidth(),
	}
	c.input = 2 * w.Images * w.Height * w.Width * channels * groups
	c.weight = 2 * filters * groups * w.TapsY * w.TapsX * channels
	c.outputs = 2 * c.positions() * filters * groups
	return c
}

func (c *convolutions) positions() int64 { return c.window.Images * c.outHeight * c.outWidth }

// work returns the work of a direction: 0 is forward, 1 the gradient of the input, 2 the gradient of the weight.
func (c *convolutions) work(direction int) (w kernels.Work, reads, writes []int64) {
	filters, positions, taps := c.filters, c.positions(), c.window.TapsY*c.window.TapsX*c.channels
	w = kernels.Work{
		Kind: program.Convolution, Precision: fp16, FLOPs: 2 * filters * positions * taps * c.groups,
		Batch: c.groups, Window: c.window,
	}
	switch direction {
	case 0:
		w.M, w.N, w.K = filters, positions, taps
		return w, []int64{c.input, c.weight}, []int64{c.outputs}
	case 1:
		w.M, w.N, w.K = taps, positions, filters
		return w, []int64{c.outputs, c.weight}, []int64{c.input}
	}
	w.M, w.N, w.K = filters, taps, positions
	return w, []int64{c.outputs, c.input}, []int64{c.weight}
}

func TestConvolutionsRunOverTheirOwnImages(t *testing.T) {
	same := program.Window{
		Images: 2, Height: 9, Width: 7, TapsY: 3, TapsX: 3, StrideY: 1, StrideX: 1, PadY: 1, PadX: 1,
		DilationY: 1, DilationX: 1,
	}
	halved, wide, apart, steps := same, same, same, same
	halved.StrideY, halved.StrideX = 2, 2
	wide.TapsY, wide.PadY, wide.TapsX, wide.PadX = 1, 0, 7, 3
	apart.DilationY, apart.DilationX, apart.PadY, apart.PadX = 2, 2, 2, 2
	steps.TapsY, steps.TapsX, steps.PadY, steps.PadX, steps.StrideY, steps.StrideX = 1, 1, 0, 0, 2, 2
	for name, tt := range map[string]struct {
		window program.Window
		own    [3]bool // by direction
	}{
		"of the same size": {same, [3]bool{true, true, true}},
		"halved":           {halved, [3]bool{true, false, true}},
		"in one dimension": {wide, [3]bool{true, true, true}},
		"dilated":          {apart, [3]bool{true, true, true}},
		"over pixels":      {steps, [3]bool{false, false, false}},
	} {
		c := convolutionOf(tt.window, 32, 64, 2)
		for direction, own := range tt.own {
			w, reads, writes := c.work(direction)
			addr := uint64(1 << 20)
			for _, n := range reads {
				w.Reads, addr = append(w.Reads, kernels.Range{Addr: addr, Bytes: n}), addr+1<<20
			}
			w.Writes = []kernels.Range{{Addr: addr, Bytes: writes[0]}}
			want, have := c.launch(&w, direction), w.Append(nil, 80)[0]
			require.Equal(t, own, want.Name == have.Name && slices.Equal(want.Args, have.Args), "%s, direction %d",
				name, direction)
		}
	}
}

// launch returns the kernel of the very convolution.
func (c *convolutions) launch(w *kernels.Work, direction int) kernels.Launch {
	k := kernels.Conv{
		Type: kernels.F16, Images: c.window.Images, Height: c.window.Height, Width: c.window.Width,
		Channels: c.channels * c.groups, OutChannels: c.filters * c.groups, Groups: c.groups,
		TapsY: c.window.TapsY, TapsX: c.window.TapsX, StrideY: c.window.StrideY, StrideX: c.window.StrideX,
		PadY: c.window.PadY, PadX: c.window.PadX, DilationY: c.window.DilationY, DilationX: c.window.DilationX,
		Scale: 1 / math.Sqrt(float64(c.window.TapsY*c.window.TapsX*c.channels)),
	}
	switch direction {
	case 0:
		k.Input, k.Weight, k.Output = w.Reads[0].Addr, w.Reads[1].Addr, w.Writes[0].Addr
		return k.Forward(80)
	case 1:
		k.Output, k.Weight, k.Input = w.Reads[0].Addr, w.Reads[1].Addr, w.Writes[0].Addr
		return k.InputGradient(80)
	}
	k.Output, k.Input, k.Weight = w.Reads[0].Addr, w.Reads[1].Addr, w.Writes[0].Addr
	return k.WeightGradient(80)
}

// Whatever the windows, no byte is left out and none visited outside.
func TestAnyConvolutionVisitsEveryByte(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		few := rapid.Int64Range(1, 3)
		w := program.Window{
			Images: few.Draw(t, "images"), Height: rapid.Int64Range(1, 12).Draw(t, "height"),
			Width: rapid.Int64Range(1, 12).Draw(t, "width"),
			TapsY: few.Draw(t, "taps y"), TapsX: few.Draw(t, "taps x"), StrideY: few.Draw(t, "stride y"),
			StrideX: few.Draw(t, "stride x"),
			PadY:    rapid.Int64Range(0, 3).Draw(t, "pad y"), PadX: rapid.Int64Range(0, 3).Draw(t, "pad x"),
			DilationY: few.Draw(t, "dilation y"), DilationX: few.Draw(t, "dilation x"),
		}
		channels := rapid.SampledFrom([]int64{3, 8, 16, 24})
		of := convolutionOf(w, channels.Draw(t, "channels"), channels.Draw(t, "filters"), few.Draw(t, "groups"))
		work, reads, writes := of.work(rapid.IntRange(0, 2).Draw(t, "direction"))
		work = c.workOn(work, reads, writes)
		c.runAll(work.Append(nil, c.arch), sum(reads), sum(writes))
	})
}

// The kernel counts bytes from the input in 32 bits: what has more is shared out by images, which
// follow each other without a gap.
func TestLargeInputsOfConvolutionsAreSharedOut(t *testing.T) {
	const images, side, channels, size = 40, 4096, 64, 2 // 80 GiB
	pixels := int64(images * side * side)
	w := kernels.Work{
		Kind: program.Convolution, Precision: program.FP16, FLOPs: 2 * pixels * channels * channels * 9,
		M: channels, N: pixels, K: channels * 9, Batch: 1,
		Window: program.Window{
			Images: images, Height: side, Width: side, TapsY: 3, TapsX: 3, StrideY: 1, StrideX: 1,
			PadY: 1, PadX: 1, DilationY: 1, DilationX: 1,
		},
		Reads: []kernels.Range{
			{Addr: 1 << 40, Bytes: pixels * channels * size},
			{Addr: 1 << 20, Bytes: channels * channels * 9 * size},
		},
		Writes: []kernels.Range{{Addr: 1 << 41, Bytes: pixels * channels * size}},
	}
	next, flops := w.Reads[0].Addr, int64(0)
	launches := w.Append(nil, 86)
	for _, l := range launches {
		require.Equal(t, "conv_forward_f16", l.Name)
		bytes := l.Args[3] * l.Args[4] * l.Args[5] * l.Args[6] * size
		require.LessOrEqual(t, bytes, uint64(16<<30))
		require.Equal(t, next, l.Args[0])
		require.Equal(t, next-w.Reads[0].Addr, l.Args[2]-w.Writes[0].Addr, "the output of the same images")
		next += bytes
		flops += l.FLOPs
	}
	require.Equal(t, w.Reads[0].Addr+uint64(w.Reads[0].Bytes), next)
	require.Equal(t, w.FLOPs, flops)
	require.Len(t, launches, 5)
}

package cudnn_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/tools/cudnn/vectors"
)

// conv returns a 2-D convolution of square kernels that keeps the size.
func conv(n, ci, co, h, w, k, groups int64, dtype cudnn.DType) cudnn.Config {
	return cudnn.Config{
		Dim: 2, N: n, Ci: ci, Co: co, In: [3]int64{h, w}, K: [3]int64{k, k},
		Stride: [3]int64{1, 1}, Pad: [3]int64{k / 2, k / 2}, Dilation: [3]int64{1, 1},
		Groups: groups, DType: dtype,
	}
}

// TestWorkedExamples shows the arithmetic of recorded cases.
func TestWorkedExamples(t *testing.T) {
	for _, c := range []struct {
		name   string
		config cudnn.Config
		dir    cudnn.Direction
		want   []int64
	}{
		// x and y: 8*64*28*28*2 = 802816; w: 64*64*9*2 = 73728; 16 to align.
		{
			"half copies x, w and y", conv(8, 64, 64, 28, 28, 3, 1, cudnn.F16), cudnn.Forward,
			[]int64{2*802816 + 73728 + 16},
		},
		// 4 channels per group stay 4 in the grouped kernel.
		{
			"groups of four are not padded", conv(16, 64, 64, 18, 301, 3, 16, cudnn.F16), cudnn.Forward,
			[]int64{2*11096064 + 4608 + 16},
		},
		// The two next differ in height only: the heuristics leave matrix
		// products for copies of x and y (16*64*36*301*2 each) in between.
		{"a 1x1 forward can be a matrix product", conv(16, 64, 64, 72, 301, 1, 1, cudnn.F16), cudnn.Forward, nil},
		{
			"a 1x1 filter is the same in both layouts", conv(16, 64, 64, 36, 301, 1, 1, cudnn.F16), cudnn.Forward,
			[]int64{2*22192128 + 16},
		},
		// PyTorch's own convolution of bfloat16 before Ampere: one sample's windows.
		{
			"without cuDNN a sample's columns", conv(8, 64, 64, 28, 28, 3, 1, cudnn.BF16), cudnn.GradInput,
			[]int64{64 * 9 * 28 * 28 * 2},
		},
		// One product of each sample: 16*96*96 numbers of fp32.
		{
			"a 1x1 grad weight keeps the product of each sample", conv(16, 96, 96, 12, 301, 1, 1, cudnn.F32),
			cudnn.GradWeight,
			[]int64{16 * 96 * 96 * 4},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			gpu := vectors.GPUs["rtx-5060-ti"]
			if c.config.DType == cudnn.BF16 {
				gpu = vectors.GPUs["t4"]
			}
			require.Equal(t, c.want, rules.Workspaces(c.config, c.dir, gpu))
		})
	}
}

func drawConfig(t *rapid.T) cudnn.Config {
	size := func(name string, lo, hi int64) int64 { return rapid.Int64Range(lo, hi).Draw(t, name) }
	groups := size("groups", 1, 64)
	c := cudnn.Config{
		Dim: rapid.IntRange(1, 3).Draw(t, "dim"), Transposed: rapid.Bool().Draw(t, "transposed"),
		N: size("n", 1, 1024), Ci: groups * size("c", 1, 64), Co: groups * size("k", 1, 64), Groups: groups,
		DType:  cudnn.DType(size("dtype", 0, 2)),
		Layout: cudnn.Layout(size("layout", 0, 2)),
	}
	for i := range c.Dim {
		c.K[i], c.Stride[i], c.Dilation[i] = size("kernel", 1, 31), size("stride", 1, 4), size("dilation", 1, 3)
		c.Pad[i] = size("pad", 0, c.K[i]/2)
		c.In[i] = size("in", c.Dilation[i]*c.K[i], 400)
	}
	return c
}

func drawGPU(t *rapid.T) cudnn.GPU {
	return cudnn.GPU{
		Capability: rapid.SampledFrom([]int{70, 75, 80, 86, 87, 89, 90, 100, 120}).Draw(t, "capability"),
		Memory:     rapid.Int64Range(1<<30, 200<<30).Draw(t, "memory"),
	}
}

// PyTorch's own copies are not cuDNN's to avoid, so only a chosen engine, copy included, has to fit.
func TestChosenEnginesFitTheGPU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, b := drawConfig(t), drawGPU(t)
		for d := cudnn.Forward; d <= cudnn.GradWeight; d++ {
			p := rules.Explain(c, d, b)
			var sum int64
			for _, n := range p.Allocations {
				require.Positive(t, n)
				sum += n
			}
			if p.Engine != cudnn.Direct && p.Engine != cudnn.Im2col {
				require.LessOrEqual(t, sum, b.Memory)
			}
		}
	})
}

func TestTheSameCallHasTheSameAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, b := drawConfig(t), drawGPU(t)
		first := rules.Explain(c, cudnn.Forward, b)
		b.Name = "another name"
		require.Equal(t, first, rules.Explain(c, cudnn.Forward, b))
	})
}

// A transposed convolution's forward is the data gradient of the ordinary convolution from its output to its input, so
// both choose alike wherever the rules do not ask which of the two PyTorch called.
func TestTransposedForwardCopiesWhatTheDataGradientCopies(t *testing.T) {
	b := vectors.GPUs["a100-40"]
	down := cudnn.Config{
		Dim: 2, N: 16, Ci: 128, Co: 256, In: [3]int64{64, 64}, K: [3]int64{4, 4}, Stride: [3]int64{2, 2},
		Pad: [3]int64{1, 1}, Dilation: [3]int64{1, 1}, Groups: 1, DType: cudnn.F16,
	}
	up := down
	up.Transposed, up.Ci, up.Co, up.In = true, 256, 128, [3]int64{32, 32}
	for _, e := range cudnn.Engines() {
		require.Equal(t, cudnn.NewStudy(down, cudnn.GradInput, b).Bytes(cudnn.Choice{Engine: e}),
			cudnn.NewStudy(up, cudnn.Forward, b).Bytes(cudnn.Choice{Engine: e}), e)
	}
}

func BenchmarkWorkspaces(b *testing.B) {
	gpu := vectors.GPUs["rtx-5060-ti"]
	c := conv(64, 64, 64, 18, 301, 3, 16, cudnn.F16)
	b.ReportAllocs()
	for b.Loop() {
		rules.Workspaces(c, cudnn.GradWeight, gpu)
	}
}

package main

import (
	"math"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/vectors"
)

// small is the workspace below which a case counts as direct: tables and
// semaphores that no training step notices.
const small = 16 << 10

// engineOf tells the engine class from the kernels that ran.
func engineOf(kernels []string, bytes int64, c cudnn.Config) (cudnn.Engine, bool) {
	if bytes <= small {
		return cudnn.Direct, true
	}
	all := strings.Join(kernels, " ")
	has := func(s string) bool { return strings.Contains(all, s) }
	switch {
	case has("regular_fft") || has("vector_fft"):
		return cudnn.WholeFFT, true
	case has("fft1d_r2c_32"):
		return cudnn.FFT1D32, true
	case has("fft1d_r2c_256"):
		return cudnn.FFT1D256, true
	case has("fft2d_r2c_16x16"):
		return cudnn.FFT2D16, true
	case has("fft2d_r2c_32x32"):
		return cudnn.FFT2D32, true
	case has("fft2d_r2c_64x64"):
		return cudnn.FFT2D64, true
	case has("winogradForward") || has("winogradWgrad"):
		if has("9x9") {
			return cudnn.Winograd9, true
		}
		return cudnn.Winograd4, true
	case has("winograd"):
		return cudnn.WinogradFused, true
	case has("xmma_depthwise"):
		return cudnn.DepthwiseTiles, true
	case has("reduce_wgrad_nchw_helper"):
		return cudnn.BatchedGemm, true
	case has("im2col") || has("col2im"):
		return cudnn.Im2col, true
	case has("Folded") || has("folded"):
		return cudnn.Folded, true
	case has("xmma_fprop") && has("nhwckrsc_nchw"):
		return cudnn.ContiguousOut, true
	case has("indexed_wo_smem") && !has("sm90_xmma"):
		return cudnn.Unpadded, true
	case has("xmma") && has("genericTranspose"):
		return cudnn.GroupPairs, true
	case has("sm90_xmma"):
		return cudnn.Hopper, true
	case has("ReduceSplitK"), has("cutlass_tensorop") && has("nhwc_"):
		return copying(kernels, c, true), true
	case has("_xmma_") && has("implicit_gemm"):
		return copying(kernels, c, false), true
	}
	return cudnn.Direct, false
}

// copying tells engines with a grouped kernel from those that run one group
// after the other. CUTLASS engines always do; the others show it by the same
// product kernel running again.
func copying(kernels []string, c cudnn.Config, cutlass bool) cudnn.Engine {
	if c.Groups == 1 {
		return cudnn.Copies
	}
	products := 0
	for _, k := range kernels {
		if strings.Contains(k, "implicit_gemm") {
			products++
		}
	}
	if cutlass || products > 1 {
		return cudnn.Looped
	}
	return cudnn.Grouped
}

// weight is how much a case counts: by the square root of its tensors, so that
// the large ones decide without drowning the rest, and more for convolutions of
// real models and for contiguous tensors, PyTorch's default.
func weight(v vectors.Vector, s cudnn.Study) float64 {
	w := math.Sqrt(float64(s.TensorBytes()))
	if v.Reference {
		w *= 3
	}
	if v.Config.Layout != cudnn.Contiguous {
		w /= 2
	}
	return w
}

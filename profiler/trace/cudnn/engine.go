package cudnn

import "github.com/vprof/vprof/internal/ceil"

// Engine is a class of cuDNN engines that use workspace in the same way. Names describe what the class does; comments
// name its kernels.
type Engine uint8

// The engine classes.
const (
	// Direct engines read and write the tensors in place: PyTorch's native depthwise kernels, matrix products of 1x1
	// convolutions, direct and precomputed-index convolutions, and tensor-core kernels whose tensors already are
	// channels-last. They need no workspace, or a few KiB.
	Direct Engine = iota
	// Copies engines (xmma_*_implicit_gemm, cutlass_tensorop_*) work on
	// channels-last copies of x, w and y, padded to full vectors.
	Copies
	// Serial is Copies for a weight gradient in CUTLASS whose splits of the reduction add to the result in turn. It has
	// a counter per tile instead of partial sums.
	Serial
	// Indexed (xmma_dgrad_indexed) is Copies or Grouped with tables of offsets from kernel_helper_stage kernels.
	Indexed
	// Widened engines compute half precision in TF32, on fp32 copies of all tensors.
	Widened
	// WidenedUnpadded (xmma_*_indexed_wo_smem) is Widened without padding.
	WidenedUnpadded
	// Looped is Copies for a grouped convolution, one group after another.
	Looped
	// LoopedSerial is Serial for a grouped convolution, one group after another.
	LoopedSerial
	// Grouped is Copies with a kernel for groups (xmma only).
	Grouped
	// ContiguousOut (xmma_*_nhwckrsc_nchw, fp32) reads channels-last copies and writes the contiguous result in place.
	ContiguousOut
	// Unpadded (xmma_*_indexed_wo_smem) copies without padding.
	Unpadded
	// GroupPairs (h200, fp32) transposes x and y of one group after another and reads w in place.
	GroupPairs
	// Unrounded (sm90_xmma_*) is Copies or Grouped whose kernels round to TF32 themselves.
	Unrounded
	// Hopper (sm90_xmma_*) is Copies or Grouped with kernels of capability 9.0,
	// which round to TF32 themselves and keep a header in the workspace.
	Hopper
	// Folded (dgrad) folds the stride into channels and runs at stride 1.
	Folded
	// BatchedGemm (weight gradient of 1x1 kernels) computes a product for each sample and sums the products
	// (reduce_wgrad_nchw_helper).
	BatchedGemm
	// Winograd4 is the unfused Winograd engine with 4x4 output tiles.
	Winograd4
	// Winograd9 is the unfused Winograd engine for 5x5 kernels, with 9x9 output tiles.
	Winograd9
	// WinogradFused is the fused Winograd engine, which only transforms the filter beforehand.
	WinogradFused
	// FFT1D32 and FFT1D256 are tiled 1-D FFT engines.
	FFT1D32
	FFT1D256
	// FFT2D16, FFT2D32 and FFT2D64 are tiled 2-D FFT engines.
	FFT2D16
	FFT2D32
	FFT2D64
	// WholeFFT is the oldest FFT engine, which transforms whole images.
	WholeFFT
	// TurnsFFT is the FFT engine for weight gradients over whole images. Its spectra use two memory regions in turn.
	TurnsFFT
	// DepthwiseTiles (xmma_depthwise_convolution_*) is the depthwise tensor-core engine for half precision.
	DepthwiseTiles
	// Offsets (5x_cudnn_*) needs tables of offsets.
	Offsets
	// OffsetCopies (5x_cudnn_*_nhwc) is Copies with tables of offsets.
	OffsetCopies
	// Planar engines work on contiguous copies of channels-last tensors.
	Planar
	// Indices (precomputed_convolve_*) needs a table of the image offset for each element of the filter.
	Indices
	// Counters (cublas-like wgrad kernels) needs two counters for each tile.
	Counters
	// SampleSums (wgrad2d_c1_k1_nhwc, depthwise) sums each sample separately, and then over the samples.
	SampleSums
	// Im2col is PyTorch's own fallback if cuDNN has no engine (bf16 before Ampere). It unfolds one sample at a time.
	Im2col
	// Kept is not an engine. Correcting rules vote for it if the earlier rules are right.
	Kept

	numEngines = iota
)

var engineNames = [numEngines]string{
	"direct", "copies", "serial", "indexed", "widened", "widened-unpadded",
	"looped", "looped-serial", "grouped", "contiguous-out", "unpadded",
	"group-pairs", "unrounded", "hopper", "folded", "batched-gemm", "winograd4", "winograd9",
	"winograd-fused", "fft1d-32", "fft1d-256", "fft2d-16", "fft2d-32",
	"fft2d-64", "whole-fft", "turns-fft", "depthwise-tiles", "offsets", "offset-copies", "planar", "indices",
	"counters", "sample-sums", "im2col", "kept",
}

func (e Engine) String() string {
	if int(e) < len(engineNames) {
		return engineNames[e]
	}
	return "unknown"
}

// supportsEngine reports whether engines of class e exist for the problem, by the restrictions of their algorithms.
func (p *problem) supportsEngine(e Engine) bool {
	switch e {
	case Looped, LoopedSerial, Grouped, GroupPairs:
		return p.Groups > 1 && (e != GroupPairs || p.kind != wgrad)
	case Copies:
		return p.Groups == 1
	case Serial:
		return p.Groups == 1 && p.kind == wgrad
	case Indexed:
		return p.kind == dgrad
	case OffsetCopies:
		return p.Groups == 1 && p.kind != wgrad
	case Widened, WidenedUnpadded:
		return p.Groups == 1 && p.DType != F32
	case Hopper, Unrounded:
		return generation(p.gpu.Capability) == 90
	case ContiguousOut:
		return p.kind == fprop && p.DType == F32 && p.Layout == Contiguous
	case Folded:
		return p.kind == dgrad && p.strided()
	case BatchedGemm:
		return p.kind == wgrad && p.taps == 1 && !p.strided() && p.Layout == Contiguous
	case Winograd4, WinogradFused:
		return p.Dim == 2 && p.K[0] == 3 && p.K[1] == 3 && p.hasUnitSteps()
	case Winograd9:
		return p.Dim == 2 && p.K[0] == 5 && p.K[1] == 5 && p.hasUnitSteps()
	case FFT1D32, FFT1D256:
		return p.hasUnitSteps() && p.flat() && p.K[p.Dim-1] <= fftSizes[e]
	case WholeFFT:
		return p.hasUnitSteps()
	case TurnsFFT:
		return p.kind == wgrad && p.DType == F32 && p.hasUnitSteps()
	case FFT2D16, FFT2D32, FFT2D64:
		return p.hasUnitSteps() && p.Dim < 3
	case DepthwiseTiles:
		return p.Groups > 1 && p.cg == 1
	case Planar:
		return p.Layout != Contiguous
	case Indices:
		return p.kind == fprop
	case Counters:
		return p.kind == wgrad
	case SampleSums:
		return p.sumsBySample()
	case Im2col, Kept:
		return false // never cuDNN's own choice
	}
	return true
}

// strided reports whether the stride is above one on some axis.
func (p *problem) strided() bool { return max(p.Stride[0], p.Stride[1], p.Stride[2]) > 1 }

// hasUnitSteps reports whether all strides and dilations are one.
func (p *problem) hasUnitSteps() bool {
	return !p.strided() && max(p.Dilation[0], p.Dilation[1], p.Dilation[2]) == 1
}

// splits reports whether engines of the class may split the reduction.
func (e Engine) splits() bool {
	switch e {
	case Copies, Serial, Looped, LoopedSerial, Grouped, ContiguousOut, Unpadded, Widened, WidenedUnpadded, Hopper,
		DepthwiseTiles:
		return true
	}
	return false
}

func (p *problem) workspaceBytes(choice Choice) int64 {
	switch e := choice.Engine; e {
	case Copies, Grouped, ContiguousOut, Unpadded, Widened, WidenedUnpadded, Unrounded:
		return alignedBytes(p.layoutCopies(copyHabits[e])) + p.partials(choice)
	case Serial:
		return alignedBytes(p.layoutCopies(copyHabits[e])) + p.partials(choice) + splitHeader
	case Hopper:
		return alignedBytes(p.layoutCopies(copyHabits[e])) + p.partials(choice) + hopperHeader
	case Indexed:
		return alignedBytes(p.layoutCopies(copyHabits[e])) + p.offsetTables()
	case Looped, LoopedSerial:
		q := p.oneGroup()
		n := q.layoutCopies(copyHabits[e]) + q.partials(choice) + copyAlign
		if e == LoopedSerial {
			n += splitHeader
		}
		return n * min(p.Groups, concurrentGroups)
	case GroupPairs:
		q := p.oneGroup()
		n := q.N*(q.c*q.xs+q.k*q.ys)*q.es + copyAlign
		return n * min(p.Groups, concurrentGroups)
	case Planar:
		return p.planarCopies()
	case Indices:
		return p.kernelIndices()
	case Counters:
		q := p.oneGroup()
		return ceil.Div(q.k, counterTile) * ceil.Div(q.c*q.taps, counterTile) * 8 * min(p.Groups, concurrentGroups)
	case SampleSums:
		return p.N * sampleSums * 4 * p.taps * ceil.Multiple(p.k, sampleChannels)
	case Folded:
		return p.foldedBytes()
	case BatchedGemm:
		return p.N * p.k * p.cg * 4
	case Winograd4, Winograd9, WinogradFused:
		return p.winograd(e)
	case FFT1D32, FFT1D256, FFT2D16, FFT2D32, FFT2D64, WholeFFT, TurnsFFT:
		return p.fft(e)
	case DepthwiseTiles:
		return p.depthwiseTiles(choice)
	case Offsets:
		return p.pointOffsets() * min(p.Groups, concurrentGroups)
	case OffsetCopies:
		return alignedBytes(p.layoutCopies(copyHabits[e])) + p.pointOffsets()
	}
	return 0
}

// SampleSums engines need sampleSums fp32 sums for each sample, filter tap and channel, with channels rounded up to a
// multiple of sampleChannels.
const (
	sampleSums     = 8
	sampleChannels = 32
)

// counterTile is the side of the tiles that Counters engines count.
const counterTile = 32

// kernelIndices returns the bytes of a table with 4 bytes for each filter element of one result.
func (p *problem) kernelIndices() int64 {
	n := 4 * p.cg * p.taps
	if p.Groups > 1 {
		n = ceil.Multiple(n, copyAlign) * min(p.Groups, concurrentGroups)
	}
	return n
}

// planarCopies returns the bytes of the contiguous copies of channels-last tensors.
func (p *problem) planarCopies() int64 {
	if p.Layout == Contiguous {
		return 0
	}
	var n int64
	if p.xs > 1 && (p.cg > 1 || p.Groups > 1 && p.kind != dgrad) {
		n += ceil.Multiple(p.N*p.cg*p.xs*p.es, copyAlign)
	}
	if p.kind != wgrad && p.taps > 1 && (p.cg > 1 || p.Groups > 1) {
		n += ceil.Multiple(p.kg*p.cg*p.taps*p.es, copyAlign)
	}
	if p.ys > 1 && (p.kg > 1 || p.Groups > 1 && p.kind != fprop) {
		n += ceil.Multiple(p.N*p.kg*p.ys*p.es, copyAlign)
	}
	return alignedBytes(n) * min(p.Groups, concurrentGroups)
}

// hopperHeader is the number of bytes besides copies in the workspace of sm90 forward and data gradient kernels: 128,
// with any alignment to 4.
const hopperHeader = 131

// offsetTables returns the bytes of the tables of an indexed data gradient: 4 bytes for each point of x and for each
// coordinate of each axis, 16 for each point of the kernel plus one, each table a multiple of 128 bytes.
func (p *problem) offsetTables() int64 {
	coordinates := int64(0)
	for i := range p.Dim {
		coordinates += p.In[i]
	}
	return ceil.Multiple(4*(p.xs+coordinates)+16*(p.taps+2), 128)
}

// pointOffsets returns the bytes of the tables of the 5x_cudnn kernels: 6 bytes for each point of the result and an end
// mark, in multiples of 128 bytes. A data gradient needs 17 further blocks of 128 bytes for its filter.
func (p *problem) pointOffsets() int64 {
	if p.kind == dgrad {
		return ceil.Multiple(6*p.xs+1, 128) + 17*128
	}
	return ceil.Multiple(6*p.ys+1, 128)
}

// alignedBytes adds the bytes to align a workspace, unless it is empty.
func alignedBytes(n int64) int64 {
	if n == 0 {
		return 0
	}
	return n + copyAlign
}

// foldedBytes returns the workspace of a data gradient that folds each stride into channels. y keeps its points. x has
// as many points as y (one more if kernels overlap) and stride times the channels. The kernel shrinks accordingly.
func (p *problem) foldedBytes() int64 {
	xPoints, taps, fold := int64(1), int64(1), int64(1)
	for i := range p.Dim {
		s := p.Stride[i]
		fold *= s
		taps *= ceil.Div(p.K[i], s)
		xPoints *= ceil.Div(p.In[i], s)
	}
	v := vectorBytes / p.es
	c, k := ceil.Multiple(p.cg*fold, v)*p.Groups, ceil.Multiple(p.kg, v)*p.Groups
	return p.es*(p.N*c*xPoints+p.N*k*p.ys+c*k/p.Groups*taps) + copyAlign
}

// depthwiseHeader is the number of bytes that the tensor-core depthwise engine adds.
const depthwiseHeader = 142

// depthwiseTiles returns the bytes of the copies and of the reordered filter. A choice with splits adds partial sums
// with counters: one tile for each split of each block of TileM channels.
func (p *problem) depthwiseTiles(c Choice) int64 {
	n := alignedBytes(p.layoutCopies(copyTraits{pad: padNone, unrounded: true})) +
		ceil.Multiple(p.k*p.cg*p.taps*p.es, 128) + depthwiseHeader
	if c.Splits > 0 {
		n += ceil.Div(p.k, c.TileM) * (c.Splits*(c.tileBytes()+4) + 4)
	}
	return n
}

// An Answer returns the workspace bytes of cuDNN's own plan for a convolution; asked is false if there is no recorded
// answer. Sizes are as in [Canonical].
type Answer func(Config, Direction) (bytes int64, asked bool)

// AnsweredWorkspaces returns the transient allocations of one direction of a convolution like [Rules.Workspaces], but
// with cuDNN's own answer if there is one; it reports whether there is. In both cases, the rules model PyTorch's
// allocations around the call, and the kernels that cuDNN proposes only on a machine with a GPU.
func (r *Rules) AnsweredWorkspaces(c Config, d Direction, gpu GPU, answer Answer) (allocations []int64, asked bool) {
	n, asked := answer(Canonical(c, d))
	if !asked || !gpu.Runs(c) {
		return r.Workspaces(c, d, gpu), false
	}
	p := newProblem(c, d, &gpu)
	copied := p.weightCopy(d)
	other, runs := r.OnDevice(c, d, gpu, n)
	switch {
	case runs:
		return nonEmptySizes(copied, other), false
	case n+copied > gpu.Memory:
		return r.Workspaces(c, d, gpu), false
	}
	return nonEmptySizes(copied, n), true
}

// Runs reports whether PyTorch runs a convolution of this type in cuDNN on the GPU.
func (gpu GPU) Runs(c Config) bool { return c.DType != BF16 || gpu.Capability >= bf16Capability }

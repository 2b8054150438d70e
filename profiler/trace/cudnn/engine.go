package cudnn

import "github.com/vprof/vprof/internal/ceil"

// Engine is a class of cuDNN engines with one way to use workspace. The names
// say what the class does; the kernels behind each are named in its comment.
type Engine uint8

// The engine classes.
const (
	// Direct engines read and write the tensors where they are: PyTorch's native depthwise kernels, matrix products of
	// 1x1 convolutions, direct and precomputed-index convolutions, channels-last tensor-core kernels whose tensors are
	// as they want them. No workspace, or a few KiB.
	Direct Engine = iota
	// Copies engines (xmma_*_implicit_gemm, cutlass_tensorop_*) work on
	// channels-last copies of x, w and y, padded to full vectors.
	Copies
	// Serial is Copies of a CUTLASS wgrad, whose splits of the reduction take
	// turns: a counter per tile instead of partial sums.
	Serial
	// Indexed (xmma_dgrad_indexed) is Copies or Grouped with tables of offsets,
	// which kernel_helper_stage kernels compute first.
	Indexed
	// Widened engines compute half precision in TF32: fp32 copies of all.
	Widened
	// WidenedUnpadded (xmma_*_indexed_wo_smem) is Widened without padding.
	WidenedUnpadded
	// Looped is Copies for a grouped convolution, one group after the other.
	Looped
	// LoopedSerial is Serial for one group after the other.
	LoopedSerial
	// Grouped is Copies with a kernel for groups (xmma only).
	Grouped
	// ContiguousOut (xmma_*_nhwckrsc_nchw, fp32) reads channels-last copies and writes the contiguous result itself.
	ContiguousOut
	// Unpadded (xmma_*_indexed_wo_smem) copies without padding.
	Unpadded
	// GroupPairs (h200, fp32) transposes x and y of one group after the other and leaves w alone.
	GroupPairs
	// Unrounded (sm90_xmma_*) is Copies or Grouped whose kernels round to TF32 themselves.
	Unrounded
	// Hopper (sm90_xmma_*) is Copies or Grouped with kernels of capability 9.0,
	// which round to TF32 themselves and keep a header in the workspace.
	Hopper
	// Folded (dgrad) folds the stride into channels and runs at stride 1.
	Folded
	// BatchedGemm (wgrad of pointwise kernels) multiplies each sample on its
	// own and sums the products (reduce_wgrad_nchw_helper).
	BatchedGemm
	// Winograd4 is the unfused Winograd engine with 4x4 output tiles.
	Winograd4
	// Winograd9 is the same for 5x5 kernels, with 9x9 output tiles.
	Winograd9
	// WinogradFused transforms only the filter beforehand.
	WinogradFused
	// FFT1D32 and FFT1D256 are tiled 1-D FFT engines.
	FFT1D32
	FFT1D256
	// FFT2D16, FFT2D32 and FFT2D64 are tiled 2-D FFT engines.
	FFT2D16
	FFT2D32
	FFT2D64
	// WholeFFT is the oldest FFT engine, over whole images.
	WholeFFT
	// TurnsFFT is the FFT engine of wgrad over whole images, whose spectra take turns in two regions.
	TurnsFFT
	// DepthwiseTiles (xmma_depthwise_convolution_*) is the tensor-core depthwise engine of half precision.
	DepthwiseTiles
	// Offsets (5x_cudnn_*) keeps tables of offsets.
	Offsets
	// OffsetCopies (5x_cudnn_*_nhwc) is Copies with tables of offsets.
	OffsetCopies
	// Planar engines work on contiguous copies of channels-last tensors.
	Planar
	// Indices (precomputed_convolve_*) keeps a table of where each number of the filter meets the image.
	Indices
	// Counters (cublas-like wgrad kernels) keeps two counters for each tile.
	Counters
	// SampleSums (wgrad2d_c1_k1_nhwc, depthwise) sums for each sample on its own, and then over samples.
	SampleSums
	// Im2col is PyTorch's own fallback where cuDNN has no engine (bf16 on
	// GPUs before Ampere): one sample's columns at a time.
	Im2col
	// Kept is no engine: corrections of rules choose it where the rules are right.
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

// can reports whether engines of class e exist for the problem, by the limits of their algorithms.
func (p *problem) can(e Engine) bool {
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

// strided reports whether some axis is strided.
func (p *problem) strided() bool { return max(p.Stride[0], p.Stride[1], p.Stride[2]) > 1 }

// hasUnitSteps reports whether nothing is strided or dilated.
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

// bytes returns the workspace of a choice.
func (p *problem) bytes(choice Choice) int64 {
	switch e := choice.Engine; e {
	case Copies, Grouped, ContiguousOut, Unpadded, Widened, WidenedUnpadded, Unrounded:
		return align(p.layoutCopies(copyHabits[e])) + p.partials(choice)
	case Serial:
		return align(p.layoutCopies(copyHabits[e])) + p.partials(choice) + splitHeader
	case Hopper:
		return align(p.layoutCopies(copyHabits[e])) + p.partials(choice) + hopperHeader
	case Indexed:
		return align(p.layoutCopies(copyHabits[e])) + p.offsetTables()
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
		return p.folded()
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
		return align(p.layoutCopies(copyHabits[e])) + p.pointOffsets()
	}
	return 0
}

// SampleSums engines keep sampleSums fp32 sums for each sample, filter tap and channel, whose number is rounded up to a
// multiple of sampleChannels.
const (
	sampleSums     = 8
	sampleChannels = 32
)

// counterTile is the side of the tiles that Counters engines count for.
const counterTile = 32

// kernelIndices returns a table of 4 bytes for each number of the filter that one result sees.
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
	return align(n) * min(p.Groups, concurrentGroups)
}

// hopperHeader is the bytes that the fprop and dgrad kernels of sm90 keep in the
// workspace besides copies: 128 at any alignment of 4.
const hopperHeader = 131

// offsetTables returns the tables of an indexed dgrad: 4 bytes for each point of x and for each coordinate of each
// axis, 16 for each point of the kernel and one more, in pieces of 128 bytes.
func (p *problem) offsetTables() int64 {
	coordinates := int64(0)
	for i := range p.Dim {
		coordinates += p.In[i]
	}
	return ceil.Multiple(4*(p.xs+coordinates)+16*(p.taps+2), 128)
}

// pointOffsets returns the bytes of the tables of the 5x_cudnn kernels: 6 for each point of the result and an end mark,
// in pieces of 128 bytes; a dgrad has 17 more such pieces for its filter.
func (p *problem) pointOffsets() int64 {
	if p.kind == dgrad {
		return ceil.Multiple(6*p.xs+1, 128) + 17*128
	}
	return ceil.Multiple(6*p.ys+1, 128)
}

// align adds the alignment of a workspace that is not empty.
func align(n int64) int64 {
	if n == 0 {
		return 0
	}
	return n + copyAlign
}

// folded returns the workspace of a strided dgrad that folds each stride into channels: y keeps its points, x has the
// points of y (and one more if the kernel overlaps) times stride channels, and the kernel shrinks likewise.
func (p *problem) folded() int64 {
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

// depthwiseTiles returns the bytes of the copies and of the filter in the kernel's order. A choice with splits adds
// partial sums with counters: a tile for each split of each block of TileM channels.
func (p *problem) depthwiseTiles(c Choice) int64 {
	n := align(p.layoutCopies(copyTraits{pad: padNone, unrounded: true})) +
		ceil.Multiple(p.k*p.cg*p.taps*p.es, 128) + depthwiseHeader
	if c.Splits > 0 {
		n += ceil.Div(p.k, c.TileM) * (c.Splits*(c.tileBytes()+4) + 4)
	}
	return n
}

// An Answer returns cuDNN's own answer about a convolution, the workspace bytes of its plan, and whether cuDNN was
// asked about it. Sizes follow [Canonical].
type Answer func(Config, Direction) (bytes int64, asked bool)

// AnsweredWorkspaces returns the transient allocations of one direction of a convolution as [Rules.Workspaces] does,
// but by cuDNN's own answer if there is one, and reports whether there is. In both cases, the rules model what PyTorch
// allocates around the call, and the kernels that cuDNN proposes only on a machine with a GPU.
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
		return list(copied, other), false
	case n+copied > gpu.Memory:
		return r.Workspaces(c, d, gpu), false
	}
	return list(copied, n), true
}

// Runs reports whether PyTorch gives a convolution of such a type to cuDNN on the GPU.
func (gpu GPU) Runs(c Config) bool { return c.DType != BF16 || gpu.Capability >= bf16Capability }

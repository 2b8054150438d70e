package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// small is the workspace below which an unexplained case counts as direct:
// tables and semaphores that no training step notices.
const small = 16 << 10

// family is what kernel names tell: any of the names is among those that ran,
// then the engine is one of these, the likelier first.
type family struct {
	any     []string
	all     []string
	engines []cudnn.Engine
}

// families are tried in order.
var families = []family{
	{any: []string{"regular_fft", "vector_fft"}, engines: []cudnn.Engine{cudnn.WholeFFT}},
	{any: []string{"fft1d_r2c_32"}, engines: []cudnn.Engine{cudnn.FFT1D32}},
	{any: []string{"fft1d_r2c_256"}, engines: []cudnn.Engine{cudnn.FFT1D256}},
	{any: []string{"fft2d_r2c_16x16"}, engines: []cudnn.Engine{cudnn.FFT2D16}},
	{any: []string{"fft2d_r2c_32x32"}, engines: []cudnn.Engine{cudnn.FFT2D32}},
	{any: []string{"fft2d_r2c_64x64"}, engines: []cudnn.Engine{cudnn.FFT2D64}},
	{any: []string{"winogradForward", "winogradWgrad"}, all: []string{"9x9"}, engines: []cudnn.Engine{cudnn.Winograd9}},
	{any: []string{"winogradForward", "winogradWgrad"}, engines: []cudnn.Engine{cudnn.Winograd4}},
	{any: []string{"inograd"}, engines: []cudnn.Engine{cudnn.WinogradFused}},
	{any: []string{"xmma_depthwise"}, engines: []cudnn.Engine{cudnn.DepthwiseTiles}},
	{any: []string{"reduce_wgrad_nchw_helper"}, engines: []cudnn.Engine{cudnn.BatchedGemm}},
	{any: []string{"im2col", "col2im"}, engines: []cudnn.Engine{cudnn.Im2col}},
	{any: []string{"Folded", "folded"}, engines: []cudnn.Engine{cudnn.Folded}},
	{any: []string{"_5x_cudnn"}, all: []string{"nchwToNhwc"}, engines: []cudnn.Engine{cudnn.OffsetCopies, cudnn.Copies}},
	{any: []string{"_5x_cudnn"}, engines: []cudnn.Engine{cudnn.Offsets}},
	{any: []string{"genericTranspose"}, all: []string{"xmma"}, engines: []cudnn.Engine{cudnn.GroupPairs}},
	{any: []string{"kernel_helper_stage"}, engines: []cudnn.Engine{cudnn.Indexed}},
	{any: []string{"xmma_fprop"}, all: []string{"nhwckrsc_nchw"}, engines: []cudnn.Engine{cudnn.ContiguousOut, cudnn.Copies}},
	{any: []string{"indexed_wo_smem"}, engines: []cudnn.Engine{
		cudnn.Copies, cudnn.Unpadded, cudnn.Widened, cudnn.WidenedUnpadded, cudnn.Grouped, cudnn.Looped,
	}},
	{any: []string{"sm90_xmma"}, engines: []cudnn.Engine{cudnn.Copies, cudnn.Grouped, cudnn.Hopper, cudnn.Unrounded}},
	{any: []string{"ReduceSplitK"}, engines: []cudnn.Engine{cudnn.Copies, cudnn.Looped}},
	{any: []string{"cutlass_tensorop"}, all: []string{"wgrad"}, engines: []cudnn.Engine{
		cudnn.Copies, cudnn.Serial, cudnn.LoopedSerial, cudnn.Looped, cudnn.Widened,
	}},
	{any: []string{"cutlass_tensorop"}, engines: []cudnn.Engine{cudnn.Copies, cudnn.Looped, cudnn.Widened}},
	{any: []string{"_xmma_"}, all: []string{"implicit_gemm"}, engines: []cudnn.Engine{
		cudnn.Copies, cudnn.Grouped, cudnn.Looped, cudnn.Widened,
	}},
}

// fits says whether the kernels that ran, joined, belong to the family.
func (f family) fits(kernels string) bool {
	has := func(s string) bool { return strings.Contains(kernels, s) }
	return slices.ContainsFunc(f.any, has) && !slices.ContainsFunc(f.all, func(s string) bool { return !has(s) })
}

// guesses are the engines tried where kernels tell nothing.
var guesses = []cudnn.Engine{cudnn.Copies, cudnn.Looped, cudnn.Grouped, cudnn.Unpadded, cudnn.Im2col}

// tileName is how kernel names give the tile.
var tileName = regexp.MustCompile(`(?:tilesize|_)(\d+)x(\d+)(?:x\d+_|_\d+x\d+_n)`)

// choiceOf tells the engine and its knobs from the kernels that ran and the
// bytes they were given: of the engines of the kernels' family the first whose
// formula gives every byte, else the nearest.
func choiceOf(s cudnn.Study, kernels []string, bytes int64) cudnn.Choice {
	direct := cudnn.Choice{}
	if bytes == 0 {
		return direct
	}
	all := strings.Join(kernels, " ")
	engines := guesses
	if i := slices.IndexFunc(families, func(f family) bool { return f.fits(all) }); i >= 0 {
		engines = families[i].engines
	}
	var tileM, tileN int64
	if m := tileName.FindStringSubmatch(all); m != nil && !strings.Contains(all, "ReduceSplitK") {
		tileM, _ = strconv.ParseInt(m[1], 10, 64)
		tileN, _ = strconv.ParseInt(m[2], 10, 64)
	}
	best, gap := direct, bytes
	for _, e := range engines {
		if !s.Can(e) {
			continue
		}
		for _, c := range knobs(s, e, tileM, tileN, bytes) {
			if d := s.Bytes(c) - bytes; max(d, -d) < gap {
				best, gap = c, max(d, -d)
			}
		}
	}
	if gap > 0 && bytes <= small {
		return direct
	}
	return best
}

// knobs are the choices of an engine worth trying: unsplit, and split as often
// as comes closest.
func knobs(s cudnn.Study, e cudnn.Engine, tileM, tileN, bytes int64) []cudnn.Choice {
	choices := []cudnn.Choice{{Engine: e}}
	if !s.Splits(e) {
		return choices
	}
	once := cudnn.Choice{Engine: e, TileM: tileM, TileN: tileN, Splits: 1}
	twice := once
	twice.Splits = 2
	more := s.Bytes(twice) - s.Bytes(once)
	if more > 0 {
		once.Splits = max(1, 1+(bytes-s.Bytes(once)+more/2)/more)
	}
	return append(choices, once)
}

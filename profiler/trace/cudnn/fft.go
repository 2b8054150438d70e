package cudnn

import "github.com/vprof/vprof/internal/ceil"

// fftSizes are the sides of the tiles that tiled FFT engines transform.
var fftSizes = [numEngines]int64{FFT1D32: 32, FFT1D256: 256, FFT2D16: 16, FFT2D32: 32, FFT2D64: 64}

// fft returns the workspace of the FFT engines (fp32): the complex half spectra of x, w and y. The tiled engines divide
// long images into overlapping tiles and hold two of them per sample at a time. The old engine transforms the whole
// image, padded to a square with a power of two as its side, and needs a fourth region for transposing, so its
// workspace is practically unbounded.
func (p *problem) fft(e Engine) int64 {
	switch e {
	case WholeFFT:
		return p.wholeFFT()
	case TurnsFFT:
		return p.turnsFFT()
	}
	size := fftSizes[e]
	points, tiles := size/2+1, int64(1)
	first := 0
	if e == FFT1D32 || e == FFT1D256 {
		first = p.Dim - 1
	} else {
		points *= size
	}
	for i := first; i < p.Dim; i++ {
		tiles *= ceil.Div(p.Out[i], max(size-p.K[i]+1, 1))
	}
	batch := p.N * min(tiles, 2)
	return 8 * points * (batch*(p.cg+p.kg) + p.cg*p.kg) * min(p.Groups, concurrentGroups)
}

// fftSide returns the side of the square, a power of two, for an image with the border that the filter needs.
func (p *problem) fftSide() int64 {
	side := int64(1)
	for i := range p.Dim {
		side = max(side, powerOfTwo(p.In[i]+p.K[i]-1))
	}
	return side
}

// turnsFFT returns the workspace of an FFT engine with two regions and a copy of y. A region holds the spectra of x and
// y, or of w. All channels-last tensors are copied first.
func (p *problem) turnsFFT() int64 {
	side := p.fftSide()
	spectra := 8 * side * (side/2 + 1) * 2 * max(p.N*(p.cg+p.kg), p.cg*p.kg)
	n := spectra + p.N*p.kg*p.ys*p.es
	if p.Layout != Contiguous {
		n += p.N*(p.cg*p.xs+p.kg*p.ys)*p.es + ceil.Multiple(p.kg*p.cg*p.taps*p.es, copyAlign)
		if p.Groups == 1 {
			n += copyAlign
		}
	}
	return n * min(p.Groups, concurrentGroups)
}

func (p *problem) wholeFFT() int64 {
	side := p.fftSide()
	a, b, c := p.N*p.cg, p.N*p.kg, p.cg*p.kg
	spectra := 8 * side * (side/2 + 1) * (a + b + c + max(a, b, c))
	images := p.N * p.c * p.xs * p.es
	if p.Groups > 1 {
		images += p.N*p.k*p.ys*p.es + p.k*p.cg*p.taps*p.es
	}
	return spectra*min(p.Groups, concurrentGroups) + images + copyAlign
}

// winograd returns the workspace of the Winograd engines (fp32; Lavin and Gray, arXiv 1509.09308). The unfused ones
// keep the transformed input, filter and output: (m+r-1)^2 numbers per tile of m x m outputs and pair of channels. The
// fused one keeps the filter, and its transform of 16 numbers per pair of channels with the outputs padded to 32.
func (p *problem) winograd(e Engine) int64 {
	groups := min(p.Groups, concurrentGroups)
	if e == WinogradFused {
		in, out := p.cg, p.kg
		if p.kind == dgrad {
			in, out = out, in
		}
		one := (in*out*p.taps + 16*in*ceil.Multiple(out, 32) + out) * 4
		if p.Groups == 1 {
			return one
		}
		images := p.N * (p.c*p.xs + p.k*p.ys) * 4 / p.Groups
		return groups * (one + images + copyAlign)
	}
	tile, transformed, n := int64(4), int64(36), p.N
	if e == Winograd9 {
		tile, transformed = 9, 169
	}
	if e == Winograd9 || p.kind != wgrad {
		// These kernels process sixteen samples at a time.
		n = ceil.Multiple(n, 16)
	}
	tiles := n * ceil.Div(p.Out[0], tile) * ceil.Div(p.Out[1], tile)
	if p.kind == dgrad {
		tiles = n * ceil.Div(p.In[0], tile) * ceil.Div(p.In[1], tile)
	}
	return 4 * transformed * (tiles*(p.cg+p.kg) + p.cg*p.kg) * groups
}

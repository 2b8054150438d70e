package cudnn

import "github.com/vprof/vprof/internal/ceil"

// fft is the workspace of the FFT engines (fp32): the half spectra, complex, of
// x, w and y. The tiled engines cut long images into overlapping tiles and hold
// two of them per sample at a time; the old engine transforms the whole image,
// padded to a square power of two, and needs a fourth region for transposing,
// so it has no sensible bound.
func (p *problem) fft(e Engine) int64 {
	groups := min(p.Groups, concurrentGroups)
	var size int64
	switch e {
	case FFT1D32, FFT2D32:
		size = 32
	case FFT1D256:
		size = 256
	case FFT2D16:
		size = 16
	case FFT2D64:
		size = 64
	case WholeFFT:
		return p.wholeFFT()
	}
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
	return 8 * points * (batch*(p.cg+p.kg) + p.cg*p.kg) * groups
}

func (p *problem) wholeFFT() int64 {
	side := int64(1)
	for i := range p.Dim {
		side = max(side, powerOfTwo(p.In[i]+p.K[i]-1))
	}
	a, b, c := p.N*p.cg, p.N*p.kg, p.cg*p.kg
	spectra := 8 * side * (side/2 + 1) * (a + b + c + max(a, b, c))
	images := p.N * p.c * p.xs * p.es
	if p.Groups > 1 {
		images += p.N*p.k*p.ys*p.es + p.k*p.cg*p.taps*p.es
	}
	return spectra*min(p.Groups, concurrentGroups) + images + copyAlign
}

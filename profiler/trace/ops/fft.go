package ops

import (
	"cmp"
	"math/big"
	"math/bits"
	"slices"

	"github.com/vprof/vprof/internal/lists"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// fftR2C records _fft_r2c: the one-sided spectrum of a real tensor over dims.
func fftR2C(x *tensor, dims ...int) *tensor {
	c := x.Tape().Begin("_fft_r2c", x)
	last := dims[len(dims)-1]
	shape := append([]int64(nil), x.Shape()...)
	shape[last] = shape[last]/2 + 1
	y := c.Bind(spectrum(x, trace.C64, shape, sortByStride(x, dims, 1)))
	execFFT(c.Tape(), y, x, dims)
	whole := x.Shape()
	return c.End(y.SetGradFn("FftR2CBackward0", inputs{x}, saves{x},
		func(b *backward) { b.Set(0, fftR2CBackward(b.Grad, whole, dims)) }))
}

// fftR2CBackward records fft_r2c_backward: the missing half of the gradient is padded with zeros, the whole is
// transformed, and the result is a view of the real part.
func fftR2CBackward(g *tensor, whole []int64, dims []int) *tensor {
	c := g.Tape().Begin("fft_r2c_backward", g)
	full := c.Bind(c.Tape().Alloc(trace.C64, whole...))
	c.Tape().LaunchFill(full)
	c.Tape().LaunchCopy(full, g)
	z := c.Bind(fftC2C(full, dims))
	return c.End(z.RealPart())
}

// fftC2C records _fft_c2c.
func fftC2C(x *tensor, dims []int) *tensor {
	c := x.Tape().Begin("_fft_c2c", x)
	y := c.Bind(spectrum(x, trace.C64, x.Shape(), sortByStride(x, dims, 0)))
	execFFT(c.Tape(), y, x, dims)
	return c.End(y.SetGradFn("FftC2CBackward0", inputs{x}, nil, func(b *backward) { b.Set(0, fftC2C(b.Grad, dims)) }))
}

// mostPrime is the largest prime factor for which cuFFT has a kernel (cuFFT's manual).
const mostPrime = 127

// execFFT records the execution of a cuFFT plan. Sizes that are products of small primes need no work area. A real
// transform of odd length copies the input to complex numbers, unless the length is a prime that one kernel handles
// (measured for 65 and 73 on GPUs of two generations).
func execFFT(t *tape, y, x *tensor, dims []int) {
	c := t.Begin("_exec_fft")
	if n := x.Shape()[dims[len(dims)-1]]; x.DType() != trace.C64 && n%2 == 1 &&
		(n > mostPrime || !big.NewInt(n).ProbablyPrime(0)) {
		t.AllocWorkspace(x.Numel() * trace.C64.Size())
	}
	length := int64(1)
	for _, d := range dims {
		length *= x.Shape()[d]
	}
	if !collapses(x, dims) {
		x = c.Bind(t.Alloc(x.DType(), x.Shape()...))
	}
	t.Launch(program.Elementwise, 5*x.Numel()*int64(bits.Len64(uint64(length))), []*tensor{y}, []*tensor{x})
	c.Finish()
}

// batchDims returns the dimensions outside of dims, sorted by descending stride.
func batchDims(x *tensor, dims []int) []int {
	batch := lists.Filter(lists.Ascending(x.NDim()), func(d int) bool { return !slices.Contains(dims, d) })
	slices.SortStableFunc(batch, func(a, b int) int { return cmp.Compare(x.Strides()[b], x.Strides()[a]) })
	return batch
}

// collapses reports whether the dimensions outside of dims can be viewed as one batch, so that cuFFT needs no copy.
func collapses(x *tensor, dims []int) bool {
	var shape, strides []int64
	for _, d := range batchDims(x, dims) {
		shape, strides = append(shape, x.Shape()[d]), append(strides, x.Strides()[d])
	}
	_, ok := trace.ViewStrides(nil, shape, strides, []int64{trace.Numel(shape)})
	return ok
}

// sortByStride returns dims in the order of their strides. The last fixed dimensions stay in place.
func sortByStride(x *tensor, dims []int, fixed int) []int {
	out := slices.Clone(dims)
	slices.SortStableFunc(out[:len(out)-fixed], func(a, b int) int {
		return cmp.Compare(x.Strides()[b], x.Strides()[a])
	})
	return out
}

// spectrum allocates the result of a transform of x over dims: in memory, the transformed dimensions come last.
func spectrum(x *tensor, d trace.DType, shape []int64, dims []int) *tensor {
	return x.Tape().AllocStrided(d, shape, trace.DenseStrides(shape, slices.Concat(batchDims(x, dims), dims)))
}

// FFT records torch.fft.fftn(x, sizes, dims); ifftn allocates the same. x is converted to complex numbers, and cut or
// padded to sizes; sizes may be nil.
func FFT(x *tensor, sizes []int64, dims ...int) *tensor {
	c := x.Tape().Begin("fft_fftn", x)
	dims = trace.WrapDims(len(x.Shape()), dims)
	return c.End(fftC2C(resizedFFT(x.AsType(trace.C64), sizes, dims), dims))
}

// RealFFT records torch.fft.rfftn(x, sizes, dims).
func RealFFT(x *tensor, sizes []int64, dims ...int) *tensor {
	c := x.Tape().Begin("fft_rfftn", x)
	dims = trace.WrapDims(len(x.Shape()), dims)
	return c.End(fftR2C(resizedFFT(x, sizes, dims), dims...))
}

// InverseRealFFT records torch.fft.irfftn(x, sizes, dims).
func InverseRealFFT(x *tensor, sizes []int64, dims ...int) *tensor {
	c := x.Tape().Begin("fft_irfftn", x)
	dims = trace.WrapDims(len(x.Shape()), dims)
	last := dims[len(dims)-1]
	n := 2 * (x.Shape()[last] - 1)
	if sizes != nil {
		n = sizes[len(sizes)-1]
		sizes = lists.Replace(sizes, len(sizes)-1, n/2+1)
	}
	return c.End(fftC2R(resizedFFT(x.AsType(trace.C64), sizes, dims), dims, n))
}

// resizedFFT records resize_fft_input.
func resizedFFT(x *tensor, sizes []int64, dims []int) *tensor {
	if sizes == nil {
		return x
	}
	pads := make([]int64, 2*len(x.Shape()))
	grows := false
	for i, d := range dims {
		switch have := x.Shape()[d]; {
		case sizes[i] > have:
			pads[2*(len(x.Shape())-1-d)+1] = sizes[i] - have
			grows = true
		case sizes[i] < have && sizes[i] >= 0:
			x = x.SliceStep(d, 0, sizes[i], 1)
		}
	}
	if grows {
		return x.PadConstant(pads)
	}
	return x
}

// fftC2R records _fft_c2r to n values along the last of dims. It copies the input, which cuFFT overwrites.
func fftC2R(x *tensor, dims []int, n int64) *tensor {
	t := x.Tape()
	c := t.Begin("_fft_c2r", x)
	y := c.Bind(spectrum(x, trace.F32, lists.Replace(x.Shape(), dims[len(dims)-1], n), dims))
	copied := c.Bind(t.Alloc(trace.C64, x.Shape()...))
	t.LaunchCopy(copied, x)
	execFFT(t, y, copied, dims)
	return c.End(y.SetGradFn("FftC2RBackward0", inputs{x}, nil, func(b *backward) {
		// fft_c2r_backward doubles the inner half of the spectrum.
		g := b.Bind(fftR2C(b.Grad, dims...))
		t.LaunchElementwise(g, 1, g)
		b.Set(0, g)
		b.Drop(g)
	}))
}

// FFTShift records torch.fft.fftshift(x, dims), which rolls x; ifftshift allocates the same.
func FFTShift(x *tensor, dims ...int) *tensor {
	c := x.Tape().Begin("fft_fftshift", x)
	return c.End(x.Roll(trace.WrapDims(len(x.Shape()), dims)...))
}

// HannWindow records torch.hann_window(n). The periodic window is computed with n + 1 elements, then cut.
func HannWindow(t *tape, n int64) *tensor {
	c := t.Begin("hann_window")
	w := c.Bind(t.Alloc(trace.F32, n+1))
	t.LaunchElementwise(w, 10, w)
	return c.End(w.Alias([]int64{n}, []int64{1}, 0))
}

// STFT records torch.stft(x, n, hop, window=w, center=True, pad_mode="reflect", return_complex=True) of x [batch,
// samples]. The result is [batch, n/2+1, frames]. A window shorter than n is padded with zeros.
func STFT(x *tensor, n, hop int64, w *tensor) *tensor {
	f := x.Tape().Frame()
	in, batch := f.Bind(x), x.Shape()[0]
	f.Bind(w)
	f.Set(&in, in.View(1, batch, in.Shape()[1]).PadReflect(n/2, n/2))
	f.Set(&in, in.View(batch, in.Size(-1)))
	z := ShortTimeFFT(in, STFTArgs{FFT: n, Hop: hop, WindowLength: n, Window: w, OneSided: true, Complex: true})
	return f.Return(z)
}

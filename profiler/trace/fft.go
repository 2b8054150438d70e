package trace

import (
	"cmp"
	"math/big"
	"math/bits"
	"slices"

	"github.com/vprof/vprof/internal/lists"

	"github.com/vprof/vprof/profiler/program"
)

// fftR2C records _fft_r2c: the half spectrum of a real tensor over dims.
func (x *Tensor) fftR2C(dims ...int) *Tensor {
	c := x.tape.Begin("_fft_r2c", x)
	last := dims[len(dims)-1]
	shape := append([]int64(nil), x.shape...)
	shape[last] = shape[last]/2 + 1
	y := c.Let(x.spectrum(C64, shape, x.sorted(dims, 1)))
	c.t.execFFT(y, x, dims)
	whole := x.shape
	return c.End(y.Derived("FftR2CBackward0", inputs{x}, saves{x},
		func(b *Gradients) { b.Give(0, b.Grad.fftR2CBackward(whole, dims)) }))
}

// fftR2CBackward records fft_r2c_backward: the missing half is padded with zeros,
// transformed, and the real part seen in the complex result.
func (g *Tensor) fftR2CBackward(whole []int64, dims []int) *Tensor {
	c := g.tape.Begin("fft_r2c_backward", g)
	full := c.Let(c.t.Alloc(C64, whole...))
	c.t.LaunchFill(full)
	c.t.LaunchCopy(full, g)
	z := c.Let(full.fftC2C(dims))
	return c.End(z.RealPart())
}

// fftC2C records _fft_c2c.
func (x *Tensor) fftC2C(dims []int) *Tensor {
	c := x.tape.Begin("_fft_c2c", x)
	y := c.Let(x.spectrum(C64, x.shape, x.sorted(dims, 0)))
	c.t.execFFT(y, x, dims)
	return c.End(y.Derived("FftC2CBackward0", inputs{x}, nil, func(b *Gradients) { b.Give(0, b.Grad.fftC2C(dims)) }))
}

// mostPrime is the largest prime for which cuFFT has a kernel, by its manual.
const mostPrime = 127

// execFFT records the execution of a cuFFT plan. Its work area is empty where sizes are
// products of small primes. A real transform of odd length copies the input as complex
// numbers, unless one kernel handles the length, a prime (measured for 65 and 73 on GPUs of two
// generations).
func (t *Tape) execFFT(y, x *Tensor, dims []int) {
	c := t.Begin("_exec_fft")
	if n := x.shape[dims[len(dims)-1]]; x.dtype != C64 && n%2 == 1 &&
		(n > mostPrime || !big.NewInt(n).ProbablyPrime(0)) {
		t.AllocWorkspace(x.numel * C64.Size())
	}
	length := int64(1)
	for _, d := range dims {
		length *= x.shape[d]
	}
	if !x.collapses(dims) {
		x = c.Let(t.Alloc(x.dtype, x.shape...))
	}
	t.Launch(program.Elementwise, 5*x.numel*int64(bits.Len64(uint64(length))), []*Tensor{y}, []*Tensor{x})
	c.Finish()
}

// batchDims returns the dimensions that a transform over dims leaves, those with
// the largest strides first.
func (x *Tensor) batchDims(dims []int) []int {
	var batch []int
	for d := range x.shape {
		if !slices.Contains(dims, d) {
			batch = append(batch, d)
		}
	}
	slices.SortStableFunc(batch, func(a, b int) int { return cmp.Compare(x.strides[b], x.strides[a]) })
	return batch
}

// collapses reports whether the other dimensions can be viewed as one batch,
// so that cuFFT needs no copy.
func (x *Tensor) collapses(dims []int) bool {
	var shape, strides []int64
	for _, d := range x.batchDims(dims) {
		shape, strides = append(shape, x.shape[d]), append(strides, x.strides[d])
	}
	_, ok := ViewStrides(nil, shape, strides, []int64{Numel(shape)})
	return ok
}

// sorted returns dims in the order of their strides, except the last fixed ones.
func (x *Tensor) sorted(dims []int, fixed int) []int {
	out := slices.Clone(dims)
	slices.SortStableFunc(out[:len(out)-fixed], func(a, b int) int { return cmp.Compare(x.strides[b], x.strides[a]) })
	return out
}

// spectrum returns the result of a transform of x over dims: in memory the batch
// comes first and the transformed dimensions last.
func (x *Tensor) spectrum(d DType, shape []int64, dims []int) *Tensor {
	return x.tape.AllocStrided(d, shape, DenseStrides(shape, slices.Concat(x.batchDims(dims), dims)))
}

// FFT records torch.fft.fftn(x, sizes, dims) and its inverse: x becomes complex, and
// is cut or padded to sizes, which may be nil.
func (x *Tensor) FFT(sizes []int64, dims ...int) *Tensor {
	c := x.tape.Begin("fft_fftn", x)
	dims = WrapDims(len(x.shape), dims)
	return c.End(x.AsType(C64).resizedFFT(sizes, dims).fftC2C(dims))
}

// RealFFT records torch.fft.rfftn(x, sizes, dims).
func (x *Tensor) RealFFT(sizes []int64, dims ...int) *Tensor {
	c := x.tape.Begin("fft_rfftn", x)
	dims = WrapDims(len(x.shape), dims)
	return c.End(x.resizedFFT(sizes, dims).fftR2C(dims...))
}

// InverseRealFFT records torch.fft.irfftn(x, sizes, dims).
func (x *Tensor) InverseRealFFT(sizes []int64, dims ...int) *Tensor {
	c := x.tape.Begin("fft_irfftn", x)
	dims = WrapDims(len(x.shape), dims)
	last := dims[len(dims)-1]
	n := 2 * (x.shape[last] - 1)
	if sizes != nil {
		n = sizes[len(sizes)-1]
		sizes = lists.With(sizes, len(sizes)-1, n/2+1)
	}
	return c.End(x.AsType(C64).resizedFFT(sizes, dims).fftC2R(dims, n))
}

// resizedFFT records resize_fft_input.
func (x *Tensor) resizedFFT(sizes []int64, dims []int) *Tensor {
	if sizes == nil {
		return x
	}
	pads := make([]int64, 2*len(x.shape))
	grows := false
	for i, d := range dims {
		switch have := x.shape[d]; {
		case sizes[i] > have:
			pads[2*(len(x.shape)-1-d)+1] = sizes[i] - have
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

// fftC2R records _fft_c2r to n values along the last of dims. cuFFT destroys its
// input, so that it gets a copy.
func (x *Tensor) fftC2R(dims []int, n int64) *Tensor {
	t := x.tape
	c := t.Begin("_fft_c2r", x)
	y := c.Let(x.spectrum(F32, lists.With(x.shape, dims[len(dims)-1], n), dims))
	copied := c.Let(t.Alloc(C64, x.shape...))
	t.LaunchCopy(copied, x)
	t.execFFT(y, copied, dims)
	return c.End(y.Derived("FftC2RBackward0", inputs{x}, nil, func(b *Gradients) {
		// fft_c2r_backward: the inner half counts twice.
		g := b.Let(b.Grad.fftR2C(dims...))
		t.LaunchElementwise(g, 1, g)
		b.Give(0, g)
		b.Drop(g)
	}))
}

// FFTShift records torch.fft.fftshift(x, dims) and ifftshift: a roll.
func (x *Tensor) FFTShift(dims ...int) *Tensor {
	c := x.tape.Begin("fft_fftshift", x)
	return c.End(x.Roll(WrapDims(len(x.shape), dims)...))
}

// HannWindow records torch.hann_window(n): computed with one element more, which
// the periodic window cuts off.
func (t *Tape) HannWindow(n int64) *Tensor {
	c := t.Begin("hann_window")
	w := c.Let(t.Alloc(F32, n+1))
	t.LaunchElementwise(w, 10, w)
	return c.End(w.Alias([]int64{n}, []int64{1}, 0))
}

// STFT records torch.stft(x, n, hop, window=w, center=True, pad_mode="reflect",
// return_complex=True) of [batch, samples]: [batch, n/2+1, frames]. A window
// shorter than n is padded with zeros.
func (x *Tensor) STFT(n, hop int64, w *Tensor) *Tensor {
	f := x.tape.Frame()
	in, batch := f.Let(x), x.shape[0]
	f.Let(w)
	f.Set(&in, in.View(1, batch, in.shape[1]).PadReflect(n/2, n/2))
	f.Set(&in, in.View(batch, in.Size(-1)))
	z := in.ShortTimeFFT(STFTArgs{FFT: n, Hop: hop, WindowLength: n, Window: w, OneSided: true, Complex: true})
	return f.Return(z)
}

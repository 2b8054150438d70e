package trace

import (
	"math/bits"

	"github.com/vprof/vprof/profiler/program"
)

// RFFT is torch.fft.rfft over the last dimension.
func (x *Tensor) RFFT() *Tensor {
	c := x.tape.begin("fft_rfft", x)
	return c.end(x.fftR2C(len(x.shape) - 1))
}

// RFFT2 is torch.fft.rfft2 over the last two dimensions.
func (x *Tensor) RFFT2() *Tensor {
	c := x.tape.begin("fft_rfft2", x)
	return c.end(x.fftR2C(len(x.shape)-2, len(x.shape)-1))
}

// fftR2C is _fft_r2c: the half spectrum of a real tensor over dims.
func (x *Tensor) fftR2C(dims ...int) *Tensor {
	t := x.tape
	c := t.begin("_fft_r2c", x)
	last := dims[len(dims)-1]
	shape := append([]int64(nil), x.shape...)
	shape[last] = shape[last]/2 + 1
	y := c.let(t.empty(C64, shape...))
	t.execFFT(y, x, dims)
	if n := t.record("FftR2CBackward0", x); n != nil {
		n.save(x)
		n.yields(y)
		whole := x.shape
		n.apply = func(b *backward) { b.give(0, b.grad.fftR2CBackward(whole, dims)) }
	}
	return c.end(y)
}

// fftR2CBackward is fft_r2c_backward: the missing half is padded with zeros,
// transformed, and the real part seen in the complex result.
func (g *Tensor) fftR2CBackward(whole []int64, dims []int) *Tensor {
	t := g.tape
	c := t.begin("fft_r2c_backward", g)
	full := c.let(t.empty(C64, whole...))
	t.launchFill(full)
	t.launchCopy(full, g)
	z := c.let(full.fftC2C(dims))
	return c.end(z.realPart())
}

// fftC2C is _fft_c2c.
func (x *Tensor) fftC2C(dims []int) *Tensor {
	t := x.tape
	c := t.begin("_fft_c2c", x)
	y := c.let(t.empty(C64, x.shape...))
	t.execFFT(y, x, dims)
	return c.end(y)
}

// execFFT is one cuFFT plan. Its work area is empty where sizes are products
// of small primes; a real transform of odd length goes through a complex copy
// of the whole input.
func (t *Tape) execFFT(y, x *Tensor, dims []int) {
	c := t.begin("_exec_fft")
	if n := x.shape[dims[len(dims)-1]]; x.dtype != C64 && n%2 == 1 {
		t.workspace(x.numel * C64.Size())
	}
	length := int64(1)
	for _, d := range dims {
		length *= x.shape[d]
	}
	t.launch(program.Elementwise, 5*x.numel*int64(bits.Len64(uint64(length))), []*Tensor{y}, []*Tensor{x})
	c.done()
}

// realPart is at::real of a complex tensor: a view of every other number.
func (x *Tensor) realPart() *Tensor {
	strides := make([]int64, len(x.strides))
	for i, s := range x.strides {
		strides[i] = 2 * s
	}
	return x.tape.header(x.store, F32, x.tape.layout(x.shape, strides), 2*x.offset)
}

// HannWindow is torch.hann_window(n): computed with one element more, which
// the periodic window cuts off.
func (t *Tape) HannWindow(n int64) *Tensor {
	c := t.begin("hann_window")
	w := c.let(t.empty(F32, n+1))
	t.launchElementwise(w, 10, w)
	return c.end(w.alias([]int64{n}, []int64{1}, 0))
}

// STFT is torch.stft(x, n, hop, window=w, center=True, pad_mode="reflect",
// return_complex=True) of [batch, samples]: [batch, n/2+1, frames]. A window
// shorter than n is padded with zeros.
func (x *Tensor) STFT(n, hop int64, w *Tensor) *Tensor {
	t := x.tape
	f := t.enter()
	in, batch := f.Let(x), x.shape[0]
	f.Let(w)
	f.Set(&in, in.View(1, batch, in.shape[1]).PadReflect(n/2, n/2))
	f.Set(&in, in.View(batch, in.Size(-1)))
	z := in.stft(n, hop, w)
	f.End(z)
	return z
}

func (x *Tensor) stft(n, hop int64, w *Tensor) *Tensor {
	t := x.tape
	c := t.begin("stft", x, w)
	if size := w.shape[0]; size < n {
		narrow := w
		w = c.let(t.empty(w.dtype, n))
		t.launchFill(w)
		t.launchCopy(w, narrow)
	}
	frames := 1 + (x.shape[1]-n)/hop
	in := c.let(x.asStrided(geometry{[]int64{x.shape[0], frames, n}, []int64{x.strides[0], hop * x.strides[1], x.strides[1]}}, x.offset))
	c.set(&in, in.Mul(w))
	z := c.let(in.fftR2C(2))
	return c.end(z.Transpose(1, 2))
}

package trace

import "github.com/vprof/vprof/profiler/program"

// Short-time Fourier transforms as the operators themselves have them, with all their
// options; torch.stft of [batch, samples] is [Tensor.STFT].

// STFTArgs are the options of both directions.
type STFTArgs struct {
	FFT, Hop, WindowLength int64
	Window                 *Tensor // nil for ones
	Center                 bool
	Constant               bool // pad with zeros instead of by reflection
	OneSided, Complex      bool
	Length                 int64 // of the signal that istft gives; 0 for all
}

// window returns the window of a transform, nil if there is none, padded with zeros to the length
// of a frame; without one, ones are if they are shorter than a frame, or always.
func (c *call) window(a *STFTArgs, d DType, always bool) *Tensor {
	w := a.Window
	if w != nil && w.shape[0] == a.FFT || w == nil && a.WindowLength == a.FFT && !always {
		return w
	}
	t := c.t
	full := c.let(t.empty(d, a.FFT))
	t.launchFill(full)
	if w != nil {
		t.launchCopy(full, w)
	}
	return full
}

// ShortTimeFFT records aten::stft and, where it centers frames, aten::stft.center.
func (x *Tensor) ShortTimeFFT(a STFTArgs) *Tensor {
	c := x.tape.begin("stft", x, a.Window)
	in, single := x, len(x.shape) == 1
	if single {
		in = c.let(x.Unsqueeze(0))
	}
	in = c.let(in)
	if a.Center {
		c.set(&in, in.Unsqueeze(0))
		if a.Constant {
			c.set(&in, in.constantPad([]int64{a.FFT / 2, a.FFT / 2}))
		} else {
			c.set(&in, in.PadReflect(a.FFT/2, a.FFT/2))
		}
		c.set(&in, in.Squeeze(0))
	}
	w := c.window(&a, x.dtype, false)
	frames := 1 + (in.shape[1]-a.FFT)/a.Hop
	c.set(&in, in.AsStrided([]int64{in.shape[0], frames, a.FFT},
		[]int64{in.strides[0], a.Hop * in.strides[1], in.strides[1]}, in.offset))
	if w != nil {
		c.set(&in, in.Mul(w))
	}
	var z *Tensor
	switch {
	case in.dtype == C64:
		z = in.fftC2C([]int{2})
	case a.OneSided:
		z = in.fftR2C(2)
	default:
		z = in.fftR2CWhole(2)
	}
	z = c.let(z).Transpose(1, 2)
	if single {
		z = z.Squeeze(0)
	}
	if !a.Complex {
		z = z.ViewAsReal()
	}
	return c.end(z)
}

// fftR2CWhole records _fft_r2c with onesided=False: both halves of the spectrum.
func (x *Tensor) fftR2CWhole(dim int) *Tensor {
	t := x.tape
	c := t.begin("_fft_r2c", x)
	y := c.let(x.spectrum(C64, x.shape, []int{dim}))
	t.execFFT(y, x, []int{dim})
	return c.end(y.derived("FftR2CBackward0", inputs{x}, saves{x}, func(b *backward) {
		c := t.begin("fft_r2c_backward", b.grad)
		z := c.let(b.grad.fftC2C([]int{dim}))
		b.give(0, c.end(z.realPart()))
	}))
}

// InverseSTFT records torch.istft: frames are transformed back, windowed, added up where they
// overlap, and divided by the sum of the squared windows, which must not vanish anywhere.
func (x *Tensor) InverseSTFT(a STFTArgs) *Tensor {
	c := x.tape.begin("istft", x, a.Window)
	w := c.window(&a, F32, true)
	in, single := c.let(x.ViewAsReal()), len(x.shape) == 2
	if single {
		c.set(&in, in.Unsqueeze(0))
	}
	c.set(&in, in.Transpose(1, 2).ViewAsComplex()) // whose backward copies the gradient as real numbers
	frames := in.shape[1]
	if a.OneSided {
		c.set(&in, in.fftC2R([]int{2}, a.FFT))
	} else {
		c.set(&in, in.SliceStep(2, 0, a.FFT/2+1, 1).fftC2R([]int{2}, a.FFT))
	}
	whole := a.FFT + a.Hop*(frames-1)
	product := c.let(in.Mul(w))
	sum := c.let(product.overlapped(whole, a.Hop))
	square := c.let(w.Pow(2))
	envelope := c.let(square.Expand(1, frames, a.FFT).overlapped(whole, a.Hop))
	from, to := int64(0), whole
	if a.Center {
		from, to = a.FFT/2, whole-a.FFT/2
	}
	if a.Length > 0 {
		to = min(from+a.Length, whole)
	}
	part := c.let(sum.Slice(1, from, to))
	weights := c.let(envelope.Slice(1, from, to))
	lowest := c.let(weights.vanishes())
	lowest.isTrue()
	y := c.let(part.Div(weights))
	c.dropLocals(part, sum)
	if missing := a.Length - (to - from); missing > 0 {
		c.set(&y, y.constantPad([]int64{0, missing}))
	}
	c.dropLocals(lowest, weights, envelope, product, square, in)
	if single {
		return c.end(y.Squeeze(0))
	}
	return c.end(y)
}

// vanishes records x.abs().min().lt(number).
func (x *Tensor) vanishes() *Tensor {
	c := x.tape.begin("istft", x)
	return c.end(x.Abs().Min().compareScalar("lt"))
}

// isTrue records is_scalar_tensor_true: whether x equals a tensor that is.
func (x *Tensor) isTrue() {
	c := x.tape.begin("is_scalar_tensor_true", x)
	for range 3 { // true itself, the comparison, and whether all of it is
		c.let(c.t.empty(Bool))
	}
	c.finish()
}

// overlapped records unfold_backward(x, [rows, length], 1, frame, hop) of x [rows, frames, frame]:
// frames are added up where they lie.
func (x *Tensor) overlapped(length, hop int64) *Tensor {
	c := x.tape.begin("unfold_backward", x)
	y := c.let(c.t.Zeros(x.dtype, x.shape[0], length))
	places := c.let(c.t.Arange(length))
	c.t.launch(program.Index, x.numel, []*Tensor{y.touched(x.numel)}, []*Tensor{x, places})
	shape := x.shape
	return c.end(y.derived("UnfoldBackwardBackward0", inputs{x}, nil, func(b *backward) {
		g := b.grad
		b.give(0, g.AsStrided(shape, []int64{g.strides[0], hop * g.strides[1], g.strides[1]}, g.offset))
	}))
}

// HermitianFFT records torch.fft.hfft(x, n, dim): a real result of half a spectrum.
func (x *Tensor) HermitianFFT(sizes []int64, dims ...int) *Tensor {
	c := x.tape.begin("fft_hfft", x)
	dim := x.dim(dims[0])
	n := 2 * (x.shape[dim] - 1)
	if sizes != nil {
		n = sizes[0]
		sizes = []int64{n/2 + 1}
	}
	conj := c.let(x.to(C64).resizedFFT(sizes, []int{dim}).Conj())
	resolved := c.let(c.t.empty(C64, conj.shape...))
	c.t.launchCopy(resolved, conj)
	return c.end(conj.fftC2R([]int{dim}, n))
}

// InverseHermitianFFT records torch.fft.ihfft(x, n, dim).
func (x *Tensor) InverseHermitianFFT(sizes []int64, dims ...int) *Tensor {
	c := x.tape.begin("fft_ihfft", x)
	dim := x.dim(dims[0])
	return c.end(x.resizedFFT(sizes, []int{dim}).fftR2C(dim).Conj())
}

// windowFLOPs is the number of operations of a value of a window: Bessel functions are series.
const windowFLOPs = 40

// Window records torch.kaiser_window(n, periodic) and the like, made with so many tensors of its size
// beside it; one that is periodic is computed with one number more.
func (t *Tape) Window(op string, n int64, periodic bool, tensors int) *Tensor {
	c := t.begin(op)
	if periodic {
		n++
	}
	w := c.let(t.empty(F32, n))
	for range tensors {
		c.let(t.empty(F32, n))
	}
	t.launchElementwise(w, windowFLOPs, w)
	if periodic {
		return c.end(w.alias([]int64{n - 1}, []int64{1}, 0))
	}
	return c.end(w)
}

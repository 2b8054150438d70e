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
func (c *Call) window(a *STFTArgs, d DType, always bool) *Tensor {
	w := a.Window
	if w != nil && w.shape[0] == a.FFT || w == nil && a.WindowLength == a.FFT && !always {
		return w
	}
	t := c.t
	full := c.Let(t.Alloc(d, a.FFT))
	t.LaunchFill(full)
	if w != nil {
		t.LaunchCopy(full, w)
	}
	return full
}

// ShortTimeFFT records aten::stft and, where it centers frames, aten::stft.center.
func (x *Tensor) ShortTimeFFT(a STFTArgs) *Tensor {
	c := x.tape.Begin("stft", x, a.Window)
	in, single := x, len(x.shape) == 1
	if single {
		in = c.Let(x.Unsqueeze(0))
	}
	in = c.Let(in)
	if a.Center {
		c.Set(&in, in.Unsqueeze(0))
		if a.Constant {
			c.Set(&in, in.PadConstant([]int64{a.FFT / 2, a.FFT / 2}))
		} else {
			c.Set(&in, in.PadReflect(a.FFT/2, a.FFT/2))
		}
		c.Set(&in, in.Squeeze(0))
	}
	w := c.window(&a, x.dtype, false)
	frames := 1 + (in.shape[1]-a.FFT)/a.Hop
	c.Set(&in, in.AsStrided([]int64{in.shape[0], frames, a.FFT},
		[]int64{in.strides[0], a.Hop * in.strides[1], in.strides[1]}, in.offset))
	if w != nil {
		c.Set(&in, in.Mul(w))
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
	z = c.Let(z).Transpose(1, 2)
	if single {
		z = z.Squeeze(0)
	}
	if !a.Complex {
		z = z.ViewAsReal()
	}
	return c.End(z)
}

// fftR2CWhole records _fft_r2c with onesided=False: both halves of the spectrum.
func (x *Tensor) fftR2CWhole(dim int) *Tensor {
	t := x.tape
	c := t.Begin("_fft_r2c", x)
	y := c.Let(x.spectrum(C64, x.shape, []int{dim}))
	t.execFFT(y, x, []int{dim})
	return c.End(y.Derived("FftR2CBackward0", inputs{x}, saves{x}, func(b *Gradients) {
		c := t.Begin("fft_r2c_backward", b.Grad)
		z := c.Let(b.Grad.fftC2C([]int{dim}))
		b.Give(0, c.End(z.RealPart()))
	}))
}

// InverseSTFT records torch.istft: frames are transformed back, windowed, added up where they
// overlap, and divided by the sum of the squared windows, which must not vanish anywhere.
func (x *Tensor) InverseSTFT(a STFTArgs) *Tensor {
	c := x.tape.Begin("istft", x, a.Window)
	w := c.window(&a, F32, true)
	in, single := c.Let(x.ViewAsReal()), len(x.shape) == 2
	if single {
		c.Set(&in, in.Unsqueeze(0))
	}
	c.Set(&in, in.Transpose(1, 2).ViewAsComplex()) // whose backward copies the gradient as real numbers
	frames := in.shape[1]
	if a.OneSided {
		c.Set(&in, in.fftC2R([]int{2}, a.FFT))
	} else {
		c.Set(&in, in.SliceStep(2, 0, a.FFT/2+1, 1).fftC2R([]int{2}, a.FFT))
	}
	whole := a.FFT + a.Hop*(frames-1)
	product := c.Let(in.Mul(w))
	sum := c.Let(product.overlapped(whole, a.Hop))
	square := c.Let(w.Pow(2))
	envelope := c.Let(square.Expand(1, frames, a.FFT).overlapped(whole, a.Hop))
	from, to := int64(0), whole
	if a.Center {
		from, to = a.FFT/2, whole-a.FFT/2
	}
	if a.Length > 0 {
		to = min(from+a.Length, whole)
	}
	part := c.Let(sum.Slice(1, from, to))
	weights := c.Let(envelope.Slice(1, from, to))
	lowest := c.Let(weights.vanishes())
	lowest.isTrue()
	y := c.Let(part.Div(weights))
	c.DropAll(part, sum)
	if missing := a.Length - (to - from); missing > 0 {
		c.Set(&y, y.PadConstant([]int64{0, missing}))
	}
	c.DropAll(lowest, weights, envelope, product, square, in)
	if single {
		return c.End(y.Squeeze(0))
	}
	return c.End(y)
}

// vanishes records x.abs().min().lt(number).
func (x *Tensor) vanishes() *Tensor {
	c := x.tape.Begin("istft", x)
	return c.End(x.Abs().Min().CompareScalar("lt"))
}

// isTrue records is_scalar_tensor_true: whether x equals a tensor that is.
func (x *Tensor) isTrue() {
	c := x.tape.Begin("is_scalar_tensor_true", x)
	for range 3 { // true itself, the comparison, and whether all of it is
		c.Let(c.t.Alloc(Bool))
	}
	c.Finish()
}

// overlapped records unfold_backward(x, [rows, length], 1, frame, hop) of x [rows, frames, frame]:
// frames are added up where they lie.
func (x *Tensor) overlapped(length, hop int64) *Tensor {
	c := x.tape.Begin("unfold_backward", x)
	y := c.Let(c.t.Zeros(x.dtype, x.shape[0], length))
	places := c.Let(c.t.Arange(length))
	c.t.Launch(program.Index, x.numel, []*Tensor{y.Touched(x.numel)}, []*Tensor{x, places})
	shape := x.shape
	return c.End(y.Derived("UnfoldBackwardBackward0", inputs{x}, nil, func(b *Gradients) {
		g := b.Grad
		b.Give(0, g.AsStrided(shape, []int64{g.strides[0], hop * g.strides[1], g.strides[1]}, g.offset))
	}))
}

// HermitianFFT records torch.fft.hfft(x, n, dim): a real result of half a spectrum.
func (x *Tensor) HermitianFFT(sizes []int64, dims ...int) *Tensor {
	c := x.tape.Begin("fft_hfft", x)
	dim := x.Dim(dims[0])
	n := 2 * (x.shape[dim] - 1)
	if sizes != nil {
		n = sizes[0]
		sizes = []int64{n/2 + 1}
	}
	conj := c.Let(x.AsType(C64).resizedFFT(sizes, []int{dim}).Conj())
	resolved := c.Let(c.t.Alloc(C64, conj.shape...))
	c.t.LaunchCopy(resolved, conj)
	return c.End(conj.fftC2R([]int{dim}, n))
}

// InverseHermitianFFT records torch.fft.ihfft(x, n, dim).
func (x *Tensor) InverseHermitianFFT(sizes []int64, dims ...int) *Tensor {
	c := x.tape.Begin("fft_ihfft", x)
	dim := x.Dim(dims[0])
	return c.End(x.resizedFFT(sizes, []int{dim}).fftR2C(dim).Conj())
}

// windowFLOPs is the number of operations of a value of a window: Bessel functions are series.
const windowFLOPs = 40

// Window records torch.kaiser_window(n, periodic) and the like, made with so many tensors of its size
// beside it; one that is periodic is computed with one number more.
func (t *Tape) Window(op string, n int64, periodic bool, tensors int) *Tensor {
	c := t.Begin(op)
	if periodic {
		n++
	}
	w := c.Let(t.Alloc(F32, n))
	for range tensors {
		c.Let(t.Alloc(F32, n))
	}
	t.LaunchElementwise(w, windowFLOPs, w)
	if periodic {
		return c.End(w.Alias([]int64{n - 1}, []int64{1}, 0))
	}
	return c.End(w)
}

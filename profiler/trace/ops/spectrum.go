package ops

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Short-time Fourier transforms with all options. [STFT] records the usual call of torch.stft.

// STFTArgs are the options of torch.stft and torch.istft.
type STFTArgs struct {
	FFT, Hop, WindowLength int64
	Window                 *tensor // nil for ones
	Center                 bool
	Constant               bool // pad with zeros instead of by reflection
	OneSided, Complex      bool
	Length                 int64 // of the signal that istft gives; 0 for all
}

// frameWindow returns the window of a transform, padded with zeros to a frame's length. If no window is given, it
// returns nil, or ones if always is set or the window is shorter than a frame.
func frameWindow(c *call, a *STFTArgs, d trace.DType, always bool) *tensor {
	w := a.Window
	if w != nil && w.Shape()[0] == a.FFT || w == nil && a.WindowLength == a.FFT && !always {
		return w
	}
	t := c.Tape()
	full := c.Bind(t.Alloc(d, a.FFT))
	t.LaunchFill(full)
	if w != nil {
		t.LaunchCopy(full, w)
	}
	return full
}

// ShortTimeFFT records aten::stft, or aten::stft.center if frames are centered.
func ShortTimeFFT(x *tensor, a STFTArgs) *tensor {
	c := x.Tape().Begin("stft", x, a.Window)
	in, single := x, len(x.Shape()) == 1
	if single {
		in = c.Bind(x.Unsqueeze(0))
	}
	in = c.Bind(in)
	if a.Center {
		c.Set(&in, in.Unsqueeze(0))
		if a.Constant {
			c.Set(&in, in.PadConstant([]int64{a.FFT / 2, a.FFT / 2}))
		} else {
			c.Set(&in, in.PadReflect(a.FFT/2, a.FFT/2))
		}
		c.Set(&in, in.Squeeze(0))
	}
	w := frameWindow(c, &a, x.DType(), false)
	frames := 1 + (in.Shape()[1]-a.FFT)/a.Hop
	c.Set(&in, in.AsStrided([]int64{in.Shape()[0], frames, a.FFT},
		[]int64{in.Strides()[0], a.Hop * in.Strides()[1], in.Strides()[1]}, in.Offset()))
	if w != nil {
		c.Set(&in, in.Mul(w))
	}
	var z *tensor
	switch {
	case in.DType() == trace.C64:
		z = fftC2C(in, []int{2})
	case a.OneSided:
		z = fftR2C(in, 2)
	default:
		z = fftR2CWhole(in, 2)
	}
	z = c.Bind(z).Transpose(1, 2)
	if single {
		z = z.Squeeze(0)
	}
	if !a.Complex {
		z = z.ViewAsReal()
	}
	return c.End(z)
}

// fftR2CWhole records _fft_r2c with onesided=False: both halves of the spectrum.
func fftR2CWhole(x *tensor, dim int) *tensor {
	t := x.Tape()
	c := t.Begin("_fft_r2c", x)
	y := c.Bind(spectrum(x, trace.C64, x.Shape(), []int{dim}))
	execFFT(t, y, x, []int{dim})
	return c.End(y.SetGradFn("FftR2CBackward0", inputs{x}, saves{x}, func(b *backward) {
		c := t.Begin("fft_r2c_backward", b.Grad)
		z := c.Bind(fftC2C(b.Grad, []int{dim}))
		b.Set(0, c.End(z.RealPart()))
	}))
}

// InverseSTFT records torch.istft: frames are transformed back, multiplied by the window, and added where they overlap.
// The result is divided by the sum of the squared windows, which istft first checks for zeros.
func InverseSTFT(x *tensor, a STFTArgs) *tensor {
	c := x.Tape().Begin("istft", x, a.Window)
	w := frameWindow(c, &a, trace.F32, true)
	in, single := c.Bind(x.ViewAsReal()), len(x.Shape()) == 2
	if single {
		c.Set(&in, in.Unsqueeze(0))
	}
	c.Set(&in, in.Transpose(1, 2).ViewAsComplex()) // whose backward copies the gradient as real numbers
	frames := in.Shape()[1]
	if a.OneSided {
		c.Set(&in, fftC2R(in, []int{2}, a.FFT))
	} else {
		c.Set(&in, fftC2R(in.SliceStep(2, 0, a.FFT/2+1, 1), []int{2}, a.FFT))
	}
	whole := a.FFT + a.Hop*(frames-1)
	product := c.Bind(in.Mul(w))
	sum := c.Bind(overlapAdd(product, whole, a.Hop))
	square := c.Bind(w.Pow(2))
	envelope := c.Bind(overlapAdd(square.Expand(1, frames, a.FFT), whole, a.Hop))
	from, to := int64(0), whole
	if a.Center {
		from, to = a.FFT/2, whole-a.FFT/2
	}
	if a.Length > 0 {
		to = min(from+a.Length, whole)
	}
	part := c.Bind(sum.Slice(1, from, to))
	weights := c.Bind(envelope.Slice(1, from, to))
	lowest := c.Bind(minAbsBelow(weights))
	isTrue(lowest)
	y := c.Bind(part.Div(weights))
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

// minAbsBelow records x.abs().min().lt(number).
func minAbsBelow(x *tensor) *tensor {
	c := x.Tape().Begin("istft", x)
	return c.End(x.Abs().Min().CompareScalar("lt"))
}

// isTrue records is_scalar_tensor_true: x is compared with a tensor that holds true.
func isTrue(x *tensor) {
	c := x.Tape().Begin("is_scalar_tensor_true", x)
	for range 3 { // true itself, the comparison, and whether all of it is
		c.Bind(c.Tape().Alloc(trace.Bool))
	}
	c.Finish()
}

// overlapAdd records unfold_backward(x, [rows, length], 1, frame, hop) of x [rows, frames, frame], which adds
// overlapping frames.
func overlapAdd(x *tensor, length, hop int64) *tensor {
	c := x.Tape().Begin("unfold_backward", x)
	y := c.Bind(c.Tape().Zeros(x.DType(), x.Shape()[0], length))
	places := c.Bind(c.Tape().Arange(length))
	c.Tape().Launch(program.Index, x.Numel(), []*tensor{y.FirstElements(x.Numel())}, []*tensor{x, places})
	shape := x.Shape()
	return c.End(y.SetGradFn("UnfoldBackwardBackward0", inputs{x}, nil, func(b *backward) {
		g := b.Grad
		b.Set(0, g.AsStrided(shape, []int64{g.Strides()[0], hop * g.Strides()[1], g.Strides()[1]}, g.Offset()))
	}))
}

// HermitianFFT records torch.fft.hfft(x, n, dim): the real result of a transform of a one-sided spectrum.
func HermitianFFT(x *tensor, sizes []int64, dims ...int) *tensor {
	c := x.Tape().Begin("fft_hfft", x)
	dim := x.Dim(dims[0])
	n := 2 * (x.Shape()[dim] - 1)
	if sizes != nil {
		n = sizes[0]
		sizes = []int64{n/2 + 1}
	}
	conj := c.Bind(resizedFFT(x.AsType(trace.C64), sizes, []int{dim}).Conj())
	resolved := c.Bind(c.Tape().Alloc(trace.C64, conj.Shape()...))
	c.Tape().LaunchCopy(resolved, conj)
	return c.End(fftC2R(conj, []int{dim}, n))
}

// InverseHermitianFFT records torch.fft.ihfft(x, n, dim).
func InverseHermitianFFT(x *tensor, sizes []int64, dims ...int) *tensor {
	c := x.Tape().Begin("fft_ihfft", x)
	dim := x.Dim(dims[0])
	return c.End(fftR2C(resizedFFT(x, sizes, []int{dim}), dim).Conj())
}

// windowFLOPs is the number of operations per value of a window, whose Bessel functions are computed as series.
const windowFLOPs = 40

// Window records torch.kaiser_window(n, periodic) and similar functions. tensors is the number of temporary tensors of
// the window's size. A periodic window is computed with n + 1 elements.
func Window(t *tape, op string, n int64, periodic bool, tensors int) *tensor {
	c := t.Begin(op)
	if periodic {
		n++
	}
	w := c.Bind(t.Alloc(trace.F32, n))
	for range tensors {
		c.Bind(t.Alloc(trace.F32, n))
	}
	t.LaunchElementwise(w, windowFLOPs, w)
	if periodic {
		return c.End(w.Alias([]int64{n - 1}, []int64{1}, 0))
	}
	return c.End(w)
}

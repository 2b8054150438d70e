package aten

import "github.com/vprof/vprof/profiler/trace"

// transforms are Fourier transforms. Their sizes and dimensions may be None:
// all dimensions, or the last ones if there are sizes.
var transforms = family{
	"fft_fft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor": fourier1((*tensor).FFT), "fft_ifft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor": fourier1((*tensor).FFT),
	"fft_rfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor": fourier1((*tensor).RealFFT), "fft_irfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor": fourier1((*tensor).InverseRealFFT),
	"fft_fft2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) -> Tensor": fourier((*tensor).FFT), "fft_ifft2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) -> Tensor": fourier((*tensor).FFT),
	"fft_rfft2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) -> Tensor": fourier((*tensor).RealFFT), "fft_irfft2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) -> Tensor": fourier((*tensor).InverseRealFFT),
	"fft_fftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor": fourier((*tensor).FFT), "fft_ifftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor": fourier((*tensor).FFT),
	"fft_rfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor": fourier((*tensor).RealFFT), "fft_irfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor": fourier((*tensor).InverseRealFFT),
	"fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor": one(shift), "fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor": one(shift),
	"fft_fftfreq(int n, float d=1.0, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                                                                                                       one(func(a *Args) *tensor { return a.filledN(a.Int("n")) }),
	"fft_rfftfreq(int n, float d=1.0, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor":                                                                                                                      one(func(a *Args) *tensor { return a.filledN(a.Int("n")/2 + 1) }),
	"stft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor":                                                  one(func(a *Args) *tensor { return stft(a, false) }),
	"stft.center(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True, str pad_mode='reflect', bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor": one(func(a *Args) *tensor { return stft(a, a.Bool("center")) }),
}

type transform = func(x *tensor, sizes []int64, dims ...int) *tensor

// fourier1 is the body of a transform along one dimension.
func fourier1(f transform) body {
	return one(func(a *Args) *tensor {
		if a.IsNone("n") {
			return f(a.first(0), nil, a.Dim("dim"))
		}
		return f(a.first(0), []int64{a.Int("n")}, a.Dim("dim"))
	})
}

// fourier is the body of a transform along several dimensions.
func fourier(f transform) body {
	return one(func(a *Args) *tensor {
		dims, sizes := a.Dims("dim"), a.Ints("s")
		if dims == nil {
			for i := range sizes {
				dims = append(dims, i-len(sizes))
			}
		}
		return f(a.first(0), sizes, dims...)
	})
}

func shift(a *Args) *tensor { return a.first(0).FFTShift(a.Dims("dim")...) }

func (a *Args) filledN(n int64) *tensor {
	return a.Tape().Filled("fft_fftfreq", a.DType("dtype", trace.F32), n)
}

// stft is the spectrogram of [batch, samples]; a missing hop is a quarter of the
// window.
func stft(a *Args, center bool) *tensor {
	n, hop := a.Int("n_fft"), a.Int("hop_length")
	if hop == 0 {
		hop = n / 4
	}
	if center {
		return a.first(0).STFTCentered(n, hop, a.Tensor("window"))
	}
	return a.first(0).STFTUncentered(n, hop, a.Tensor("window"))
}

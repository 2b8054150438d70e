package aten

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// linearAlgebra has matrix factorizations and the operators based on them. It leaves out cuSOLVER's workspaces, since
// their sizes are not published.
var linearAlgebra = operatorFamily{
	"linalg_solve_triangular":          withTrailingArgs(ops.SolveTriangular, "B", "left"),
	"triangular_solve":                 ops.TriangularSolve,
	"linalg_solve":                     ops.LinalgSolve,
	"linalg_solve_ex":                  ops.LinalgSolveEx,
	"linalg_inv inverse":               ops.LinalgInv,
	"linalg_inv_ex":                    ops.LinalgInvEx,
	"linalg_matrix_power matrix_power": ops.MatrixPower,
	"linalg_det det":                   ops.LinalgDet,
	"linalg_slogdet slogdet":           ops.LinalgSlogDet,
	"logdet":                           ops.LogDet,
	"linalg_cholesky cholesky":         ops.Cholesky,
	"linalg_cholesky_ex":               ops.CholeskyEx,
	"linalg_lu_factor":                 ops.LUFactor,
	"linalg_qr": func(a *Args) (q, r *tensor) {
		if a.Text("mode") == "r" {
			a.Tape().Raise(errors.New("vprof supports linalg_qr only with a mode that returns Q, not with mode='r'"))
		}
		return ops.LinalgQR(a.first(0), a.Text("mode") == "complete")
	},
	"qr":                  func(a *Args) (q, r *tensor) { return ops.LinalgQR(a.first(0), !a.Bool("some")) },
	"linalg_eigh":         ops.LinalgEigh,
	"linalg_eigvalsh":     ops.LinalgEigvalsh,
	"linalg_svdvals":      ops.LinalgSVDVals,
	"linalg_lu_factor_ex": ops.LUFactorEx,
	"linalg_svd":          ops.LinalgSVD,
	"svd": func(a *Args) (u, s, v *tensor) {
		u, s, vh := ops.LinalgSVD(a.first(0), !a.Bool("some"))
		return u, s, vh.Transpose(-2, -1)
	},
}

// transformOperators are Fourier transforms. Sizes and dimensions may be None: then all dimensions are transformed, or
// the last ones if there are sizes.
var transformOperators = operatorFamily{
	"fft_fft fft_ifft":                      fourier1(ops.FFT),
	"fft_rfft":                              fourier1(ops.RealFFT),
	"fft_irfft":                             fourier1(ops.InverseRealFFT),
	"fft_fft2 fft_ifft2 fft_fftn fft_ifftn": fourier(ops.FFT),
	"fft_rfft2":                             fourier(ops.RealFFT),
	"fft_irfft2 fft_irfftn":                 fourier(ops.InverseRealFFT),
	"fft_rfftn":                             fourier(ops.RealFFT),
	"fft_fftshift fft_ifftshift":            ops.FFTShift,
	"fft_fftfreq":                           func(a *Args) *tensor { return a.filledN(a.Int("n")) },
	"fft_rfftfreq":                          func(a *Args) *tensor { return a.filledN(a.Int("n")/2 + 1) },
	"stft":                                  func(a *Args) *tensor { return a.stft(a.stftArgs()) },
	"stft.center":                           centeredSTFT,
	"istft":                                 istft,
	"fft_hfft":                              fourier1(ops.HermitianFFT),
	"fft_ihfft":                             fourier1(ops.InverseHermitianFFT),
}

type transform = func(x *tensor, sizes []int64, dims ...int) *tensor

// fourier1 returns the body of a transform along one dimension.
func fourier1(f transform) func(a *Args) *tensor {
	return func(a *Args) *tensor {
		if a.IsNone("n") {
			return f(a.first(0), nil, a.Dim("dim"))
		}
		return f(a.first(0), []int64{a.Int("n")}, a.Dim("dim"))
	}
}

// fourier returns the body of a transform along several dimensions.
func fourier(f transform) func(a *Args) *tensor {
	return func(a *Args) *tensor {
		dims, sizes := a.Dims("dim"), a.Ints("s")
		if dims == nil {
			for i := range sizes {
				dims = append(dims, i-len(sizes))
			}
		}
		return f(a.first(0), sizes, dims...)
	}
}

func (a *Args) filledN(n int64) *tensor {
	return a.Tape().Filled("fft_fftfreq", a.DType("dtype", trace.F32), n)
}

// stftArgs returns the arguments that stft and istft share. hop_length is a quarter of a frame by default.
func (a *Args) stftArgs() ops.STFTArgs {
	n := a.Int("n_fft")
	s := ops.STFTArgs{
		FFT: n, Hop: n / 4, WindowLength: n, Window: a.Tensor("window"),
		OneSided: a.IsNone("onesided") || a.Bool("onesided"),
	}
	if hop := a.Int("hop_length"); hop != 0 {
		s.Hop = hop
	}
	if length := a.Int("win_length"); length != 0 {
		s.WindowLength = length
	}
	return s
}

// stft records torch.stft. The result has real and imaginary parts separately unless return_complex is set.
func (a *Args) stft(s ops.STFTArgs) *tensor {
	x := a.first(0)
	s.Complex = a.Bool("return_complex")
	if x.DType() == trace.C64 {
		s.OneSided, s.Complex = false, true
	}
	return ops.ShortTimeFFT(x, s)
}

func centeredSTFT(a *Args) *tensor {
	s := a.stftArgs()
	mode := a.Text("pad_mode")
	if mode != "constant" && mode != "reflect" {
		a.Tape().Raise(fmt.Errorf("vprof supports stft only with pad_mode 'reflect' and 'constant', not %q", mode))
	}
	s.Center, s.Constant = a.Bool("center"), mode == "constant"
	return a.stft(s)
}

func istft(a *Args) *tensor {
	if a.Bool("return_complex") {
		a.Tape().Raise(errors.New("vprof supports istft only for real signals"))
	}
	s := a.stftArgs()
	s.Center, s.Length = a.Bool("center"), a.Int("length")
	return ops.InverseSTFT(a.first(0), s)
}

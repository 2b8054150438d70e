package nn_test

import (
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
	"github.com/vprof/vprof/tools/opvectors"
)

func signalOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"stft":          spectrogram,
		"mel_log":       logMel,
		"rfft":          operator("fft_rfft.default"),
		"fft2_abs":      unary(func(x *tensor) *tensor { return at("abs.default", at("fft_rfft2.default", x)) }),
		"pad_const":     padded("constant", 1, 2, 1, 2),
		"pad_const_1d":  padded("constant", 5, 6),
		"pad_negative":  padded("constant", -1, -2),
		"pad_reflect1d": padded("reflect", 5, 6),
		"pad_reflect2d": padded("reflect", 1, 1, 2, 2),
		"pad_circular":  padded("circular", 1, 1, 2, 2),
		"pad_replicate": padded("replicate", 1, 1, 2, 2),
	}
}

// padded pads the last dimensions, the last first.
func padded(mode string, sizes ...int64) opvectors.Call {
	return operator("pad.default", ints("pad", sizes...), arg("mode", mode))
}

func spectrogram(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
	spec := f.Bind(ops.STFT(in[0], v.Int("n_fft", 0), v.Int("hop", 0), p["window"]))
	switch v.Int("power", 0) {
	case 1:
		spec = spec.Abs()
	case 2:
		spec = spec.Abs().Pow(2)
	}
	return []*tensor{spec}
}

// logMel returns a log-mel front end that makes its window anew in each call.
func logMel(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	window := ops.HannWindow(f.Tape(), 512)
	spec := ops.STFT(in[0], 512, 160, window)
	return []*tensor{spec.Abs().Pow(2).Transpose(1, 2).Matmul(in[1]).AddScalar().Log()}
}

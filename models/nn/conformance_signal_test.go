package nn_test

import (
	"github.com/vprof/vprof/profiler/aten/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

func signalOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"stft":          spectrogram,
		"mel_log":       logMel,
		"rfft":          unary((*tensor).RFFT),
		"fft2_abs":      unary(func(x *tensor) *tensor { return x.RFFT2().Abs() }),
		"pad_const":     sized((*tensor).Pad, 1, 2, 1, 2),
		"pad_const_1d":  sized((*tensor).Pad, 5, 6),
		"pad_negative":  sized((*tensor).Pad, -1, -2),
		"pad_reflect1d": sized((*tensor).PadReflect, 5, 6),
		"pad_reflect2d": sized((*tensor).PadReflect, 1, 1, 2, 2),
		"pad_circular":  sized((*tensor).PadCircular, 1, 1, 2, 2),
		"pad_replicate": sized((*tensor).PadReplicate, 1, 1, 2, 2),
	}
}

func spectrogram(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
	spec := f.Let(in[0].STFT(v.Int("n_fft", 0), v.Int("hop", 0), p["window"]))
	switch v.Int("power", 0) {
	case 1:
		spec = spec.Abs()
	case 2:
		spec = spec.Abs().Pow(2)
	}
	return []*tensor{spec}
}

// logMel is a log-mel front end that makes its window anew in each call.
func logMel(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	window := f.Tape().HannWindow(512)
	spec := in[0].STFT(512, 160, window)
	return []*tensor{spec.Abs().Pow(2).Transpose(1, 2).Matmul(in[1]).AddScalar().Log()}
}

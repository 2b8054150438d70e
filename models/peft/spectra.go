package peft

import (
	"fmt"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// Methods that train coefficients of a Fourier or wavelet transform of the weight's update.

// addSpectrum adds n_frequency trained coefficients, each for one element of the weight's spectrum.
func (s *AdaptedLayer) addSpectrum() error {
	n := s.count("n_frequency")
	s.addWeight(s.method.name+"_spectrum", n)
	if n > s.in*s.out {
		return fmt.Errorf("peft refuses n_frequency=%d, more than the %d elements of a layer's weight; use less",
			n, s.in*s.out)
	}
	return s.requirePositive("n_frequency")
}

func (s *AdaptedLayer) fourierFT(f *frame, x *tensor) *tensor {
	return s.forwardWithUpdate(f, x, func(g *frame) *tensor {
		h, t, spectrum := g.FunctionFrame(), g.Tape(), s.w("fourierft_spectrum")
		places := h.Bind(t.New("to_device", program.Temporaries, trace.I64, 2, spectrum.Numel()))
		dense := h.Bind(t.Zeros(trace.F32, s.out, s.in))
		dense.SetItem(spectrum.To(trace.F32), places.Select(0, 0), places.Select(0, 1))
		delta := h.Bind(ops.FFT(dense, nil, -2, -1).Real().MulScalar())
		return h.Return(delta.To(spectrum.DType()))
	})
}

// waveft records WaveFT's forward: the inverse wavelet transform (db1) of a matrix with some trained coefficients.
func (s *AdaptedLayer) waveft(f *frame, x *tensor) *tensor {
	return s.forwardWithUpdate(f, x, func(g *frame) *tensor {
		h, t, spectrum := g.FunctionFrame(), g.Tape(), s.w("waveft_spectrum")
		n := spectrum.Numel()
		indices := h.Bind(t.New("to_device", program.Temporaries, trace.I64, 2, n))
		rows, columns := s.out+s.out%2, s.in+s.in%2
		dense := h.Bind(t.Zeros(spectrum.DType(), rows, columns))
		if !s.enabled("use_idwt") {
			dense.SetItem(spectrum, indices.Select(0, 0), indices.Select(0, 1))
			return h.Return(dense.MulScalar())
		}
		padded := h.Bind(indices.Clone())
		mask := h.Bind(padded.Select(0, 0).GtScalar().And(padded.Select(0, 1).GtScalar()))
		kept := h.Bind(t.New("index", program.Temporaries, trace.I64, 2, n))
		values := h.Bind(h.Apply(maskedIndex, spectrum, mask)[0])
		dense.SetItem(values, kept.Select(0, 0), kept.Select(0, 1))
		a, b := rows/2, columns/2
		parts := make([]*tensor, 4)
		for i, r := range []int64{0, a} {
			for j, c := range []int64{0, b} {
				parts[2*i+j] = dense.Slice(0, r, r+a).Slice(1, c, c+b).Unsqueeze(0)
			}
		}
		stacked := trace.Stack(1, parts...)
		filter := h.Bind(t.Zeros(spectrum.DType(), 4, 1, 2, 2))
		whole := stacked.Conv(filter, nil, trace.ConvArgs{Stride: []int64{2, 2}, Transposed: true})
		return h.Return(whole.Squeeze(1).Squeeze(0).MulScalar())
	})
}

// maskedIndex is an autograd.Function that indexes a vector by a mask whose elements are all true.
var maskedIndex = &trace.Function{
	Name: "IndexBackward0",
	Forward: func(g *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
		ctx.SaveForBackward(in[1])
		places := g.Bind(g.Tape().New("nonzero", program.Temporaries, trace.I64, in[0].Numel()))
		return []*tensor{in[0].IndexSelect(0, places)}
	},
	Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
		places := g.Bind(g.Tape().New("nonzero", program.Temporaries, trace.I64, ctx.Saved(0).Numel()))
		grad := g.Bind(grads[0].ZerosLike())
		grad.IndexCopyInPlace(0, places, grads[0])
		return []*tensor{grad, nil}
	},
}

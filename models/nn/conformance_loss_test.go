package nn_test

import (
	"github.com/vprof/vprof/internal/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

func lossOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"cross_entropy":    binary((*tensor).CrossEntropy),
		"cross_entropy_2d": binary((*tensor).CrossEntropy),
		"nll": binary(func(x, target *tensor) *tensor {
			return x.LogSoftmax(1).NLLLoss(target)
		}),
		"aam_softmax": aamSoftmax,
	}
}

// aamSoftmax is the additive angular margin loss as speaker recognition code
// writes it.
func aamSoftmax(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	cosine := f.Let(in[0].Normalize(-1).Linear(in[1].Normalize(-1), nil))
	sine := f.Let(cosine.Mul(cosine).RSubScalar().Clamp().Sqrt())
	phi := f.Let(cosine.MulScalar().Sub(sine.MulScalar()))
	f.Set(&phi, trace.Where(cosine.AddScalar().GtScalar(), phi, cosine.AddScalar()))
	hot := f.Let(cosine.ZerosLike())
	return []*tensor{hot.Mul(phi).Add(hot.RSubScalar().Mul(cosine)).MulScalar().CrossEntropy(in[2])}
}

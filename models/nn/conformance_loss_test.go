package nn_test

import (
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
	"github.com/vprof/vprof/tools/opvectors"
)

func lossOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"cross_entropy":        operator("cross_entropy_loss.default"),
		"cross_entropy_2d":     operator("cross_entropy_loss.default"),
		"cross_entropy_soft":   operator("cross_entropy_loss.default"),
		"cross_entropy_ls":     operator("cross_entropy_loss.default", arg("label_smoothing", 0.1)),
		"cross_entropy_none":   operator("cross_entropy_loss.default", reduction(trace.ReduceNone)),
		"cross_entropy_weight": operator("cross_entropy_loss.default"),
		"nll": binary(func(x, target *tensor) *tensor {
			return at("nll_loss_nd.default", at("log_softmax.int", x, along(1)), target)
		}),
		"mse":            operator("mse_loss.default"),
		"mse_both":       operator("mse_loss.default"),
		"mse_sum":        operator("mse_loss.default", reduction(trace.ReduceSum)),
		"mse_none":       operator("mse_loss.default", reduction(trace.ReduceNone)),
		"l1":             operator("l1_loss.default"),
		"l1_both":        operator("l1_loss.default"),
		"smooth_l1":      operator("smooth_l1_loss.default"),
		"smooth_l1_both": operator("smooth_l1_loss.default"),
		"huber":          operator("huber_loss.default"),
		"bce":            operator("binary_cross_entropy.default"),
		"bce_logits":     operator("binary_cross_entropy_with_logits.default"),
		"bce_logits_ones": func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
			return operator("binary_cross_entropy_with_logits.default")(f, v, append(in, in[0].OnesLike()), p)
		},
		"kl_div":     batchMean(operator("kl_div.default", reduction(trace.ReduceSum))),
		"kl_div_log": batchMean(operator("kl_div.default", reduction(trace.ReduceSum), arg("log_target", true))),
		"kd":         binary(distillation),
		"hinge": unary(func(x *tensor) *tensor {
			return at("mean.default", at("relu.default", at("rsub.Scalar", x, number(1))))
		}),
		"gan_nonsat": unary(func(x *tensor) *tensor {
			return at("mean.default", at("softplus.default", at("neg.default", x)))
		}),
		"triplet":           operator("triplet_margin_loss.default"),
		"cosine_embedding":  operator("cosine_embedding_loss.default"),
		"cosine_similarity": operator("cosine_similarity.default", along(-1)),
		"ctc_loss": binary(func(x, targets *tensor) *tensor {
			return ops.CTCLoss(x.LogSoftmax(-1), targets, ops.CTCLossArgs{})
		}),
		"cdist":       operator("cdist.default"),
		"cdist_mm":    operator("cdist.default"),
		"vicreg_cov":  vicregCovariance,
		"vq_distance": vqDistance,
		"aam_softmax": aamSoftmax,
	}
}

// reduction returns an argument as torch.nn._reduction numbers it.
func reduction(r trace.Reduction) aten.Arg {
	return arg("reduction", map[trace.Reduction]int64{trace.ReduceNone: 0, trace.ReduceMean: 1, trace.ReduceSum: 2}[r])
}

// batchMean returns what torch.nn.functional.kl_div does for "batchmean": it divides the sum.
func batchMean(sum opvectors.Call) opvectors.Call {
	return func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
		return []*tensor{sum(f, v, in, p)[0].DivScalar()}
	}
}

// distillation returns the loss of a student x against a teacher y.
func distillation(x, y *tensor) *tensor {
	student := x.DivScalar().LogSoftmax(-1)
	return klDivBatchMean(student, y.DivScalar().Softmax(-1)).MulScalar()
}

// vicregCovariance returns the covariance term of VICReg.
func vicregCovariance(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	x := f.Bind(in[0].Sub(in[0].Mean(false, 0)))
	return []*tensor{x.T().Matmul(x).DivScalar().Pow(2).Sum(false)}
}

// vqDistance finds the nearest code of a codebook.
func vqDistance(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	z, e := in[0], in[1]
	d := z.Pow(2).Sum(true, 1).Sub(z.MulScalar().Matmul(e.T()))
	return []*tensor{d.Add(e.Pow(2).Sum(false, 1)).ArgMin(false, 1)}
}

// aamSoftmax returns the additive angular margin loss as speaker recognition code writes it.
func aamSoftmax(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	cosine := f.Bind(in[0].Normalize(-1).Linear(in[1].Normalize(-1), nil))
	sine := f.Bind(cosine.Mul(cosine).RSubScalar().Clamp().Sqrt())
	phi := f.Bind(cosine.MulScalar().Sub(sine.MulScalar()))
	f.Set(&phi, trace.Where(cosine.AddScalar().GtScalar(), phi, cosine.AddScalar()))
	hot := f.Bind(cosine.ZerosLike())
	return []*tensor{hot.Mul(phi).Add(hot.RSubScalar().Mul(cosine)).MulScalar().CrossEntropy(in[2])}
}

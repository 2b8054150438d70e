package aten

import "github.com/vprof/vprof/profiler/trace"

// losses are the operators of the losses in torch.nn.functional.
var losses = family{
	"soft_margin_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor":       loss((*tensor).SoftMarginLoss),
	"multilabel_margin_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor": loss((*tensor).MultiLabelMarginLoss),
	"multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, int " +
		"reduction=Mean) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).MultiMarginLoss(a.Tensor("target"), a.Tensor("weight"), a.reduction())
	}),
	"hinge_embedding_loss(Tensor self, Tensor target, float margin=1.0, int reduction=Mean) -> Tensor": loss((*tensor).HingeEmbeddingLoss),
	"poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).PoissonNLLLoss(a.Tensor("target"), a.Bool("log_input"), a.Bool("full"), a.reduction())
		}),
	"ctc_loss.Tensor(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, " +
		"int reduction=Mean, bool zero_infinity=False) -> Tensor": one(ctc),
	"ctc_loss.IntList(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, int " +
		"reduction=Mean, bool zero_infinity=False) -> Tensor": one(ctc),
	"cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt " +
		"ignore_index=-100, float label_smoothing=0.0) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).CrossEntropyWith(a.Tensor("target"), trace.CrossEntropyArgs{
			Weight: a.Tensor("weight"), LabelSmoothing: a.Float("label_smoothing"), Reduction: a.reduction(),
		})
	}),
	"nll_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt ignore_index=-100) -> Tensor": one(nll),
	"nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt ignore_index=-100) -> " +
		"Tensor": one(nll),
	"nll_loss2d(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt ignore_index=-100) -> " +
		"Tensor": one(nll),
	"mse_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor":                       loss((*tensor).MSELoss),
	"l1_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor":                        loss((*tensor).L1Loss),
	"smooth_l1_loss(Tensor self, Tensor target, int reduction=Mean, float beta=1.0) -> Tensor": loss((*tensor).SmoothL1Loss),
	"huber_loss(Tensor self, Tensor target, int reduction=Mean, float delta=1.0) -> Tensor":    loss((*tensor).HuberLoss),
	"binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).BCELoss(a.Tensor("target"), a.reduction())
		}),
	"binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int " +
		"reduction=Mean) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).BCEWithLogits(a.Tensor("target"), a.Tensor("pos_weight"), a.reduction())
	}),
	"margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=Mean) -> " +
		"Tensor": one(func(a *Args) *tensor {
		return trace.MarginRankingLoss(a.Tensor("input1"), a.Tensor("input2"), a.Tensor("target"), a.reduction())
	}),
	"kl_div(Tensor self, Tensor target, int reduction=Mean, *, bool log_target=False) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).KLDiv(a.Tensor("target"), a.Bool("log_target"), a.reduction())
		}),
	"cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=Mean) -> " +
		"Tensor": one(func(a *Args) *tensor {
		return a.first(0).CosineEmbeddingLoss(a.Tensor("input2"), a.Tensor("target"), a.reduction())
	}),
	"triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, float " +
		"eps=1e-06, bool swap=False, int reduction=Mean) -> Tensor": one(func(a *Args) *tensor {
		return trace.TripletMarginLoss(a.Tensor("anchor"), a.Tensor("positive"), a.Tensor("negative"), a.reduction())
	}),
}

// reduction is the reduction argument: at::Reduction counts none, mean, sum.
func (a *Args) reduction() trace.Reduction {
	return [...]trace.Reduction{trace.ReduceNone, trace.ReduceMean, trace.ReduceSum}[a.Int("reduction")]
}

func loss(f func(x, y *tensor, r trace.Reduction) *tensor) body {
	return one(func(a *Args) *tensor { return f(a.first(0), a.Tensor("target"), a.reduction()) })
}

func nll(a *Args) *tensor {
	return a.first(0).NLLLossWith(a.Tensor("target"), a.Tensor("weight"), a.reduction())
}

func ctc(a *Args) *tensor {
	return a.Tensor("log_probs").CTCLoss(a.Tensor("targets"),
		trace.CTCLossArgs{Reduction: a.reduction(), ZeroInfinity: a.Bool("zero_infinity")})
}

package aten

import "github.com/vprof/vprof/profiler/trace"

// losses are the operators of the losses in torch.nn.functional.
var losses = family{
	"ctc_loss.Tensor ctc_loss.IntList": ctc,
	"cross_entropy_loss": func(a *Args) *tensor {
		return a.first(0).CrossEntropyWith(a.Tensor("target"), trace.CrossEntropyArgs{
			Weight: a.Tensor("weight"), LabelSmoothing: a.Float("label_smoothing"), Reduction: a.reduction(),
		})
	},
	"soft_margin_loss":                 (*tensor).SoftMarginLoss,
	"multilabel_margin_loss":           (*tensor).MultiLabelMarginLoss,
	"multi_margin_loss":                with((*tensor).MultiMarginLoss, "target", "weight"),
	"hinge_embedding_loss":             (*tensor).HingeEmbeddingLoss,
	"poisson_nll_loss":                 (*tensor).PoissonNLLLoss,
	"nll_loss nll_loss_nd nll_loss2d":  (*tensor).NLLLossWith,
	"mse_loss":                         (*tensor).MSELoss,
	"l1_loss":                          (*tensor).L1Loss,
	"smooth_l1_loss":                   (*tensor).SmoothL1Loss,
	"huber_loss":                       (*tensor).HuberLoss,
	"binary_cross_entropy":             (*tensor).BCELoss,
	"binary_cross_entropy_with_logits": with((*tensor).BCEWithLogits, "target", "pos_weight"),
	"margin_ranking_loss":              trace.MarginRankingLoss,
	"kl_div":                           with((*tensor).KLDiv, "target", "log_target"),
	"cosine_embedding_loss":            (*tensor).CosineEmbeddingLoss,
	"triplet_margin_loss":              trace.TripletMarginLoss,
}

// reduction is the reduction argument: at::Reduction counts none, mean, sum.
func (a *Args) reduction() trace.Reduction {
	return [...]trace.Reduction{trace.ReduceNone, trace.ReduceMean, trace.ReduceSum}[a.Int("reduction")]
}

func ctc(a *Args) *tensor {
	return a.Tensor("log_probs").CTCLoss(a.Tensor("targets"),
		trace.CTCLossArgs{Reduction: a.reduction(), ZeroInfinity: a.Bool("zero_infinity")})
}

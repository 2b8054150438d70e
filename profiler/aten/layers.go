package aten

import (
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// normOperators are the normalization operators.
var normOperators = operatorFamily{
	"batch_norm": (*tensor).BatchNorm,
	"layer_norm": func(a *Args) *tensor {
		return a.first(0).LayerNorm(len(a.Ints("normalized_shape")), a.Tensor("weight"), a.Tensor("bias"))
	},
	"native_layer_norm": func(a *Args) []*tensor {
		return a.first(0).NativeLayerNorm(len(a.Ints("normalized_shape")), a.Tensor("weight"), a.Tensor("bias"))
	},
	"rms_norm": func(a *Args) *tensor {
		return a.first(0).RMSNorm(len(a.Ints("normalized_shape")), a.Tensor("weight"))
	},
	"group_norm":        (*tensor).GroupNorm,
	"instance_norm":     (*tensor).InstanceNorm,
	"_weight_norm":      trace.WeightNorm,
	"native_group_norm": withTrailingArgs((*tensor).NativeGroupNorm, "group", "weight", "bias"),
}

// batchNorm returns the arguments of a norm with optional running statistics.
func (a *Args) batchNorm() trace.BatchNormState {
	training := "training"
	if a.op.index(training) < 0 {
		training = "use_input_stats"
	}
	return trace.BatchNormState{
		Weight: a.Tensor("weight"), Bias: a.Tensor("bias"), Mean: a.Tensor("running_mean"),
		Var: a.Tensor("running_var"), Training: a.Bool(training),
	}
}

// activationOperators are the nonlinearities of torch.nn.functional, and dropout.
var activationOperators = operatorFamily{
	"glu":             (*tensor).GLU,
	"prelu":           (*tensor).PReLU,
	"threshold_":      (*tensor).ReLUInPlace,
	"rrelu":           withTrailingArgs((*tensor).RReLU, "training"),
	"_softmax":        (*tensor).Softmax,
	"_log_softmax":    (*tensor).LogSoftmax,
	"native_dropout":  (*tensor).NativeDropout,
	"softmax.int":     func(a *Args) *tensor { return softmax(a, (*tensor).Softmax, (*tensor).SoftmaxTo) },
	"log_softmax.int": func(a *Args) *tensor { return softmax(a, (*tensor).LogSoftmax, (*tensor).LogSoftmaxTo) },
	"dropout":         (*tensor).Dropout,
	"dropout_ feature_dropout feature_dropout_ alpha_dropout feature_alpha_dropout": func(a *Args) *tensor {
		return a.first(0).NoisyDropout(a.op.base(), a.Float("p"), a.Bool("train"))
	},
}

func softmax(a *Args, plain func(*tensor, int) *tensor, to func(*tensor, int, trace.DType) *tensor) *tensor {
	x := a.Tensor("self")
	if a.IsNone("dtype") {
		return plain(x, a.Dim("dim"))
	}
	return to(x, a.Dim("dim"), a.DType("dtype", x.DType()))
}

// lossOperators are the operators of the losses in torch.nn.functional.
var lossOperators = operatorFamily{
	"ctc_loss.Tensor ctc_loss.IntList": ctc,
	"cross_entropy_loss": func(a *Args) *tensor {
		return a.first(0).CrossEntropyWith(a.Tensor("target"), trace.CrossEntropyArgs{
			Weight: a.Tensor("weight"), LabelSmoothing: a.Float("label_smoothing"), Reduction: a.reduction(),
		})
	},
	"soft_margin_loss":                (*tensor).SoftMarginLoss,
	"multilabel_margin_loss":          (*tensor).MultiLabelMarginLoss,
	"multi_margin_loss":               withTrailingArgs((*tensor).MultiMarginLoss, "target", "weight"),
	"hinge_embedding_loss":            (*tensor).HingeEmbeddingLoss,
	"poisson_nll_loss":                (*tensor).PoissonNLLLoss,
	"nll_loss nll_loss_nd nll_loss2d": (*tensor).NLLLoss,
	"l1_loss":                         (*tensor).L1Loss,
	"mse_loss smooth_l1_loss huber_loss": func(a *Args) *tensor {
		return a.first(0).ElementLoss(a.op.base(), a.Tensor("target"), a.reduction())
	},
	"binary_cross_entropy":             (*tensor).BCELoss,
	"binary_cross_entropy_with_logits": withTrailingArgs((*tensor).BCEWithLogits, "target", "pos_weight"),
	"margin_ranking_loss":              trace.MarginRankingLoss,
	"kl_div":                           withTrailingArgs((*tensor).KLDiv, "target", "log_target"),
	"cosine_embedding_loss":            (*tensor).CosineEmbeddingLoss,
	"triplet_margin_loss":              trace.TripletMarginLoss,
}

// reduction returns the reduction argument: at::Reduction counts none, mean, sum.
func (a *Args) reduction() trace.Reduction {
	return [...]trace.Reduction{trace.ReduceNone, trace.ReduceMean, trace.ReduceSum}[a.Int("reduction")]
}

func ctc(a *Args) *tensor {
	return ops.CTCLoss(a.Tensor("log_probs"), a.Tensor("targets"),
		ops.CTCLossArgs{Reduction: a.reduction(), ZeroInfinity: a.Bool("zero_infinity")})
}

// recurrentOperators are the RNN operators. cuDNN runs all layers of a stack at once.
var recurrentOperators = operatorFamily{
	"lstm.input":                    lstm,
	"gru.input":                     rnn(ops.GRU),
	"rnn_tanh.input rnn_relu.input": rnn(ops.SimpleRNN),
	"lstm_cell": func(a *Args) (*tensor, *tensor) {
		states := a.Tensors("hx")
		return ops.LSTMCell(a.first(0), states[0], states[1], a.cellWeights())
	},
	"rnn_tanh_cell": func(a *Args) *tensor { return ops.RNNCell(a.first(0), a.Tensor("hx"), a.cellWeights(), false) },
	"rnn_relu_cell": func(a *Args) *tensor { return ops.RNNCell(a.first(0), a.Tensor("hx"), a.cellWeights(), true) },
	"gru_cell":      ops.GRUCell,
}

func (a *Args) cellWeights() ops.CellWeights {
	return ops.CellWeights{
		InWeight: a.Tensor("w_ih"), HiddenWeight: a.Tensor("w_hh"), InBias: a.Tensor("b_ih"),
		HiddenBias: a.Tensor("b_hh"),
	}
}

func lstm(a *Args) []Value {
	states := a.Tensors("hx")
	y, h, c := ops.RNN(a.first(0), states[0], states[1], a.rnn(ops.LSTM, states[0]))
	return []Value{y, h, c}
}

func rnn(mode ops.RNNMode) body {
	return func(a *Args) []Value {
		state := a.Tensor("hx")
		y, h, _ := ops.RNN(a.first(0), state, nil, a.rnn(mode, state))
		return []Value{y, h}
	}
}

// rnn returns the arguments of a stack of RNN layers with the given initial state.
func (a *Args) rnn(mode ops.RNNMode, state *tensor) ops.RNNArgs {
	return ops.RNNArgs{
		Mode: mode, Hidden: state.Size(-1), Layers: a.Int("num_layers"),
		Bidirectional: a.Bool("bidirectional"), BatchFirst: a.Bool("batch_first"), Training: a.Bool("train"),
		Dropout: a.Float("dropout"), Weights: a.Tensors("params"),
	}
}

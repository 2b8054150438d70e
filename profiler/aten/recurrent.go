package aten

import "github.com/vprof/vprof/profiler/trace"

// recurrent layers run in cuDNN, all of them of a stack at once.
var recurrent = family{
	"lstm.input":                    lstm,
	"gru.input":                     rnn(trace.GRU),
	"rnn_tanh.input rnn_relu.input": rnn(trace.SimpleRNN),
	"lstm_cell": func(a *Args) (*tensor, *tensor) {
		states := a.Tensors("hx")
		return a.first(0).LSTMCell(states[0], states[1], a.cellWeights())
	},
	"rnn_tanh_cell": func(a *Args) *tensor { return a.first(0).RNNCell(a.Tensor("hx"), a.cellWeights(), false) },
	"rnn_relu_cell": func(a *Args) *tensor { return a.first(0).RNNCell(a.Tensor("hx"), a.cellWeights(), true) },
	"gru_cell":      (*tensor).GRUCell,
}

// cellWeights are the parameters of a cell.
func (a *Args) cellWeights() trace.CellWeights {
	return trace.CellWeights{
		InWeight: a.Tensor("w_ih"), HiddenWeight: a.Tensor("w_hh"), InBias: a.Tensor("b_ih"),
		HiddenBias: a.Tensor("b_hh"),
	}
}

func lstm(a *Args) []Value {
	states := a.Tensors("hx")
	y, h, c := a.first(0).RNN(states[0], states[1], a.rnn(trace.LSTM, states[0]))
	return []Value{y, h, c}
}

func rnn(mode trace.RNNMode) body {
	return func(a *Args) []Value {
		state := a.Tensor("hx")
		y, h, _ := a.first(0).RNN(state, nil, a.rnn(mode, state))
		return []Value{y, h}
	}
}

// rnn are the arguments of a stack of layers that begins with the given state.
func (a *Args) rnn(mode trace.RNNMode, state *tensor) trace.RNNArgs {
	return trace.RNNArgs{
		Mode: mode, Hidden: state.Size(-1), Layers: a.Int("num_layers"),
		Bidirectional: a.Bool("bidirectional"), BatchFirst: a.Bool("batch_first"), Training: a.Bool("train"),
		Dropout: a.Float("dropout"), Weights: a.Tensors("params"),
	}
}

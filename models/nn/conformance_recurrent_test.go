package nn_test

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// recurrentOperators returns recurrent layers and cells; the first of their results is kept.
func recurrentOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"lstm": recurrent(nn.NewLSTM),
		"gru":  recurrent(nn.NewGRU),
		"rnn":  recurrent(nn.NewRNN),
		"lstm_cell": func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
			l := nn.NewLSTMCell(80, 65)
			load(l, v, p)
			hy, cy := l.Step(f, in[0], nil, nil)
			f.Bind(hy)
			f.Discard(cy)
			return []*tensor{hy}
		},
		"gru_cell": func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
			l := nn.NewGRUCell(80, 65)
			load(l, v, p)
			return []*tensor{l.Step(f, in[0], nil)}
		},
	}
}

// recurrent calls a recurrent layer.
func recurrent(make func(inputs, hidden int64, o nn.RNNOptions) *nn.RNN) opvectors.Call {
	return func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
		l := make(v.Int("in", 0), v.Int("hidden", 0), nn.RNNOptions{
			Layers: v.Int("layers", 1), Bidirectional: v.Bool("bidirectional", false),
			BatchFirst: v.Bool("batch_first", false),
		})
		load(l, v, p)
		y, hy, cy := l.Run(f, in[0], nil, nil)
		f.Bind(y)
		if cy != nil {
			f.Discard(cy)
		}
		f.Discard(hy)
		return []*tensor{y}
	}
}

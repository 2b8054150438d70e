package nn_test

import (
	"github.com/vprof/vprof/internal/opvectors"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// recurrentOperators are recurrent layers and cells; of their results the
// first is kept.
func recurrentOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"lstm_cell": func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
			l := nn.NewLSTMCell(80, 65)
			load(l, v, p)
			hy, cy := l.Step(f, in[0], nil, nil)
			f.Let(hy)
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

package nn

import (
	"fmt"

	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// RNN is torch.nn.LSTM, torch.nn.GRU or torch.nn.RNN.
type RNN struct {
	Module
	weights []*Parameter
	names   []string
	args    ops.RNNArgs
}

// RNNOptions are the arguments of recurrent layers beside sizes.
type RNNOptions struct {
	Layers        int64 // one if zero
	Bidirectional bool
	BatchFirst    bool
}

// NewLSTM returns torch.nn.LSTM with biases.
func NewLSTM(inputs, hidden int64, o RNNOptions) *RNN {
	return newRNN(ops.LSTM, 4, inputs, hidden, o)
}

// NewGRU returns torch.nn.GRU with biases.
func NewGRU(inputs, hidden int64, o RNNOptions) *RNN { return newRNN(ops.GRU, 3, inputs, hidden, o) }

// NewRNN returns torch.nn.RNN with biases.
func NewRNN(inputs, hidden int64, o RNNOptions) *RNN {
	return newRNN(ops.SimpleRNN, 1, inputs, hidden, o)
}

func newRNN(mode ops.RNNMode, gates, inputs, hidden int64, o RNNOptions) *RNN {
	r := &RNN{args: ops.RNNArgs{
		Mode: mode, Hidden: hidden, Layers: max(o.Layers, 1), Bidirectional: o.Bidirectional, BatchFirst: o.BatchFirst,
	}}
	suffixes := []string{""}
	if o.Bidirectional {
		suffixes = append(suffixes, "_reverse")
	}
	for layer := range r.args.Layers {
		for _, suffix := range suffixes {
			add := func(name string, dims ...int64) {
				r.names = append(r.names, fmt.Sprintf("%s_l%d%s", name, layer, suffix))
				r.weights = append(r.weights, NewParameter(dims...))
			}
			add("weight_ih", gates*hidden, inputs)
			add("weight_hh", gates*hidden, hidden)
			add("bias_ih", gates*hidden)
			add("bias_hh", gates*hidden)
		}
		inputs = int64(len(suffixes)) * hidden
	}
	return r
}

// ownParameters names the parameters, of which there are as many as layers ask for.
func (r *RNN) ownParameters() ([]string, []*Parameter) { return r.names, r.weights }

// afterMove records flatten_parameters: cuDNN needs all weights in one buffer.
func (r *RNN) afterMove(t *trace.Tape) {
	t.OnOtherRank(r.weights[0].IsElsewhere, func() { ops.FlattenRNNWeights(t, r.tensors()) })
}

func (r *RNN) tensors() []*trace.Tensor {
	out := make([]*trace.Tensor, len(r.weights))
	for i, w := range r.weights {
		out[i] = w.TensorOrNil()
	}
	return out
}

// Run calls the layer on x from the states h and, for an LSTM, c; nil starts with zeros. cy is nil but for an LSTM.
// What is not used of the results must be given to [trace.Frame.Discard], the last first.
func (r *RNN) Run(f *trace.Frame, x, h, c *trace.Tensor) (y, hy, cy *trace.Tensor) {
	g := f.ModuleFrame(r, x, h, c)
	batch := x.Size(1)
	if r.args.BatchFirst {
		batch = x.Size(0)
	}
	states := r.args.Layers
	if r.args.Bidirectional {
		states *= 2
	}
	zeros := func() *trace.Tensor { return g.Bind(x.Tape().Zeros(x.DType(), states, batch, r.args.Hidden)) }
	if h == nil {
		h = zeros()
		if r.args.Mode == ops.LSTM {
			c = zeros()
		}
	}
	a := r.args
	a.Training, a.Weights = r.Training(), r.tensors()
	y, hy, cy = ops.RNN(x, h, c, a)
	g.End(y, hy, cy)
	return y, hy, cy
}

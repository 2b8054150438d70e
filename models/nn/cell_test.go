package nn

import (
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// LSTMCell is torch.nn.LSTMCell.
type LSTMCell struct {
	Module
	WeightIh, WeightHh, BiasIh, BiasHh *Parameter
}

// NewLSTMCell returns an LSTM cell with biases.
func NewLSTMCell(inputs, hidden int64) *LSTMCell {
	return &LSTMCell{
		WeightIh: NewParameter(4*hidden, inputs), WeightHh: NewParameter(4*hidden, hidden),
		BiasIh: NewParameter(4 * hidden), BiasHh: NewParameter(4 * hidden),
	}
}

// Step runs the cell on x, [batch, inputs], with the states h and c; both nil start with zeros.
func (l *LSTMCell) Step(f *trace.Frame, x, h, c *trace.Tensor) (hy, cy *trace.Tensor) {
	g := f.ModuleFrame(l, x, h, c)
	if h == nil {
		h = g.Bind(x.Tape().Zeros(x.DType(), x.Size(0), l.WeightHh.Dims[1]))
		c = h
	}
	hy, cy = ops.LSTMCell(x, h, c, ops.CellWeights{
		InWeight: l.WeightIh.TensorOrNil(), HiddenWeight: l.WeightHh.TensorOrNil(),
		InBias: l.BiasIh.TensorOrNil(), HiddenBias: l.BiasHh.TensorOrNil(),
	})
	return g.ReturnPair(hy, cy)
}

// GRUCell is torch.nn.GRUCell.
type GRUCell struct {
	Module
	WeightIh, WeightHh, BiasIh, BiasHh *Parameter
}

// NewGRUCell returns a GRU cell with biases.
func NewGRUCell(inputs, hidden int64) *GRUCell {
	return &GRUCell{
		WeightIh: NewParameter(3*hidden, inputs), WeightHh: NewParameter(3*hidden, hidden),
		BiasIh: NewParameter(3 * hidden), BiasHh: NewParameter(3 * hidden),
	}
}

// Step runs the cell on x, [batch, inputs], with the state h; nil starts with zeros.
func (l *GRUCell) Step(f *trace.Frame, x, h *trace.Tensor) *trace.Tensor {
	g := f.ModuleFrame(l, x, h)
	if h == nil {
		h = g.Bind(x.Tape().Zeros(x.DType(), x.Size(0), l.WeightHh.Dims[1]))
	}
	y := ops.GRUCell(x, h, ops.CellWeights{
		InWeight: l.WeightIh.TensorOrNil(), HiddenWeight: l.WeightHh.TensorOrNil(), InBias: l.BiasIh.TensorOrNil(),
		HiddenBias: l.BiasHh.TensorOrNil(),
	})
	return g.Return(y)
}

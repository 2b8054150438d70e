package ops

import (
	"github.com/vprof/vprof/profiler/program"
)

// CellWeights are the weights of one recurrent layer in one direction.
type CellWeights struct {
	InWeight, HiddenWeight *tensor // weight_ih, weight_hh
	InBias, HiddenBias     *tensor // bias_ih, bias_hh
}

// LSTMCell records torch.lstm_cell: x is [batch, inputs], h and c [batch, hidden].
func LSTMCell(x *tensor, h, c *tensor, w CellWeights) (hy, cy *tensor) {
	call := x.Tape().Begin("lstm_cell", x, h, c)
	call.CastToLower(&x, &c, &h, &w.InWeight, &w.HiddenWeight, &w.InBias, &w.HiddenBias)
	return call.EndPair(lstmCell(x, h, c, w))
}

func lstmCell(x *tensor, h, c *tensor, w CellWeights) (hy, cy *tensor) {
	call := x.Tape().Begin("lstm_cell", x, h, c)
	in := call.Bind(x.MatmulUncast(w.InWeight.T()))
	hidden := call.Bind(h.MatmulUncast(w.HiddenWeight.T()))
	return call.EndPair(fusedLSTMCell(in, hidden, c, w))
}

// fusedLSTMCell records _thnn_fused_lstm_cell. in and hidden are the weights' products with x and h.
func fusedLSTMCell(in *tensor, hidden, c *tensor, w CellWeights) (hy, cy *tensor) {
	t := in.Tape()
	call := t.Begin("_thnn_fused_lstm_cell", in, hidden, c)
	gates := call.Bind(in.AllocLike(in.DType()))
	hy, cy = call.Bind(c.AllocLike(c.DType())), call.Bind(c.AllocLike(c.DType()))
	t.Launch(program.Elementwise, 16*in.Numel(), []*tensor{gates, hy, cy},
		[]*tensor{in, hidden, c, w.InBias, w.HiddenBias})
	biased := w.InBias != nil
	t.SetGradFn(outputs{hy, cy}, "ThnnFusedLstmCellBackward0", inputs{in, hidden, c, w.InBias, w.HiddenBias},
		saves{c, w.HiddenBias, hidden, w.InBias, in, cy, gates}, func(b *backward) {
			gates, c := b.Saved(6), b.Saved(0)
			dgates := gates.AllocLike(gates.DType())
			dc := c.AllocLike(c.DType())
			b.Tape().Launch(program.Elementwise, 24*gates.Numel(), []*tensor{dgates, dc},
				[]*tensor{gates, c, b.Saved(5), b.Grads[0], b.Grads[1]})
			if !biased {
				b.SetAll(dgates.Retain(), dgates.Retain(), dc.Retain(), nil, nil)
				return
			}
			bias := dgates.SumUncast("sum_dim_IntList", []int{0}, false)
			b.SetAll(dgates.Retain(), dgates.Retain(), dc.Retain(), bias.Retain(), bias.Retain())
		})
	return call.EndPair(hy, cy)
}

// GRUCell records torch.gru_cell: x is [batch, inputs], h [batch, hidden].
func GRUCell(x *tensor, h *tensor, w CellWeights) *tensor {
	c := x.Tape().Begin("gru_cell", x, h)
	c.CastToLower(&x, &h, &w.InWeight, &w.HiddenWeight, &w.InBias, &w.HiddenBias)
	return c.End(gruCell(x, h, w))
}

func gruCell(x *tensor, h *tensor, w CellWeights) *tensor {
	c := x.Tape().Begin("gru_cell", x, h)
	in := c.Bind(x.MatmulUncast(w.InWeight.T()))
	hidden := c.Bind(h.MatmulUncast(w.HiddenWeight.T()))
	return c.End(fusedGRUCell(in, hidden, h, w))
}

// fusedGRUCell records _thnn_fused_gru_cell, which saves five values per hidden unit.
func fusedGRUCell(in *tensor, hidden, h *tensor, w CellWeights) *tensor {
	c := in.Tape().Begin("_thnn_fused_gru_cell", in, hidden, h)
	batch, size := h.Shape()[0], h.Shape()[1]
	gates := c.Bind(c.Tape().Alloc(h.DType(), batch, 5*size))
	hy := c.Bind(h.AllocLike(h.DType()))
	c.Tape().Launch(program.Elementwise, 16*in.Numel(), []*tensor{gates, hy},
		[]*tensor{in, hidden, h, w.InBias, w.HiddenBias})
	biased := w.InBias != nil
	return c.End(hy.SetGradFn("ThnnFusedGruCellBackward0", inputs{in, hidden, h, w.InBias, w.HiddenBias},
		saves{w.HiddenBias, hidden, h, w.InBias, in, gates},
		func(b *backward) {
			gates := b.Saved(5)
			din, dhidden := b.Tape().Alloc(gates.DType(), batch, 3*size), b.Tape().Alloc(gates.DType(), batch, 3*size)
			dh := b.Grad.AllocLike(b.Grad.DType())
			b.Tape().Launch(program.Elementwise, 24*din.Numel(), []*tensor{din, dhidden, dh}, []*tensor{b.Grad, gates})
			if !biased {
				b.SetAll(din.Retain(), dhidden.Retain(), dh.Retain(), nil, nil)
				return
			}
			inBias := din.SumUncast("sum_dim_IntList", []int{0}, false)
			hiddenBias := dhidden.SumUncast("sum_dim_IntList", []int{0}, false)
			b.SetAll(din.Retain(), dhidden.Retain(), dh.Retain(), inBias.Retain(), hiddenBias.Retain())
		}))
}

// RNNCell records torch.rnn_tanh_cell or, if rectified, torch.rnn_relu_cell. x is [batch, inputs], h [batch, hidden].
func RNNCell(x *tensor, h *tensor, w CellWeights, rectified bool) *tensor {
	c := x.Tape().Begin("rnn_cell", x, h)
	c.CastToLower(&x, &h, &w.InWeight, &w.HiddenWeight, &w.InBias, &w.HiddenBias)
	return c.End(rnnCell(x, h, w, rectified))
}

func rnnCell(x *tensor, h *tensor, w CellWeights, rectified bool) *tensor {
	c := x.Tape().Begin("rnn_cell", x, h)
	hidden := h.LinearUncast(w.HiddenWeight, w.HiddenBias)
	sum := hidden.AddInPlace(x.LinearUncast(w.InWeight, w.InBias))
	if rectified {
		return c.End(sum.ReLU())
	}
	return c.End(sum.Tanh())
}

package trace

import "github.com/vprof/vprof/profiler/program"

// CellWeights are the parameters of one recurrent layer in one direction.
type CellWeights struct {
	InWeight, HiddenWeight *Tensor // weight_ih, weight_hh
	InBias, HiddenBias     *Tensor // bias_ih, bias_hh
}

// LSTMCell records torch.lstm_cell: x is [batch, inputs], h and c [batch, hidden].
func (x *Tensor) LSTMCell(h, c *Tensor, w CellWeights) (hy, cy *Tensor) {
	call := x.tape.begin("lstm_cell", x, h, c)
	call.lower(&x, &c, &h, &w.InWeight, &w.HiddenWeight, &w.InBias, &w.HiddenBias)
	return call.endPair(x.lstmCell(h, c, w))
}

func (x *Tensor) lstmCell(h, c *Tensor, w CellWeights) (hy, cy *Tensor) {
	call := x.tape.begin("lstm_cell", x, h, c)
	in := call.let(x.matmul(w.InWeight.T()))
	hidden := call.let(h.matmul(w.HiddenWeight.T()))
	return call.endPair(in.fusedLSTMCell(hidden, c, w))
}

// fusedLSTMCell records _thnn_fused_lstm_cell: in and hidden are the gates before
// their sum and the bias.
func (in *Tensor) fusedLSTMCell(hidden, c *Tensor, w CellWeights) (hy, cy *Tensor) {
	t := in.tape
	call := t.begin("_thnn_fused_lstm_cell", in, hidden, c)
	gates := call.let(in.emptyLike(in.dtype))
	hy, cy = call.let(c.emptyLike(c.dtype)), call.let(c.emptyLike(c.dtype))
	t.launch(program.Elementwise, 16*in.numel, []*Tensor{gates, hy, cy},
		[]*Tensor{in, hidden, c, w.InBias, w.HiddenBias})
	biased := w.InBias != nil
	t.derive(outputs{hy, cy}, "ThnnFusedLstmCellBackward0", inputs{in, hidden, c, w.InBias, w.HiddenBias},
		saves{c, w.HiddenBias, hidden, w.InBias, in, cy, gates}, func(b *backward) {
			gates, c := b.saved(6), b.saved(0)
			dgates := gates.emptyLike(gates.dtype)
			dc := c.emptyLike(c.dtype)
			b.t.launch(program.Elementwise, 24*gates.numel, []*Tensor{dgates, dc},
				[]*Tensor{gates, c, b.saved(5), b.grads[0], b.grads[1]})
			if !biased {
				b.giveAll(dgates.retain(), dgates.retain(), dc.retain(), nil, nil)
				return
			}
			bias := dgates.sum("sum_dim_IntList", []int{0}, false)
			b.giveAll(dgates.retain(), dgates.retain(), dc.retain(), bias.retain(), bias.retain())
		})
	return call.endPair(hy, cy)
}

// GRUCell records torch.gru_cell: x is [batch, inputs], h [batch, hidden].
func (x *Tensor) GRUCell(h *Tensor, w CellWeights) *Tensor {
	c := x.tape.begin("gru_cell", x, h)
	c.lower(&x, &h, &w.InWeight, &w.HiddenWeight, &w.InBias, &w.HiddenBias)
	return c.end(x.gruCell(h, w))
}

func (x *Tensor) gruCell(h *Tensor, w CellWeights) *Tensor {
	c := x.tape.begin("gru_cell", x, h)
	in := c.let(x.matmul(w.InWeight.T()))
	hidden := c.let(h.matmul(w.HiddenWeight.T()))
	return c.end(in.fusedGRUCell(hidden, h, w))
}

// fusedGRUCell records _thnn_fused_gru_cell; it keeps five values per hidden unit.
func (in *Tensor) fusedGRUCell(hidden, h *Tensor, w CellWeights) *Tensor {
	c := in.tape.begin("_thnn_fused_gru_cell", in, hidden, h)
	batch, size := h.shape[0], h.shape[1]
	gates := c.let(c.t.empty(h.dtype, batch, 5*size))
	hy := c.let(h.emptyLike(h.dtype))
	c.t.launch(program.Elementwise, 16*in.numel, []*Tensor{gates, hy}, []*Tensor{in, hidden, h, w.InBias, w.HiddenBias})
	biased := w.InBias != nil
	return c.end(hy.derived("ThnnFusedGruCellBackward0", inputs{in, hidden, h, w.InBias, w.HiddenBias},
		saves{w.HiddenBias, hidden, h, w.InBias, in, gates},
		func(b *backward) {
			gates := b.saved(5)
			din, dhidden := b.t.empty(gates.dtype, batch, 3*size), b.t.empty(gates.dtype, batch, 3*size)
			dh := b.grad.emptyLike(b.grad.dtype)
			b.t.launch(program.Elementwise, 24*din.numel, []*Tensor{din, dhidden, dh}, []*Tensor{b.grad, gates})
			if !biased {
				b.giveAll(din.retain(), dhidden.retain(), dh.retain(), nil, nil)
				return
			}
			inBias := din.sum("sum_dim_IntList", []int{0}, false)
			hiddenBias := dhidden.sum("sum_dim_IntList", []int{0}, false)
			b.giveAll(din.retain(), dhidden.retain(), dh.retain(), inBias.retain(), hiddenBias.retain())
		}))
}

// RNNCell records torch.rnn_tanh_cell or, if rectified, torch.rnn_relu_cell: x is
// [batch, inputs], h [batch, hidden].
func (x *Tensor) RNNCell(h *Tensor, w CellWeights, rectified bool) *Tensor {
	c := x.tape.begin("rnn_cell", x, h)
	c.lower(&x, &h, &w.InWeight, &w.HiddenWeight, &w.InBias, &w.HiddenBias)
	return c.end(x.rnnCell(h, w, rectified))
}

func (x *Tensor) rnnCell(h *Tensor, w CellWeights, rectified bool) *Tensor {
	c := x.tape.begin("rnn_cell", x, h)
	hidden := h.linear(w.HiddenWeight, w.HiddenBias)
	sum := hidden.AddInPlace(x.linear(w.InWeight, w.InBias))
	if rectified {
		return c.end(sum.ReLU())
	}
	return c.end(sum.Tanh())
}

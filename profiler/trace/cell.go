package trace

import "github.com/vprof/vprof/profiler/program"

// CellWeights are the parameters of one recurrent layer in one direction.
type CellWeights struct {
	InWeight, HiddenWeight *Tensor // weight_ih, weight_hh
	InBias, HiddenBias     *Tensor // bias_ih, bias_hh
}

// LSTMCell records torch.lstm_cell: x is [batch, inputs], h and c [batch, hidden].
func (x *Tensor) LSTMCell(h, c *Tensor, w CellWeights) (hy, cy *Tensor) {
	call := x.tape.Begin("lstm_cell", x, h, c)
	call.Lower(&x, &c, &h, &w.InWeight, &w.HiddenWeight, &w.InBias, &w.HiddenBias)
	return call.EndPair(x.lstmCell(h, c, w))
}

func (x *Tensor) lstmCell(h, c *Tensor, w CellWeights) (hy, cy *Tensor) {
	call := x.tape.Begin("lstm_cell", x, h, c)
	in := call.Let(x.MatmulUncast(w.InWeight.T()))
	hidden := call.Let(h.MatmulUncast(w.HiddenWeight.T()))
	return call.EndPair(in.fusedLSTMCell(hidden, c, w))
}

// fusedLSTMCell records _thnn_fused_lstm_cell: in and hidden are the gates before
// their sum and the bias.
func (in *Tensor) fusedLSTMCell(hidden, c *Tensor, w CellWeights) (hy, cy *Tensor) {
	t := in.tape
	call := t.Begin("_thnn_fused_lstm_cell", in, hidden, c)
	gates := call.Let(in.AllocLike(in.dtype))
	hy, cy = call.Let(c.AllocLike(c.dtype)), call.Let(c.AllocLike(c.dtype))
	t.Launch(program.Elementwise, 16*in.numel, []*Tensor{gates, hy, cy},
		[]*Tensor{in, hidden, c, w.InBias, w.HiddenBias})
	biased := w.InBias != nil
	t.Derive(outputs{hy, cy}, "ThnnFusedLstmCellBackward0", inputs{in, hidden, c, w.InBias, w.HiddenBias},
		saves{c, w.HiddenBias, hidden, w.InBias, in, cy, gates}, func(b *Gradients) {
			gates, c := b.Saved(6), b.Saved(0)
			dgates := gates.AllocLike(gates.dtype)
			dc := c.AllocLike(c.dtype)
			b.t.Launch(program.Elementwise, 24*gates.numel, []*Tensor{dgates, dc},
				[]*Tensor{gates, c, b.Saved(5), b.Grads[0], b.Grads[1]})
			if !biased {
				b.GiveAll(dgates.Retain(), dgates.Retain(), dc.Retain(), nil, nil)
				return
			}
			bias := dgates.SumUncast("sum_dim_IntList", []int{0}, false)
			b.GiveAll(dgates.Retain(), dgates.Retain(), dc.Retain(), bias.Retain(), bias.Retain())
		})
	return call.EndPair(hy, cy)
}

// GRUCell records torch.gru_cell: x is [batch, inputs], h [batch, hidden].
func (x *Tensor) GRUCell(h *Tensor, w CellWeights) *Tensor {
	c := x.tape.Begin("gru_cell", x, h)
	c.Lower(&x, &h, &w.InWeight, &w.HiddenWeight, &w.InBias, &w.HiddenBias)
	return c.End(x.gruCell(h, w))
}

func (x *Tensor) gruCell(h *Tensor, w CellWeights) *Tensor {
	c := x.tape.Begin("gru_cell", x, h)
	in := c.Let(x.MatmulUncast(w.InWeight.T()))
	hidden := c.Let(h.MatmulUncast(w.HiddenWeight.T()))
	return c.End(in.fusedGRUCell(hidden, h, w))
}

// fusedGRUCell records _thnn_fused_gru_cell; it keeps five values per hidden unit.
func (in *Tensor) fusedGRUCell(hidden, h *Tensor, w CellWeights) *Tensor {
	c := in.tape.Begin("_thnn_fused_gru_cell", in, hidden, h)
	batch, size := h.shape[0], h.shape[1]
	gates := c.Let(c.t.Alloc(h.dtype, batch, 5*size))
	hy := c.Let(h.AllocLike(h.dtype))
	c.t.Launch(program.Elementwise, 16*in.numel, []*Tensor{gates, hy}, []*Tensor{in, hidden, h, w.InBias, w.HiddenBias})
	biased := w.InBias != nil
	return c.End(hy.Derived("ThnnFusedGruCellBackward0", inputs{in, hidden, h, w.InBias, w.HiddenBias},
		saves{w.HiddenBias, hidden, h, w.InBias, in, gates},
		func(b *Gradients) {
			gates := b.Saved(5)
			din, dhidden := b.t.Alloc(gates.dtype, batch, 3*size), b.t.Alloc(gates.dtype, batch, 3*size)
			dh := b.Grad.AllocLike(b.Grad.dtype)
			b.t.Launch(program.Elementwise, 24*din.numel, []*Tensor{din, dhidden, dh}, []*Tensor{b.Grad, gates})
			if !biased {
				b.GiveAll(din.Retain(), dhidden.Retain(), dh.Retain(), nil, nil)
				return
			}
			inBias := din.SumUncast("sum_dim_IntList", []int{0}, false)
			hiddenBias := dhidden.SumUncast("sum_dim_IntList", []int{0}, false)
			b.GiveAll(din.Retain(), dhidden.Retain(), dh.Retain(), inBias.Retain(), hiddenBias.Retain())
		}))
}

// RNNCell records torch.rnn_tanh_cell or, if rectified, torch.rnn_relu_cell: x is
// [batch, inputs], h [batch, hidden].
func (x *Tensor) RNNCell(h *Tensor, w CellWeights, rectified bool) *Tensor {
	c := x.tape.Begin("rnn_cell", x, h)
	c.Lower(&x, &h, &w.InWeight, &w.HiddenWeight, &w.InBias, &w.HiddenBias)
	return c.End(x.rnnCell(h, w, rectified))
}

func (x *Tensor) rnnCell(h *Tensor, w CellWeights, rectified bool) *Tensor {
	c := x.tape.Begin("rnn_cell", x, h)
	hidden := h.LinearUncast(w.HiddenWeight, w.HiddenBias)
	sum := hidden.AddInPlace(x.LinearUncast(w.InWeight, w.InBias))
	if rectified {
		return c.End(sum.ReLU())
	}
	return c.End(sum.Tanh())
}

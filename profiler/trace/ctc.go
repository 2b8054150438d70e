package trace

import "github.com/vprof/vprof/profiler/program"

// CTCLoss is torch.nn.functional.ctc_loss of log probabilities x, [T, N, C],
// and padded targets, [N, S], with lengths on the host, mean reduction.
// Autocast runs it in fp32.
func (x *Tensor) CTCLoss(targets *Tensor) *Tensor {
	t := x.tape
	c := t.begin("ctc_loss_Tensor", x, targets)
	c.full(&x)
	batch := x.shape[1]
	res := c.let(x.ctcLoss(targets))
	// The target lengths, raised to at least one.
	lengths := t.empty(x.dtype, batch)
	lengths = c.let(lengths.AddScalar())
	return c.end(res.Div(lengths).Mean(false))
}

// ctcLoss is _ctc_loss: the negative log likelihoods; it keeps the table of
// forward probabilities.
func (x *Tensor) ctcLoss(targets *Tensor) *Tensor {
	t := x.tape
	c := t.begin("_ctc_loss", x, targets)
	alpha, loss := x.ctcForward(targets)
	if n := t.record("CtcLossBackward0", x); n != nil {
		n.save(x, targets, loss, alpha)
		n.yields(loss)
		n.apply = func(b *backward) { b.give(0, ctcGrad(b.grad, b.saved(0), b.saved(1))) }
	}
	return c.end(loss)
}

// ctcTable is a table over batch, time and the targets with blanks between.
func (x *Tensor) ctcTable(targets *Tensor) *Tensor {
	return x.tape.empty(x.dtype, x.shape[1], x.shape[0], 2*targets.shape[1]+1)
}

// ctcLengths brings the lengths of inputs and targets and the offsets of the
// targets to the device; the offsets belong to a local that is older.
func (c *call) ctcLengths(batch int64) {
	t := c.t
	inputs, targets, offsets := t.empty(I64, batch), t.empty(I64, batch), t.empty(I64, batch)
	c.letAll([]*Tensor{targets, inputs, offsets})
}

func (x *Tensor) ctcForward(targets *Tensor) (alpha, loss *Tensor) {
	t := x.tape
	c := t.begin("_ctc_loss", x, targets)
	batch := x.shape[1]
	c.ctcLengths(batch)
	alpha, loss = x.ctcTable(targets), t.empty(x.dtype, batch)
	t.launch(program.Op{Work: program.Index, FLOPs: 8 * alpha.numel}, []*Tensor{alpha, loss}, []*Tensor{x, targets})
	return c.endPair(alpha, loss)
}

// ctcGrad is _ctc_loss_backward.
func ctcGrad(grad, x, targets *Tensor) *Tensor {
	t := x.tape
	c := t.begin("_ctc_loss_backward", grad, x, targets)
	c.ctcLengths(x.shape[1])
	beta := c.let(x.ctcTable(targets))
	g := x.emptyLike(x.dtype)
	t.launch(program.Op{Work: program.Index, FLOPs: 8 * beta.numel}, []*Tensor{beta, g}, []*Tensor{grad, x, targets})
	return c.end(g)
}

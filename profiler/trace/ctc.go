package trace

import "github.com/vprof/vprof/profiler/program"

// CTCLossArgs are the arguments of ctc_loss.
type CTCLossArgs struct {
	Reduction Reduction
	// ZeroInfinity makes impossible alignments cost nothing.
	ZeroInfinity bool
}

// CTCLoss records torch.nn.functional.ctc_loss of log probabilities x, [T, N, C],
// and padded targets, [N, S], with lengths on the host. Autocast runs it in
// fp32.
func (x *Tensor) CTCLoss(targets *Tensor, a CTCLossArgs) *Tensor {
	c := x.tape.Begin("ctc_loss_Tensor", x, targets)
	c.Full(&x)
	batch := x.shape[1]
	res := c.Let(x.ctcLoss(targets, a.ZeroInfinity))
	if a.ZeroInfinity {
		zero := c.t.Zeros(res.dtype)
		c.Set(&res, Where(res.CompareScalar("eq"), zero, res))
	}
	switch a.Reduction {
	case ReduceMean:
		// The target lengths, raised to at least one.
		lengths := c.t.Alloc(x.dtype, batch)
		lengths = c.Let(lengths.AddScalar())
		return c.End(res.Div(lengths).Mean(false))
	case ReduceSum:
		return c.End(res.Sum(false))
	}
	return c.End(res)
}

// ctcLoss records _ctc_loss: the negative log likelihoods; it keeps the table of
// forward probabilities.
func (x *Tensor) ctcLoss(targets *Tensor, zeroInfinity bool) *Tensor {
	c := x.tape.Begin("_ctc_loss", x, targets)
	alpha, loss := x.ctcForward(targets)
	return c.End(loss.Derived("CtcLossBackward0", inputs{x}, saves{x, targets, loss, alpha}, func(b *Gradients) {
		b.Give(0, ctcGrad(b.Grad, b.Saved(0), b.Saved(1), b.Saved(2), b.Saved(3), zeroInfinity))
	}))
}

// ctcTable returns a table over batch, time and the targets with blanks between.
func (x *Tensor) ctcTable(targets *Tensor) *Tensor {
	return x.tape.Alloc(x.dtype, x.shape[1], x.shape[0], 2*targets.shape[1]+1)
}

// ctcLengths brings the lengths of inputs and targets and the offsets of the
// targets to the device; the offsets belong to a local that is older.
func (c *Call) ctcLengths(batch int64) {
	t := c.t
	inputs, targets, offsets := t.Alloc(I64, batch), t.Alloc(I64, batch), t.Alloc(I64, batch)
	c.LetAll([]*Tensor{targets, inputs, offsets})
}

func (x *Tensor) ctcForward(targets *Tensor) (alpha, loss *Tensor) {
	c := x.tape.Begin("_ctc_loss", x, targets)
	batch := x.shape[1]
	c.ctcLengths(batch)
	alpha, loss = x.ctcTable(targets), c.t.Alloc(x.dtype, batch)
	c.t.Launch(program.Index, 8*alpha.numel, []*Tensor{alpha, loss}, []*Tensor{x, targets})
	return c.EndPair(alpha, loss)
}

// ctcGrad records _ctc_loss_backward. Long inputs go another way: the gradient of
// the blanks is a reduction over the tables, every other column of them.
func ctcGrad(grad, x, targets, loss, alpha *Tensor, zeroInfinity bool) *Tensor {
	c := x.tape.Begin("_ctc_loss_backward", grad, x, targets)
	steps, batch, labels := x.shape[0], x.shape[1], x.shape[2]
	c.ctcLengths(batch)
	beta := c.Let(x.ctcTable(targets))
	g := c.Let(c.t.Alloc(x.dtype, x.shape...)) // whose rows of time lie together, however x has them (LossCTC.cu)
	if 2*steps+24*batch/10+2*labels/10 > 450 {
		blanks := c.Let(g.Narrow(2, 0, 1))
		columns := func(table *Tensor) *Tensor { return table.SliceStep(2, 0, table.Size(2), 2) }
		columns(alpha).Add(columns(beta)).LogSumExpUncast(true, []int{2})
		c.EndStatement()
		c.t.LaunchElementwise(g, 4, g, x, loss)
		if zeroInfinity {
			zero := c.t.Zeros(g.dtype)
			c.Set(&g, Where(loss.CompareScalar("eq").View(1, batch, 1), zero, g))
		}
		c.Drop(blanks)
	}
	c.t.Launch(program.Index, 8*beta.numel, []*Tensor{beta, g}, []*Tensor{grad, x, targets, alpha})
	return c.End(g)
}

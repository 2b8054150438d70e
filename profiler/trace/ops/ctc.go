package ops

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// CTCLossArgs are the arguments of ctc_loss.
type CTCLossArgs struct {
	Reduction trace.Reduction
	// ZeroInfinity is zero_infinity: the loss of impossible alignments is zero.
	ZeroInfinity bool
}

// CTCLoss records torch.nn.functional.ctc_loss of log-probabilities x [T, N, C] and padded targets [N, S], with lengths
// on the host. Autocast runs it in fp32.
func CTCLoss(x *tensor, targets *tensor, a CTCLossArgs) *tensor {
	c := x.Tape().Begin("ctc_loss_Tensor", x, targets)
	c.CastToFP32(&x)
	batch := x.Shape()[1]
	res := c.Bind(ctcLoss(x, targets, a.ZeroInfinity))
	if a.ZeroInfinity {
		zero := c.Tape().Zeros(res.DType())
		c.Set(&res, trace.Where(res.CompareScalar("eq"), zero, res))
	}
	switch a.Reduction {
	case trace.ReduceMean:
		// The target lengths are clamped to at least one.
		lengths := c.Tape().Alloc(x.DType(), batch)
		lengths = c.Bind(lengths.AddScalar())
		return c.End(res.Div(lengths).Mean(false))
	case trace.ReduceSum:
		return c.End(res.Sum(false))
	}
	return c.End(res)
}

// ctcLoss records _ctc_loss: the negative log likelihoods. It saves the table of forward probabilities.
func ctcLoss(x *tensor, targets *tensor, zeroInfinity bool) *tensor {
	c := x.Tape().Begin("_ctc_loss", x, targets)
	alpha, loss := ctcForward(x, targets)
	return c.End(loss.SetGradFn("CtcLossBackward0", inputs{x}, saves{x, targets, loss, alpha}, func(b *backward) {
		b.Set(0, ctcGrad(b.Grad, b.Saved(0), b.Saved(1), b.Saved(2), b.Saved(3), zeroInfinity))
	}))
}

// ctcTable allocates a table over batch, time, and the targets with blanks between them.
func ctcTable(x *tensor, targets *tensor) *tensor {
	return x.Tape().Alloc(x.DType(), x.Shape()[1], x.Shape()[0], 2*targets.Shape()[1]+1)
}

// ctcLengths records the copies of the input lengths, target lengths and target offsets to the device. The offsets
// belong to a local variable that is declared first, so they are freed last.
func ctcLengths(c *call, batch int64) {
	t := c.Tape()
	inputs, targets, offsets := t.Alloc(trace.I64, batch), t.Alloc(trace.I64, batch), t.Alloc(trace.I64, batch)
	c.BindAll([]*tensor{targets, inputs, offsets})
}

func ctcForward(x *tensor, targets *tensor) (alpha, loss *tensor) {
	c := x.Tape().Begin("_ctc_loss", x, targets)
	batch := x.Shape()[1]
	ctcLengths(c, batch)
	alpha, loss = ctcTable(x, targets), c.Tape().Alloc(x.DType(), batch)
	c.Tape().Launch(program.Index, 8*alpha.Numel(), []*tensor{alpha, loss}, []*tensor{x, targets})
	return c.EndPair(alpha, loss)
}

// ctcGrad records _ctc_loss_backward. For long inputs, it computes the gradient of the blanks by a reduction over every
// second column of the tables.
func ctcGrad(grad, x, targets, loss, alpha *tensor, zeroInfinity bool) *tensor {
	c := x.Tape().Begin("_ctc_loss_backward", grad, x, targets)
	steps, batch, labels := x.Shape()[0], x.Shape()[1], x.Shape()[2]
	ctcLengths(c, batch)
	beta := c.Bind(ctcTable(x, targets))
	g := c.Bind(c.Tape().Alloc(x.DType(), x.Shape()...)) // contiguous, whatever the strides of x (LossCTC.cu)
	if 2*steps+24*batch/10+2*labels/10 > 450 {
		blanks := c.Bind(g.Narrow(2, 0, 1))
		columns := func(table *tensor) *tensor { return table.SliceStep(2, 0, table.Size(2), 2) }
		columns(alpha).Add(columns(beta)).LogSumExpUncast(true, []int{2})
		c.EndStatement()
		c.Tape().LaunchElementwise(g, 4, g, x, loss)
		if zeroInfinity {
			zero := c.Tape().Zeros(g.DType())
			c.Set(&g, trace.Where(loss.CompareScalar("eq").View(1, batch, 1), zero, g))
		}
		c.Drop(blanks)
	}
	c.Tape().Launch(program.Index, 8*beta.Numel(), []*tensor{beta, g}, []*tensor{grad, x, targets, alpha})
	return c.End(g)
}

package trace

// CrossEntropyAmong is torch.nn.functional.cross_entropy of scores [rows, classes] in fp32, of
// whose classes the rank has a part, under torch.distributed.tensor.parallel.loss_parallel: the
// handlers of its loss.py take the place of the operators, and are Python.
func (x *Tensor) CrossEntropyAmong(target *Tensor, ranks int64) *Tensor {
	c := x.tape.begin("cross_entropy_loss", x, target)
	return c.end(c.let(x.logSoftmaxAmong(ranks)).nllAmong(target, ranks))
}

// logSoftmaxAmong is _log_softmax_handler. Its backward passes on what that of the loss has computed.
func (x *Tensor) logSoftmaxAmong(ranks int64) *Tensor {
	t := x.tape
	var y *Tensor
	t.NoGrad(func() {
		f := t.funcFrame(x)
		most := f.Let(x.AMax(true, -1))
		f.Set(&most, most.reduced(ranks))
		shifted := f.Let(x.Sub(most))
		sum := f.Let(shifted.Exp().Sum(true, -1))
		f.Set(&sum, sum.reduced(ranks))
		logarithm := f.Let(sum.Log())
		y = f.Return(shifted.Sub(logarithm))
	})
	return y.derived("LogSoftmaxBackward0", inputs{x}, saves{y}, func(b *backward) { b.give(0, b.grad) })
}

// nllAmong is _nll_loss_forward_handler with the mean as reduction, x [rows, classes].
func (x *Tensor) nllAmong(target *Tensor, ranks int64) *Tensor {
	t := x.tape
	var y, total *Tensor
	t.NoGrad(func() {
		f := t.funcFrame(x, target)
		safe := f.Let(WhereScalar(target.GtScalar(), target))
		rows := f.Let(safe.Unsqueeze(1))
		mask, own := f.ownIndices(rows)
		f.Let(mask)
		f.Let(own)
		part := f.Let(x.Gather(own))
		part.MaskedFillInPlace(mask)
		f.Del(&mask)
		sum := f.Let(part.reduced(ranks))
		result := f.Let(sum.Squeeze(1).Neg())
		f.Set(&result, WhereScalar(target.GtScalar(), result))
		total = f.Let(target.GtScalar().Sum(false).To(x.dtype))
		y = f.Let(result.Sum(false).Div(total))
		f.End(y, total)
	})
	return y.derived("NllLossBackward0", inputs{x}, saves{x, target, total}, func(b *backward) {
		b.give(0, b.saved(0).nllAmongBackward(b.grad, b.saved(1), b.saved(2)))
	})
}

// nllAmongBackward is _nll_loss_and_log_softmax_backward of x, the logarithms of the softmax.
func (x *Tensor) nllAmongBackward(grad, target, total *Tensor) *Tensor {
	t := x.tape
	f := t.funcFrame(grad, x, target, total)
	f.Set(&grad, grad.Div(total))
	rows := f.Let(target.Unsqueeze(1))
	safe := f.Let(WhereScalar(rows.GtScalar(), rows))
	result := f.Let(x.ZerosLike())
	f.Set(&safe, safe.View(-1))
	mask, own := f.ownIndices(safe)
	f.Let(mask)
	f.Let(own)
	update := f.Let(mask.To(x.dtype).AddScalar())
	places := f.Let(t.Arange(own.numel))
	result.SetItem(update, places, own)
	f.Set(&grad, WhereScalar(rows.GtScalar(), grad))
	return f.Return(result.Add(x.Exp()).Mul(grad))
}

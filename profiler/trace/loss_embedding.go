package trace

// KLDiv is torch.kl_div(x, target, reduction, log_target): x holds log
// probabilities. Autocast runs it in fp32.
func (x *Tensor) KLDiv(target *Tensor, logTarget bool, r Reduction) *Tensor {
	c := x.tape.begin("kl_div", x, target)
	c.full(&x, &target)
	var y *Tensor
	if logTarget {
		gap := target.Sub(x)
		y = c.let(target.Exp().Mul(gap))
	} else {
		product := target.Mul(x)
		y = c.let(operatorIndex["xlogy"].Call(target, target).Sub(product))
	}
	return c.end(y.reduceLoss(r))
}

// KLDivBatchMean is torch.nn.functional.kl_div(x, target,
// reduction="batchmean").
func (x *Tensor) KLDivBatchMean(target *Tensor, logTarget bool) *Tensor {
	f := x.tape.funcFrame(x, target)
	y := f.Let(x.KLDiv(target, logTarget, ReduceSum))
	f.Set(&y, y.DivScalar())
	f.End(y)
	return y
}

// TripletMarginLoss is torch.nn.functional.triplet_margin_loss(anchor,
// positive, negative). Autocast runs it in fp32.
func TripletMarginLoss(anchor, positive, negative *Tensor, r Reduction) *Tensor {
	c := anchor.tape.begin("triplet_margin_loss", anchor, positive, negative)
	c.full(&anchor, &positive, &negative)
	near := c.let(anchor.PairwiseDistance(positive, 2))
	far := c.let(anchor.PairwiseDistance(negative, 2))
	loss := c.let(near.AddScalar().Sub(far).ClampMin())
	return c.end(loss.reduceLoss(r))
}

// PairwiseDistance is torch.nn.functional.pairwise_distance(x, y).
func (x *Tensor) PairwiseDistance(y *Tensor, p float64) *Tensor {
	c := x.tape.begin("pairwise_distance", x, y)
	return c.end(x.Sub(y).AddScalar().Norm(p, false, -1))
}

// CosineSimilarity is torch.nn.functional.cosine_similarity(x, y, dim).
// Autocast runs it in fp32.
func (x *Tensor) CosineSimilarity(y *Tensor, dim int) *Tensor {
	c := x.tape.begin("cosine_similarity", x, y)
	c.full(&x, &y)
	shape := broadcast(x, y)
	y = c.let(y.Expand(shape...))
	x = c.let(x.Expand(shape...))
	nx := c.let(x.Norm(2, true, dim).Clone())
	ny := c.let(y.Norm(2, true, dim).Clone())
	// Both norms are raised to a least one, in place.
	c.t.launchElementwise(nx, 1, nx)
	c.t.launchElementwise(ny, 1, ny)
	c.let(c.t.scalarTensor(F32))
	unit := y.Div(ny)
	return c.end(x.Div(nx).Mul(unit).Sum(false, dim))
}

// CosineEmbeddingLoss is torch.nn.functional.cosine_embedding_loss(x, y,
// target). Autocast runs it in fp32.
func (x *Tensor) CosineEmbeddingLoss(y, target *Tensor, r Reduction) *Tensor {
	c := x.tape.begin("cosine_embedding_loss", x, y, target)
	c.full(&x, &y)
	dot := c.let(x.Mul(y).Sum(false, -1))
	xx := c.let(x.Mul(x).Sum(false, -1).AddScalar())
	yy := c.let(y.Mul(y).Sum(false, -1).AddScalar())
	norm := c.let(operatorIndex["sqrt"].CallInPlace(xx.Mul(yy)))
	cosine := c.let(dot.Div(norm))
	zeros := c.let(cosine.ZerosLike())
	apart := c.let(cosine.RSubScalar())
	alike := c.let(cosine.AddScalar().ClampMinInPlace())
	apart = c.let(Where(target.compareScalar("eq"), apart, zeros))
	alike = c.let(Where(target.compareScalar("eq"), alike, zeros))
	loss := c.let(apart.Add(alike))
	return c.end(loss.reduceLoss(r))
}

// MarginRankingLoss is torch.nn.functional.margin_ranking_loss(x, y, target).
func MarginRankingLoss(x, y, target *Tensor, r Reduction) *Tensor {
	c := x.tape.begin("margin_ranking_loss", x, y, target)
	gap := x.Sub(y)
	minus := target.Neg()
	loss := c.let(minus.Mul(gap).AddScalarInPlace().ClampMin())
	return c.end(loss.reduceLoss(r))
}

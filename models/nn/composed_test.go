package nn_test

import "github.com/vprof/vprof/profiler/trace"

// Functions of torch.nn.functional that Python makes of others: each has a frame of its own.

func inFunction(f func(g *trace.Frame) *tensor, args ...*tensor) *tensor {
	outer := args[0].Tape().Frame()
	g := outer.FunctionFrame(args...)
	y := g.Return(f(g))
	return outer.Return(y)
}

func softsign(x *tensor) *tensor {
	return inFunction(func(*trace.Frame) *tensor { return x.Div(x.Abs().AddScalar()) }, x)
}

func tanhshrink(x *tensor) *tensor {
	return inFunction(func(*trace.Frame) *tensor { return x.Sub(x.Tanh()) }, x)
}

func softmin(x *tensor) *tensor {
	return inFunction(func(*trace.Frame) *tensor { return x.Neg().Softmax(-1) }, x)
}

// lpPool2D records lp_pool2d(x, 2, 2).
func lpPool2D(x *tensor) *tensor {
	return inFunction(func(g *trace.Frame) *tensor {
		out := g.Bind(x.Pow(2).AvgPool(trace.PoolArgs{Kernel: []int64{2}}))
		return out.Sgn().Mul(out.Abs().ReLU()).MulScalar().Pow(0.5)
	}, x)
}

// klDivBatchMean records kl_div(x, target, reduction="batchmean").
func klDivBatchMean(x, target *tensor) *tensor {
	return inFunction(func(g *trace.Frame) *tensor {
		y := g.Bind(x.KLDiv(target, false, trace.ReduceSum))
		g.Set(&y, y.DivScalar())
		return y
	}, x, target)
}

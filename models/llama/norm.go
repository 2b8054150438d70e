package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// newNorm returns a norm of the configuration's kind.
func newNorm(c *Config, width int64) nn.Layer {
	switch c.Norm {
	case LayerNorm:
		return nn.NewLayerNorm(width)
	case LayerNorm1P:
		return &layerNorm1P{Weight: nn.NewParameter(width), Bias: nn.NewParameter(width)}
	}
	return &norm{Weight: nn.NewParameter(width), kind: c.Norm, liger: c.Liger}
}

// norm is a norm that transformers computes by several operators.
type norm struct {
	nn.Module
	Weight *nn.Parameter
	kind   Norm
	liger  bool
}

func (n *norm) Forward(f *frame, x *tensor) *tensor {
	switch {
	case n.liger:
		return liger.Norm{OutOfPlace: n.kind == GemmaNorm}.RMSNorm(f, x, n.Weight.Tensor)
	case n.kind == GemmaNorm:
		output := f.Bind(hf.GemmaNormalize(f, x.To(trace.F32)))
		f.Set(&output, output.Mul(n.Weight.To(trace.F32).AddScalar()))
		return output.To(x.DType())
	case n.kind == TuneNorm:
		return x.To(trace.F32).RMSNorm(1, n.Weight.Tensor).To(x.DType())
	case n.kind == Llama4Norm:
		return n.llama4Forward(f, x)
	case n.kind == CohereNorm:
		return n.cohereForward(f, x)
	}
	d := x.DType()
	hf.RMSNormalize(f, &x)
	switch n.kind {
	case FloatNorm:
		return n.Weight.To(trace.F32).Mul(x).To(d)
	case OlmoNorm:
		return n.Weight.Mul(x).To(d)
	}
	return n.Weight.Mul(x.To(d))
}

type layerNorm1P struct {
	nn.Module
	Weight, Bias *nn.Parameter
}

func (n *layerNorm1P) Forward(f *frame, x *tensor) *tensor {
	t := f.Tape()
	weight, bias := f.Bind(n.Weight.AddScalar()), f.Bind(n.Bias.Tensor)
	if d, on := t.Autocasting(); on {
		f.Set(&x, x.To(d))
		f.Set(&weight, weight.To(d))
		f.Set(&bias, bias.To(d))
	}
	var y *tensor
	t.NoAutocast(func() { y = x.LayerNorm(1, weight, bias) })
	return y
}

func (n *norm) cohereForward(f *frame, x *tensor) *tensor {
	d := x.DType()
	f.Set(&x, x.To(trace.F32))
	mean := f.Bind(x.Mean(true, -1))
	variance := f.Bind(x.Sub(mean).Pow(2).Mean(true, -1))
	f.Set(&x, x.Sub(mean).Mul(variance.AddScalar().Rsqrt()))
	f.Set(&x, n.Weight.To(trace.F32).Mul(x))
	return x.To(d)
}

package nn

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// ReplaceableWeight is a layer that can run with another weight than its own parameter.
type ReplaceableWeight interface {
	Layer
	weight() *Parameter
	bias() *Parameter
	forwardWith(weight, x *trace.Tensor) *trace.Tensor
}

func (l *Linear) weight() *Parameter { return l.Weight }

func (l *Linear) bias() *Parameter { return l.Bias }

func (l *Linear) forwardWith(w, x *trace.Tensor) *trace.Tensor {
	return x.Linear(w, l.Bias.TensorOrNil())
}

func (c *Conv) weight() *Parameter { return c.Weight }

func (c *Conv) bias() *Parameter { return c.Bias }

func (c *Conv) forwardWith(w, x *trace.Tensor) *trace.Tensor {
	return x.Conv(w, c.Bias.TensorOrNil(), c.args)
}

// AssignedWeight is a weight that is assigned to a plain attribute of a module, where it lives until the next call
// assigns another.
type AssignedWeight struct {
	// Last is the weight of the last call, nil before the first.
	Last *trace.Tensor
}

func (c *AssignedWeight) set(x *trace.Tensor) *trace.Tensor {
	replaceHeld(x.Tape(), &c.Last, x)
	return x
}

func replaceHeld(t *trace.Tape, attribute **trace.Tensor, x *trace.Tensor) {
	old := *attribute
	*attribute = t.Hold(x)
	t.Release(old)
}

// SpectralNorm is a layer under torch.nn.utils.spectral_norm. Before each call, the hook divides the weight by an
// estimate of its largest singular value and assigns the result to the layer, where it lives until the next call. The
// original weight is renamed weight_orig and comes after the bias.
type SpectralNorm struct {
	Module
	AssignedWeight
	layer  ReplaceableWeight
	Bias   *Parameter
	Weight *Parameter `torch:"weight_orig"`
	U      *Buffer    `torch:"weight_u"`
	V      *Buffer    `torch:"weight_v"`
}

// NewSpectralNorm adds spectral_norm to a layer.
func NewSpectralNorm(l ReplaceableWeight) *SpectralNorm {
	rows, columns := matrixSize(l.weight())
	return &SpectralNorm{
		layer: l, Bias: l.bias(), Weight: l.weight(),
		U: NewBuffer(trace.F32, rows), V: NewBuffer(trace.F32, columns),
	}
}

func matrixSize(p *Parameter) (rows, columns int64) { return p.Dims[0], product(p.Dims[1:]) }

// Forward computes the normalized weight and calls the layer with it.
func (s *SpectralNorm) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return s.layer.forwardWith(s.set(s.computeWeight(f)), x)
}

// computeWeight records SpectralNorm.compute_weight of torch/nn/utils/spectral_norm.py.
func (s *SpectralNorm) computeWeight(f *trace.Frame) *trace.Tensor {
	t := f.Tape()
	weight := s.layer.weight().TensorOrNil()
	rows, columns := matrixSize(s.layer.weight())
	g := f.CallFrame()
	u, v := g.Bind(s.U.TensorOrNil()), g.Bind(s.V.TensorOrNil())
	matrix := g.Bind(weight.Reshape(rows, columns))
	if s.Training() {
		t.NoGrad(func() {
			matrix.T().MV(u).NormalizeInto(v)
			matrix.MV(v).NormalizeInto(u)
			g.Set(&u, u.Clone())
			g.Set(&v, v.Clone())
		})
	}
	sigma := g.Bind(u.Dot(matrix.MV(v)))
	return g.Return(weight.Div(sigma))
}

func newNorms(l ReplaceableWeight, dim int) *Parameter {
	dims := slices.Repeat([]int64{1}, len(l.weight().Dims))
	dims[dim] = l.weight().Dims[dim]
	return NewParameter(dims...)
}

// WeightParametrization is a layer under torch.nn.utils.parametrizations.weight_norm: the weight is a property that
// is computed at each read from two parameters of a child module.
type WeightParametrization struct {
	Module
	layer            ReplaceableWeight
	Bias             *Parameter
	Parametrizations *struct{ Weight *NormAndDirection }
}

// NormAndDirection are the norms of a weight (original0) and its directions (original1).
type NormAndDirection struct {
	Module
	Original0, Original1 *Parameter
}

// NewWeightParametrization adds weight_norm to a layer, with norms along dimension dim.
func NewWeightParametrization(l ReplaceableWeight, dim int) *WeightParametrization {
	return &WeightParametrization{
		layer: l, Bias: l.bias(),
		Parametrizations: &struct{ Weight *NormAndDirection }{&NormAndDirection{
			Original0: newNorms(l, dim),
			Original1: l.weight(),
		}},
	}
}

// Forward computes the weight and calls the layer with it.
func (n *WeightParametrization) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	parts := n.Parametrizations.Weight
	return n.layer.forwardWith(trace.WeightNorm(parts.Original1.TensorOrNil(), parts.Original0.TensorOrNil()), x)
}

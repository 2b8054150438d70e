package nn

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// Reweighted is a layer whose weight can be replaced for each call.
type Reweighted interface {
	Layer
	weight() *Parameter
	bias() *Parameter
	forwardWith(weight, x *trace.Tensor) *trace.Tensor
}

func (l *Linear) weight() *Parameter { return l.Weight }

func (l *Linear) bias() *Parameter { return l.Bias }

func (l *Linear) forwardWith(w, x *trace.Tensor) *trace.Tensor { return x.Linear(w, l.Bias.T()) }

func (c *Conv) weight() *Parameter { return c.Weight }

func (c *Conv) bias() *Parameter { return c.Bias }

func (c *Conv) forwardWith(w, x *trace.Tensor) *trace.Tensor { return x.Conv(w, c.Bias.T(), c.args) }

// Computed is a weight that is a plain attribute of a module: it lives until the next call assigns a new one.
type Computed struct {
	// Last is the weight of the last call, nil before the first.
	Last *trace.Tensor
}

func (c *Computed) set(x *trace.Tensor) *trace.Tensor {
	holdInstead(x.Tape(), &c.Last, x)
	return x
}

// holdInstead assigns a tensor to an attribute, and releases the old one, if any.
func holdInstead(t *trace.Tape, attribute **trace.Tensor, x *trace.Tensor) {
	old := *attribute
	*attribute = t.Hold(x)
	t.Release(old)
}

// SpectralNorm is a layer under torch.nn.utils.spectral_norm: before each call its weight is divided by an estimate of
// its largest singular value and assigned to the layer, where it lives until the next call. The hook renames the
// original weight and moves it behind the bias.
type SpectralNorm struct {
	Module
	Computed
	layer  Reweighted
	Bias   *Parameter
	Weight *Parameter `torch:"weight_orig"`
	U      *Buffer    `torch:"weight_u"`
	V      *Buffer    `torch:"weight_v"`
}

// NewSpectralNorm wraps a layer.
func NewSpectralNorm(l Reweighted) *SpectralNorm {
	rows, columns := matrixSize(l.weight())
	return &SpectralNorm{
		layer: l, Bias: l.bias(), Weight: l.weight(),
		U: NewBuffer(trace.F32, rows), V: NewBuffer(trace.F32, columns),
	}
}

// matrixSize returns the size of a weight as a matrix, one row per output.
func matrixSize(p *Parameter) (rows, columns int64) { return p.Dims[0], product(p.Dims[1:]) }

// Forward computes the weight and calls the layer.
func (s *SpectralNorm) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return s.layer.forwardWith(s.set(s.compute(f)), x)
}

// compute records SpectralNorm.compute_weight of torch/nn/utils/spectral_norm.py.
func (s *SpectralNorm) compute(f *trace.Frame) *trace.Tensor {
	t := f.Tape()
	weight := s.layer.weight().T()
	rows, columns := matrixSize(s.layer.weight())
	g := f.CallFrame()
	u, v := g.Bind(s.U.T()), g.Bind(s.V.T())
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

// lengths returns the parameter for the norms of a weight along dimension dim.
func lengths(l Reweighted, dim int) *Parameter {
	dims := slices.Repeat([]int64{1}, len(l.weight().Dims))
	dims[dim] = l.weight().Dims[dim]
	return NewParameter(dims...)
}

// WeightParametrization is a layer under torch.nn.utils.parametrizations.weight_norm: the weight is a property that is
// computed at each read, and its two parts are parameters of a child.
type WeightParametrization struct {
	Module
	layer            Reweighted
	Bias             *Parameter
	Parametrizations *struct{ Weight *WeightParts }
}

// WeightParts are the norms of a weight and its directions.
type WeightParts struct {
	Module
	Original0, Original1 *Parameter
}

// NewWeightParametrization wraps a layer; the norms are taken along dimension dim.
func NewWeightParametrization(l Reweighted, dim int) *WeightParametrization {
	return &WeightParametrization{
		layer: l, Bias: l.bias(),
		Parametrizations: &struct{ Weight *WeightParts }{&WeightParts{
			Original0: lengths(l, dim),
			Original1: l.weight(),
		}},
	}
}

// Forward computes the weight and calls the layer.
func (n *WeightParametrization) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	parts := n.Parametrizations.Weight
	return n.layer.forwardWith(trace.WeightNorm(parts.Original1.T(), parts.Original0.T()), x)
}

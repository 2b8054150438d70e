package nn

import "github.com/vprof/vprof/profiler/trace"

// SpectralParametrization is a layer under torch.nn.utils.parametrizations.spectral_norm: the weight is a property,
// computed whenever it is read.
type SpectralParametrization struct {
	Module
	Layer ReplaceableWeight `torch:""`
	U     *Buffer           `torch:"_u"`
	V     *Buffer           `torch:"_v"`
}

// NewSpectralParametrization wraps a layer.
func NewSpectralParametrization(l ReplaceableWeight) *SpectralParametrization {
	rows, columns := matrixSize(l.weight())
	return &SpectralParametrization{Layer: l, U: NewBuffer(trace.F32, rows), V: NewBuffer(trace.F32, columns)}
}

// Forward computes the weight and calls the layer.
func (s *SpectralParametrization) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return s.Layer.forwardWith(s.compute(f), x)
}

// compute records _SpectralNorm.forward of torch/nn/utils/parametrizations.py.
func (s *SpectralParametrization) compute(f *trace.Frame) *trace.Tensor {
	t := f.Tape()
	weight := s.Layer.weight().TensorOrNil()
	g := f.CallFrame(weight)
	matrix := weight
	if weight.NDim() > 2 {
		rows, columns := matrixSize(s.Layer.weight())
		matrix = weight.View(rows, columns)
	}
	g.Bind(matrix)
	if s.Training() {
		t.NoGrad(func() {
			matrix.MV(s.V.TensorOrNil()).NormalizeInto(s.U.TensorOrNil())
			matrix.T().MV(s.U.TensorOrNil()).NormalizeInto(s.V.TensorOrNil())
		})
	}
	u, v := g.Bind(s.U.TensorOrNil().Clone()), g.Bind(s.V.TensorOrNil().Clone())
	sigma := g.Bind(u.Dot(matrix.MV(v)))
	return g.Return(weight.Div(sigma))
}

// WeightNorm is a layer under torch.nn.utils.weight_norm: its weight is V with
// the length G per output. The layer's own weight holds V.
type WeightNorm struct {
	Module
	AssignedWeight
	G     *Parameter        `torch:"weight_g"`
	Layer ReplaceableWeight `torch:""`
}

// NewWeightNorm wraps a layer.
func NewWeightNorm(l ReplaceableWeight) *WeightNorm {
	return &WeightNorm{Layer: l, G: newNorms(l, 0)}
}

// Forward computes the weight and calls the layer.
func (n *WeightNorm) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return n.Layer.forwardWith(n.set(trace.WeightNorm(n.Layer.weight().TensorOrNil(), n.G.TensorOrNil())), x)
}

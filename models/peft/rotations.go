package peft

import (
	"errors"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// Methods that rotate the layer's input or output.

func (s *AdaptedLayer) addOFT() error {
	n := s.count("oft_block_size")
	if r := s.count("r"); r > 0 { // blocks
		if err := requireDivisor("r", r, s.in); err != nil {
			return err
		}
		n = s.in / r
	}
	if err := requireDivisor("oft_block_size", n, s.in); err != nil {
		return err
	}
	s.addWeight("oft_R", s.in/n, n*(n-1)/2)
	s.Own.AddBuffer(trace.I64, n*(n-1)/2).AddBuffer(trace.I64, n*(n-1)/2) // rows, cols
	return s.requirePositive("num_cayley_neumann_terms")
}

// oft rotates the layer's input, block by block.
func (s *AdaptedLayer) oft(f *frame, x *tensor) *tensor {
	dtype := x.DType()
	f.Set(&x, x.To(s.dtype()))
	g := f.CallFrame(x)
	n := s.in / s.w("oft_R").Size(0)
	rotation := g.Bind(s.cayleyNeumann(g, n))
	lead := x.Shape()[:x.NDim()-1]
	blocks := g.Bind(x.Reshape(append(slices.Clone(lead), s.in/n, n)...))
	rotated := g.Bind(ops.Einsum("...rk,rkc->...rc", blocks, rotation))
	f.Set(&x, g.Return(g.Bind(rotated.Reshape(x.Shape()...))))
	result := f.Bind(f.Call(s.BaseLayer, x.To(dtype)))
	return f.Set(&result, result.To(dtype))
}

// cayleyNeumann records OFTRotationModule._cayley_batch: a series for the rotations of skew-symmetric matrices.
func (s *AdaptedLayer) cayleyNeumann(f *frame, n int64) *tensor {
	vec, t := s.w("oft_R"), f.Tape()
	g := f.FunctionFrame()
	h := g.FunctionFrame()
	q := h.Bind(t.Zeros(vec.DType(), vec.Size(0), n, n))
	q.SetItem(vec, nil, s.Own.BufferTensor(0), s.Own.BufferTensor(1))
	h.Set(&q, q.Sub(q.Transpose(-2, -1)))
	g.Bind(h.Return(q))
	if !s.enabled("use_cayley_neumann") {
		id := g.Bind(t.Filled("eye", vec.DType(), n, n).Unsqueeze(0).Expand(vec.Size(0), n, n))
		return g.Return(ops.LinalgSolve(id.Add(q), id.Sub(q), false))
	}
	r := g.Bind(t.Filled("eye", vec.DType(), n, n).Repeat(vec.Size(0), 1, 1))
	terms := s.count("num_cayley_neumann_terms")
	if terms > 1 {
		r.AddInPlace(q)
	}
	if terms > 2 {
		power := g.Bind(q.BMM(q))
		r.AddInPlace(power)
		for range terms - 3 {
			g.Set(&power, power.BMM(q))
			r.AddInPlace(power)
		}
	}
	return g.Return(r)
}

func (s *AdaptedLayer) addBOFT() error {
	n := s.count("boft_block_size")
	if s.count("boft_n_butterfly_factor") != 1 {
		return errors.New("vprof supports BOFT only with boft_n_butterfly_factor=1, peft's default; leave the option " +
			"out")
	}
	if err := requireDivisor("boft_block_size", n, s.in); err != nil {
		return err
	}
	s.addWeight("boft_R", 1, s.in/n, n, n)
	s.addWeight("boft_s", s.out, 1)
	if s.text("boft_P") == "gpu" { // and not of a model that was there before it had adapters, as with device_map
		s.Own.AddBuffer(trace.F32, 1, s.in, s.in)
	}
	return nil
}

// boft rotates the layer's input by one butterfly factor, as peft does without its CUDA extension.
func (s *AdaptedLayer) boft(f *frame, x *tensor) *tensor {
	t, dtype, data, n := f.Tape(), x.DType(), s.w("boft_R"), s.count("boft_block_size")
	rotation := f.Bind(t.Filled("eye", dtype, s.in, s.in))
	scale := f.Bind(t.Filled("ones", dtype, s.out, 1))
	blocks := f.Bind(data.View(-1, n, n))
	g := f.FunctionFrame(blocks)
	skew := g.Bind(blocks.Sub(blocks.Transpose(1, 2)).MulScalar())
	id := g.Bind(t.Filled("eye", trace.F32, n, n).Unsqueeze(0).Expand(s.in/n, n, n))
	q := g.Bind(ops.LinalgSolve(id.Add(skew), id.Sub(skew), false))
	orthogonal := f.Bind(g.Return(q))
	whole := f.Bind(ops.BlockDiag(orthogonal.Unbind(0)...))
	f.Set(&whole, whole.Unsqueeze(0))
	var p *tensor
	if s.text("boft_P") == "gpu" {
		p = f.Bind(s.Own.BufferTensor(0).To(dtype))
	} else {
		p = f.Bind(t.New("to_device", program.Activations, dtype, 1, s.in, s.in))
	}
	f.Set(&whole, whole.To(dtype))
	batch := f.Bind(whole.BMM(p.Permute(0, 2, 1)))
	f.Set(&batch, p.BMM(batch))
	f.Set(&rotation, f.Bind(batch.Select(0, 0)).Matmul(rotation))
	f.Set(&scale, s.w("boft_s").Mul(scale))
	result := f.Bind(f.Call(s.BaseLayer, f.Bind(x.Matmul(rotation))))
	bias := s.linear().Bias.TensorOrNil()
	if bias != nil {
		f.Set(&result, result.Sub(bias))
	}
	f.Set(&result, result.Mul(scale.Squeeze(-1)))
	if bias != nil {
		f.Set(&result, result.Add(bias))
	}
	return f.Set(&result, result.To(dtype))
}

package peft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// Methods that rotate what goes into the layer or comes out of it.

func (s *Site) addOFT() error {
	n := s.count("oft_block_size")
	if r := s.count("r"); r > 0 { // blocks
		if err := divides("r", r, s.in); err != nil {
			return err
		}
		n = s.in / r
	}
	if err := divides("oft_block_size", n, s.in); err != nil {
		return err
	}
	s.weight("oft_R", s.in/n, n*(n-1)/2)
	s.Own.Buffer(trace.I64, n*(n-1)/2).Buffer(trace.I64, n*(n-1)/2) // rows, cols
	return s.positive("num_cayley_neumann_terms")
}

// oft rotates what goes into the layer, block by block.
func (s *Site) oft(f *frame, x *tensor) *tensor {
	dtype := x.DType()
	f.Set(&x, x.To(s.dtype()))
	g := f.CallFrame(x)
	n := s.in / s.w("oft_R").Size(0)
	rotation := g.Let(s.cayleyNeumann(g, n))
	lead := x.Shape()[:x.NDim()-1]
	blocks := g.Let(x.Reshape(append(slices.Clone(lead), s.in/n, n)...))
	rotated := g.Let(ops.Einsum("...rk,rkc->...rc", blocks, rotation))
	f.Set(&x, g.Return(g.Let(rotated.Reshape(x.Shape()...))))
	result := f.Let(f.Call(s.BaseLayer, x.To(dtype)))
	return f.Set(&result, result.To(dtype))
}

// cayleyNeumann follows _cayley_batch: a series for the rotations of skew-symmetric matrices.
func (s *Site) cayleyNeumann(f *frame, n int64) *tensor {
	vec, t := s.w("oft_R"), f.Tape()
	g := f.FuncFrame()
	h := g.FuncFrame()
	q := h.Let(t.Zeros(vec.DType(), vec.Size(0), n, n))
	q.SetItem(vec, nil, s.Own.Held(0), s.Own.Held(1))
	h.Set(&q, q.Sub(q.Transpose(-2, -1)))
	g.Let(h.Return(q))
	if !s.on("use_cayley_neumann") {
		id := g.Let(t.Filled("eye", vec.DType(), n, n).Unsqueeze(0).Expand(vec.Size(0), n, n))
		return g.Return(ops.LinalgSolve(id.Add(q), id.Sub(q), false))
	}
	r := g.Let(t.Filled("eye", vec.DType(), n, n).Repeat(vec.Size(0), 1, 1))
	series(g, r, q, s.count("num_cayley_neumann_terms"), (*tensor).BMM)
	return g.Return(r)
}

func (s *Site) addBOFT() error {
	n := s.count("boft_block_size")
	if s.count("boft_n_butterfly_factor") != 1 {
		return errors.New("vprof has rules for boft_n_butterfly_factor=1, which is peft's default")
	}
	if err := divides("boft_block_size", n, s.in); err != nil {
		return err
	}
	s.weight("boft_R", 1, s.in/n, n, n)
	s.weight("boft_s", s.out, 1)
	if s.text("boft_P") == "gpu" { // and not of a model that was there before it had adapters, as with device_map
		s.Own.Buffer(trace.F32, 1, s.in, s.in)
	}
	return nil
}

// boft rotates what goes into the layer by one butterfly factor, as peft does without its CUDA
// extension.
func (s *Site) boft(f *frame, x *tensor) *tensor {
	t, dtype, data, n := f.Tape(), x.DType(), s.w("boft_R"), s.count("boft_block_size")
	rotation := f.Let(t.Filled("eye", dtype, s.in, s.in))
	scale := f.Let(t.Filled("ones", dtype, s.out, 1))
	blocks := f.Let(data.View(-1, n, n))
	g := f.FuncFrame(blocks)
	skew := g.Let(blocks.Sub(blocks.Transpose(1, 2)).MulScalar())
	id := g.Let(t.Filled("eye", trace.F32, n, n).Unsqueeze(0).Expand(s.in/n, n, n))
	q := g.Let(ops.LinalgSolve(id.Add(skew), id.Sub(skew), false))
	orthogonal := f.Let(g.Return(q))
	whole := f.Let(ops.BlockDiag(orthogonal.Unbind(0)...))
	f.Set(&whole, whole.Unsqueeze(0))
	var p *tensor
	if s.text("boft_P") == "gpu" {
		p = f.Let(s.Own.Held(0).To(dtype))
	} else {
		p = f.Let(t.New("to_device", program.Activations, dtype, 1, s.in, s.in))
	}
	f.Set(&whole, whole.To(dtype))
	batch := f.Let(whole.BMM(p.Permute(0, 2, 1)))
	f.Set(&batch, p.BMM(batch))
	f.Set(&rotation, f.Let(batch.Select(0, 0)).Matmul(rotation))
	f.Set(&scale, s.w("boft_s").Mul(scale))
	result := f.Let(f.Call(s.BaseLayer, f.Let(x.Matmul(rotation))))
	bias := s.plain().Bias.T()
	if bias != nil {
		f.Set(&result, result.Sub(bias))
	}
	f.Set(&result, result.Mul(scale.Squeeze(-1)))
	if bias != nil {
		f.Set(&result, result.Add(bias))
	}
	return f.Set(&result, result.To(dtype))
}

func (s *Site) addRoAd() error {
	n, size := s.count("group_size"), s.out/2
	if err := divides("group_size", n, s.out); err != nil {
		return err
	}
	switch s.text("variant") {
	case "road_2":
		size = s.out
	case "road_4":
		size = 2 * s.out
	}
	s.weight("road_theta", size)
	s.weight("road_alpha", size)
	return divides("two", 2, n)
}

// road rotates and scales pairs of what comes out of the layer.
func (s *Site) road(f *frame, x *tensor) *tensor {
	result := f.Let(f.Call(s.BaseLayer, x))
	dtype, half := result.DType(), s.count("group_size")/2
	f.Set(&result, result.To(s.dtype()))
	g := f.FuncFrame(result)
	first, second := s.roadColumns(g)
	grouped := g.Let(result.Reshape(-1, 2, half))
	x1, x2 := g.Let(grouped.Select(1, 0)), g.Let(grouped.Select(1, 1))
	turned := g.Let(trace.Stack(1, x2.Neg(), x1).Reshape(result.Shape()...))
	f.Set(&result, g.Return(g.Let(result.Mul(first).Add(turned.Mul(second)))))
	return f.Set(&result, result.To(dtype))
}

// roadColumns follows _prepare_cols: what the two of a pair are multiplied by.
func (s *Site) roadColumns(g *frame) (first, second *tensor) {
	h, n := g.FuncFrame(), s.count("group_size")
	theta, alpha := s.w("road_theta"), s.w("road_alpha")
	spread := func(x *tensor) *tensor {
		return h.Let(x.Reshape(-1, n/2).RepeatInterleave(2, 0).Flatten(0, -1))
	}
	part := func(x *tensor, i int64) *tensor { return x.Select(1, i) }
	var cos, sin, one, two *tensor
	switch s.text("variant") {
	case "road_4":
		theta = h.Let(theta.Reshape(-1, 2, n))
		cos = h.Let(part(theta, 0).Cos().Flatten(0, -1))
		sin = h.Let(part(theta, 1).Sin().Flatten(0, -1))
		alpha = h.Let(alpha.Reshape(-1, 2, n))
		one, two = h.Let(part(alpha, 0).Flatten(0, -1)), h.Let(part(alpha, 1).Flatten(0, -1))
	case "road_1":
		theta, alpha = spread(theta), spread(alpha)
		fallthrough
	default:
		cos, sin, one, two = h.Let(theta.Cos()), h.Let(theta.Sin()), alpha, alpha
	}
	first, second = h.Let(one.Mul(cos)), h.Let(two.Mul(sin))
	h.End(first, second)
	g.LetEach(first, second)
	return first, second
}

// hra multiplies the weight by Householder reflections.
func (s *Site) hra(f *frame, x *tensor) *tensor {
	dtype, base, u := x.DType(), s.plain(), s.w("hra_u")
	weight := f.Let(f.Tape().Filled("eye", trace.F32, s.in, s.in))
	g := f.FuncFrame()
	unit := g.Let(u.Div(u.Norm(2, false, 0)))
	delta := g.Let(g.Tape().Filled("eye", u.DType(), s.in, s.in))
	var ui *tensor
	for i := range s.count("r") {
		next := unit.Select(1, i).View(-1, 1)
		if ui == nil {
			ui = g.Let(next)
		} else {
			g.Set(&ui, next)
		}
		g.Set(&delta, delta.Sub(delta.MulScalar().Matmul(ui).Matmul(ui.T())))
	}
	g.End(delta)
	f.Let(delta)
	f.Set(&weight, weight.To(delta.DType()).MM(delta))
	frozen := f.Let(base.Weight.Detach().To(weight.DType()))
	f.Set(&weight, frozen.MM(weight))
	bias := base.Bias.T()
	if bias != nil {
		bias = f.Let(bias.To(weight.DType()))
	}
	f.Set(&x, x.To(weight.DType()))
	result := f.Let(x.Linear(weight, bias))
	return f.Set(&result, result.To(dtype))
}

func (s *Site) addPSOFT() error {
	r := s.count("r")
	if r > min(s.in, s.out) {
		return fmt.Errorf("peft raises there: r=%d is more than the layer's %d x %d", r, s.in, s.out)
	}
	s.Own.Buffer(trace.F32, r, s.in).Buffer(trace.F32, s.out, r) // the cached factors of the weight
	if s.on("psoft_orth") {
		s.weight("weight", r*(r-1)/2)
		s.Own.Buffer(trace.I64, r*(r-1)/2).Buffer(trace.I64, r*(r-1)/2) // rows, cols
	} else {
		s.weight("weight", r, r)
	}
	for _, v := range []string{"b", "a"} {
		if s.on("psoft_mag_" + v) {
			s.weight("vector_"+v, r)
		}
	}
	return s.positive("r")
}

func (s *Site) psoft(f *frame, x *tensor) *tensor {
	result := f.Let(f.Call(s.BaseLayer, x))
	dtype, a, b := result.DType(), s.Own.Held(0), s.Own.Held(1)
	cast := f.Let(x.To(a.DType()))
	dropped := f.Let(f.Call(s.Dropout, cast))
	xa := f.Let(dropped.Matmul(a.T()))
	g := f.FuncFrame(xa)
	rotation := g.Let(s.rotation(g))
	xr := f.Let(g.Return(xa.Matmul(rotation.T())))
	delta := f.Let(xr.Sub(xa).Matmul(b.T()))
	f.Set(&result, result.Add(delta.MulScalar()))
	return f.Set(&result, result.To(dtype))
}

// rotation follows OrthLayer.get_matrix: a rotation by Cayley's formula, or its series, scaled along
// both sides.
func (s *Site) rotation(f *frame) *tensor {
	g, w, r := f.FuncFrame(), s.w("weight"), s.count("r")
	matrix := w
	if s.on("psoft_orth") {
		h, t := g.FuncFrame(), g.Tape()
		q := h.Let(t.Zeros(w.DType(), r, r))
		h.Set(&q, q.IndexPut([]*tensor{s.Own.Held(2), s.Own.Held(3)}, w, false))
		skew := g.Let(h.Return(q.Sub(q.Transpose(0, 1))))
		id := g.Let(t.Filled("eye", w.DType(), r, r))
		if s.on("use_cayley_neumann") {
			matrix = g.Let(id.Clone())
			series(g, matrix, skew, s.count("num_cayley_neumann_terms"), (*tensor).Matmul)
		} else {
			matrix = g.Let(ops.LinalgSolve(id.Sub(skew), id.Add(skew), false))
		}
	}
	g.Let(matrix)
	if s.on("psoft_mag_b") {
		g.Set(&matrix, s.w("vector_b").Unsqueeze(1).Mul(matrix))
	}
	if s.on("psoft_mag_a") {
		g.Set(&matrix, matrix.Mul(s.w("vector_a").Unsqueeze(0)))
	}
	return g.Return(matrix)
}

// series adds the powers of a skew-symmetric matrix to one.
func series(f *frame, sum, q *tensor, terms int64, product func(a, b *tensor) *tensor) {
	if terms > 1 {
		sum.AddInPlace(q)
	}
	if terms > 2 {
		power := f.Let(product(q, q))
		sum.AddInPlace(power)
		for range terms - 3 {
			f.Set(&power, product(power, q))
			sum.AddInPlace(power)
		}
	}
}

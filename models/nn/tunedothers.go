package nn

import (
	"errors"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// feedsForward tells whether (IA)^3 scales what goes into the layer and not what comes out.
func (s *Tuned) feedsForward() bool { return s.named("feedforward_modules") }

func (s *Tuned) addOFT() error {
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
func (s *Tuned) oft(f *frame, x *tensor) *tensor {
	dtype := x.DType()
	f.Set(&x, x.To(s.dtype()))
	g := f.CallFrame(x)
	n := s.in / s.w("oft_R").Size(0)
	rotation := g.Let(s.cayleyNeumann(g, n))
	lead := x.Shape()[:x.NDim()-1]
	blocks := g.Let(x.Reshape(append(append([]int64{}, lead...), s.in/n, n)...))
	rotated := g.Let(trace.Einsum("...rk,rkc->...rc", blocks, rotation))
	f.Set(&x, g.Return(g.Let(rotated.Reshape(x.Shape()...))))
	result := f.Let(f.Call(s.BaseLayer, x.To(dtype)))
	f.Set(&result, result.To(dtype))
	return result
}

// cayleyNeumann is _cayley_batch: a series for the rotations of skew-symmetric matrices.
func (s *Tuned) cayleyNeumann(f *frame, n int64) *tensor {
	vec, t := s.w("oft_R"), f.Tape()
	g := f.FuncFrame()
	h := g.FuncFrame()
	q := h.Let(t.Zeros(vec.DType(), vec.Size(0), n, n))
	q.SetItem(vec, nil, s.Own.Held(0), s.Own.Held(1))
	h.Set(&q, q.Sub(q.Transpose(-2, -1)))
	g.Let(h.Return(q))
	if !s.on("use_cayley_neumann") {
		id := g.Let(t.Filled("eye", vec.DType(), n, n).Unsqueeze(0).Expand(vec.Size(0), n, n))
		return g.Return(id.Add(q).LinalgSolve(id.Sub(q), false))
	}
	r := g.Let(t.Filled("eye", vec.DType(), n, n).Repeat(vec.Size(0), 1, 1))
	series(g, r, q, s.count("num_cayley_neumann_terms"), (*tensor).BMM)
	return g.Return(r)
}

func (s *Tuned) addBOFT() error {
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
func (s *Tuned) boft(f *frame, x *tensor) *tensor {
	t, dtype, data, n := f.Tape(), x.DType(), s.w("boft_R"), s.count("boft_block_size")
	rotation := f.Let(t.Filled("eye", dtype, s.in, s.in))
	scale := f.Let(t.Filled("ones", dtype, s.out, 1))
	blocks := f.Let(data.View(-1, n, n))
	g := f.FuncFrame(blocks)
	skew := g.Let(blocks.Sub(blocks.Transpose(1, 2)).MulScalar())
	id := g.Let(t.Filled("eye", trace.F32, n, n).Unsqueeze(0).Expand(s.in/n, n, n))
	q := g.Let(id.Add(skew).LinalgSolve(id.Sub(skew), false))
	orthogonal := f.Let(g.Return(q))
	whole := f.Let(trace.BlockDiag(orthogonal.Unbind(0)...))
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
	f.Set(&result, result.To(dtype))
	return result
}

func (s *Tuned) addVeRA() error {
	s.weight("vera_lambda_b", s.out)
	s.weight("vera_lambda_d", s.count("r"))
	s.drops("vera_dropout")
	return s.positive("r")
}

// shareVeRA makes the two frozen matrices, which are as wide as the widest of the layers.
func shareVeRA(sites []*Tuned) {
	in, out := widest(sites)
	r, first := sites[0].count("r"), sites[0].Own
	first.Buffer(trace.F32, r, in).Buffer(trace.F32, out, r)
	for _, s := range sites {
		s.shared = first.buffers
	}
}

func (s *Tuned) vera(f *frame, x *tensor) *tensor {
	before := x.DType()
	result := f.Let(f.Call(s.BaseLayer, x))
	dtype := result.DType()
	a, b := s.shared[0].Slice(1, 0, s.in), s.shared[1].Slice(0, 0, s.out)
	f.Let(a)
	f.Let(b)
	f.Set(&x, x.To(s.dtype()))
	low := s.w("vera_lambda_d").Mul(f.Call(s.Dropout, x).Linear(a, nil))
	f.Set(&result, result.Add(s.w("vera_lambda_b").Mul(low.Linear(b, nil))))
	f.Set(&result, result.To(dtype))
	f.Set(&result, result.To(before))
	return result
}

func (s *Tuned) addVBLoRA() error {
	r, n, l := s.count("r"), s.count("num_vectors"), s.count("vector_length")
	if err := divides("vector_length", l, s.in, s.out); err != nil {
		return err
	}
	s.weight("vblora_logits_A", r, s.in/l, n)
	s.weight("vblora_logits_B", s.out/l, r, n)
	s.drops("vblora_dropout")
	return s.positive("r", "topk")
}

// shareVBLoRA makes the bank of vectors.
func shareVBLoRA(sites []*Tuned) {
	first := sites[0]
	first.weight("vblora_vector_bank", first.count("num_vectors"), first.count("vector_length"))
	for _, s := range sites {
		s.borrow("vblora_vector_bank", first)
	}
}

func (s *Tuned) vblora(f *frame, x *tensor) *tensor {
	dtype := x.DType()
	result := f.Let(f.Call(s.BaseLayer, x))
	a, b := s.w("vblora_logits_A"), s.w("vblora_logits_B")
	g := f.FuncFrame()
	g.Discard(a.Select(0, 0).Select(0, 0).IsInf().Any(false))
	left := g.Let(s.mixed(g, a).Reshape(a.Size(0), -1))
	right := g.Let(s.mixed(g, b).Transpose(1, 2).Reshape(-1, b.Size(1)))
	g.End(left, right)
	f.Let(left)
	f.Let(right)
	f.Set(&x, x.To(s.w("vblora_vector_bank").DType()))
	f.Set(&result, result.Add(f.Call(s.Dropout, x).Linear(left, nil).Linear(right, nil)))
	f.Set(&result, result.To(dtype))
	return result
}

// mixed is _get_low_rank_matrix: mixtures of the vectors with the highest scores.
func (s *Tuned) mixed(f *frame, logits *tensor) *tensor {
	g := f.FuncFrame(logits)
	top, places := logits.TopK(s.count("topk"), -1)
	g.Let(top)
	g.Let(places)
	weights := g.Let(top.Softmax(-1))
	return g.Return(weights.Unsqueeze(-1).Mul(s.w("vblora_vector_bank").Index(places)).Sum(false, -2))
}

func (s *Tuned) addRandLoRA() error {
	r := s.count("r")
	if err := s.positive("r"); err != nil {
		return err
	}
	least := min(s.in, s.out)
	s.bases = (least + r - 1) / r
	s.weight("randlora_lambda", r, s.bases)
	s.weight("randlora_gamma", s.bases, least)
	s.drops("randlora_dropout")
	return nil
}

// shareRandLoRA makes the frozen bases, which are as large as the largest of the layers needs.
func shareRandLoRA(sites []*Tuned) {
	in, out := widest(sites)
	r, first, least := sites[0].count("r"), sites[0].Own, min(in, out)
	first.Buffer(trace.F32, r, 1, least).Buffer(trace.F32, max(in, out), (least+r-1)/r, r)
	for _, s := range sites {
		s.shared = first.buffers
	}
}

// uniqueBase is UniqueBaseGrad: frozen bases scaled along two dimensions.
var uniqueBase = &trace.Function{
	Name: "UniqueBaseGradBackward",
	Forward: func(g *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
		out := g.Let(in[1].Unsqueeze(2).Mul(in[0]).Mul(in[2].Unsqueeze(0)))
		ctx.SaveForBackward(in...)
		return []*tensor{out}
	},
	Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
		a, lambda, gamma := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2)
		byLambda := g.Let(trace.Einsum("kbj,kvj,bj->kb", grads[0], a, gamma))
		return []*tensor{nil, byLambda, g.Let(trace.Einsum("kbj,kvj,kb->bj", grads[0], a, lambda))}
	},
}

func (s *Tuned) randlora(f *frame, x *tensor) *tensor {
	dtype := x.DType()
	result := f.Let(f.Call(s.BaseLayer, x))
	g := f.FuncFrame()
	least, most := min(s.in, s.out), max(s.in, s.out)
	a := g.Let(s.shared[0].Slice(1, 0, s.bases).Slice(2, 0, least))
	b := g.Let(s.shared[1].Slice(0, 0, most).Slice(1, 0, s.bases))
	down := g.Let(b.Flatten(1, -1))
	up := g.Let(g.Apply(uniqueBase, a, s.w("randlora_lambda"), s.w("randlora_gamma"))[0].Flatten(0, 1))
	if least == s.in {
		down, up = up, down
	} else {
		down, up = g.Let(down.T()), g.Let(up.T())
	}
	g.End(down, up)
	f.Let(down)
	f.Let(up)
	f.Set(&x, x.To(up.DType()))
	f.Set(&result, result.Add(f.Call(s.Dropout, x).Linear(down, nil).Linear(up, nil).MulScalar()))
	f.Set(&result, result.To(dtype))
	return result
}

func (s *Tuned) addC3A() error {
	n := s.count("block_size")
	if err := divides("block_size", n, s.in, s.out); err != nil {
		return err
	}
	s.weight("c3a_kernel", s.out/n, s.in/n, n)
	return nil
}

// circular is BlockCircularConvolution.
var circular = &trace.Function{
	Name: "BlockCircularConvolutionBackward",
	Forward: func(g *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
		x, w := in[0], in[1]
		lead := x.Shape()[:x.NDim()-1]
		g.Set(&x, x.Reshape(append(append([]int64{}, lead...), w.Size(1), w.Size(2))...))
		ctx.SaveForBackward(x, w)
		g.Set(&x, trace.Einsum("...nb,mnb->...mb", x.FFT(nil, -1), w.FFT(nil, -1)))
		g.Set(&x, x.FFT(nil, -1).Real())
		g.Set(&x, x.Reshape(append(append([]int64{}, lead...), -1)...))
		return []*tensor{x}
	},
	Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
		x, w, grad := ctx.Saved(0), ctx.Saved(1), grads[0]
		lead := grad.Shape()[:grad.NDim()-1]
		flat := append(append([]int64{}, lead...), -1)
		g.Set(&grad, grad.Reshape(append(append([]int64{}, lead...), w.Size(0), w.Size(2))...))
		spectrum := g.Let(grad.FFT(nil, -1))
		gx := g.Let(trace.Einsum("...mb,mnb->...nb", spectrum, w.FFT(nil, -1)).FFT(nil, -1).Real())
		g.Set(&gx, gx.Reshape(flat...))
		gw := g.Let(trace.Einsum("...mb,...nb->mnb", spectrum, x.FFT(nil, -1)).FFT(nil, -1).Real())
		return []*tensor{gx, gw}
	},
}

func (s *Tuned) c3a(f *frame, x *tensor) *tensor {
	dtype := x.DType()
	result := f.Let(f.Call(s.BaseLayer, x))
	f.Set(&x, x.To(trace.F32))
	kernel := f.Let(s.w("c3a_kernel").To(trace.F32))
	f.Set(&x, f.Apply(circular, x, kernel)[0].DivScalar())
	result.AddInPlace(x.To(result.DType()))
	f.Set(&result, result.To(dtype))
	return result
}

func (s *Tuned) addRoAd() error {
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
func (s *Tuned) road(f *frame, x *tensor) *tensor {
	result := f.Let(f.Call(s.BaseLayer, x))
	dtype, half := result.DType(), s.count("group_size")/2
	f.Set(&result, result.To(s.dtype()))
	g := f.FuncFrame(result)
	first, second := s.roadColumns(g)
	grouped := g.Let(result.Reshape(-1, 2, half))
	x1, x2 := g.Let(grouped.Select(1, 0)), g.Let(grouped.Select(1, 1))
	turned := g.Let(trace.Stack(1, x2.Neg(), x1).Reshape(result.Shape()...))
	f.Set(&result, g.Return(g.Let(result.Mul(first).Add(turned.Mul(second)))))
	f.Set(&result, result.To(dtype))
	return result
}

// roadColumns is _prepare_cols: what the two of a pair are multiplied by.
func (s *Tuned) roadColumns(g *frame) (first, second *tensor) {
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
	g.Let(first)
	g.Let(second)
	return first, second
}

func (s *Tuned) addGraLoRA() error {
	r, k := s.count("r"), s.count("gralora_k")
	if err := divides("gralora_k", k, s.in, s.out, r); err != nil {
		return err
	}
	s.weight("gralora_A", k, s.in/k, r)
	s.weight("gralora_B", k, r, s.out/k)
	s.drops("gralora_dropout")
	return s.positive("r")
}

func (s *Tuned) gralora(f *frame, x *tensor) *tensor {
	before, r, k := x.DType(), s.count("r"), s.count("gralora_k")
	result := f.Let(f.Call(s.BaseLayer, x))
	n, l := x.Size(0), x.Size(1)
	parts := f.Call(s.Dropout, x.To(s.dtype())).View(n, l, k, s.in/k)
	mixed := trace.Einsum("blni,nir->blnr", parts, s.w("gralora_A")).View(n, l, k, k, r/k).
		Permute(0, 1, 3, 2, 4).Reshape(n, l, k, r)
	output := f.Let(trace.Einsum("bljr,jro->bljo", mixed, s.w("gralora_B")).Reshape(n, l, -1))
	result.AddInPlace(output.To(result.DType()).MulScalar())
	f.Set(&result, result.To(before))
	return result
}

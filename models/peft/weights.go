package peft

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Methods that compute a weight update as large as the layer's weight.

// forwardWithUpdate records a linear layer plus the product with a computed weight update (_get_delta_activations).
func (s *AdaptedLayer) forwardWithUpdate(f *frame, x *tensor, weight func(g *frame) *tensor) *tensor {
	dtype := x.DType()
	result := f.Bind(f.Call(s.BaseLayer, x))
	g := f.FunctionFrame(x)
	delta := g.Bind(weight(g))
	input := x
	g.Set(&input, input.To(delta.DType()))
	f.Set(&result, result.Add(g.Return(input.Linear(delta, nil))))
	return f.Set(&result, result.To(dtype))
}

// hadaWeight is the autograd.Function HadaWeight of peft's LoHa: the elementwise product of two low-rank products.
var hadaWeight = &trace.Function{
	Name: "HadaWeightBackward",
	Forward: func(_ *frame, ctx *trace.FunctionContext, w []*tensor) []*tensor {
		ctx.SaveForBackward(w...)
		return []*tensor{w[0].MM(w[1]).Mul(w[2].MM(w[3])).MulScalar()}
	},
	Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
		w, grad := ctx.Saved, grads[0]
		g.Set(&grad, grad.MulScalar())
		temp := g.Bind(grad.Mul(w(2).MM(w(3))))
		a1 := g.Bind(temp.MM(w(1).T()))
		b1 := g.Bind(w(0).T().MM(temp))
		g.Set(&temp, grad.Mul(w(0).MM(w(1))))
		a2 := g.Bind(temp.MM(w(3).T()))
		b2 := g.Bind(w(2).T().MM(temp))
		return []*tensor{a1, b1, a2, b2}
	},
}

func (s *AdaptedLayer) loha(f *frame, x *tensor) *tensor {
	return s.forwardWithUpdate(f, x, func(g *frame) *tensor {
		return g.Apply(hadaWeight, s.w("hada_w1_a"), s.w("hada_w1_b"), s.w("hada_w2_a"), s.w("hada_w2_b"))[0]
	})
}

// factorization returns the two factors into which LoKr splits a width, the smaller one first.
func factorization(n, factor int64) (small, large int64) {
	if factor > 0 && n%factor == 0 {
		return factor, n / factor
	}
	if factor == -1 {
		factor = n
	}
	small, large = 1, n
	length := small + large
	for small < large {
		next := small + 1
		for n%next != 0 {
			next++
		}
		if next+n/next > length || next > factor {
			break
		}
		small, large = next, n/next
	}
	return min(small, large), max(small, large)
}

func (s *AdaptedLayer) addLoKr() error {
	r, factor := s.count("r"), s.count("decompose_factor")
	if factor != -1 && factor < 1 {
		return fmt.Errorf("invalid decompose_factor=%d: need -1 or a number above 0", factor)
	}
	m, n := factorization(s.in, factor)
	l, k := factorization(s.out, factor)
	s.addFactor("lokr_w1", l, m, r, s.enabled("decompose_both"))
	s.addFactor("lokr_w2", k, n, r, true)
	return s.requirePositive("r")
}

// addFactor adds one of LoKr's matrices, or two low-rank ones if these are smaller.
func (s *AdaptedLayer) addFactor(name string, rows, columns, r int64, splits bool) {
	if splits && 2*r < max(rows, columns) {
		s.addWeight(name+"_a", rows, r)
		s.addWeight(name+"_b", r, columns)
		return
	}
	s.addWeight(name, rows, columns)
}

func (s *AdaptedLayer) lokr(f *frame, x *tensor) *tensor {
	return s.forwardWithUpdate(f, x, func(g *frame) *tensor {
		h := g.FunctionFrame()
		factor := func(name string) *tensor {
			if s.has(name) {
				return s.w(name)
			}
			return h.Bind(s.w(name + "_a").Matmul(s.w(name + "_b")))
		}
		left, right := factor("lokr_w1"), factor("lokr_w2")
		return h.Return(h.Bind(left.Kron(right)).MulScalar())
	})
}

func (s *AdaptedLayer) addGLoRA() error {
	r, biased := s.count("r"), s.linear().Bias != nil
	path := func(name, kind string, rows, columns int64, inverted bool) {
		switch {
		case kind == "lora":
			s.addWeight(name+"d", rows, r)
			s.addWeight(name+"u", r, columns)
		case kind == "vector" && inverted:
			s.addWeight(name, rows)
		case kind == "vector":
			s.addWeight(name, rows, 1)
		case kind == "constant":
			s.addWeight(name, 1)
		case inverted:
			s.Own.AddBuffer(s.BaseType(), rows)
		default:
			s.Own.AddBuffer(s.BaseType(), rows, columns)
		}
	}
	withBias := func(kind string) string {
		if biased {
			return kind
		}
		return none
	}
	path("A", s.text("config_A_B"), s.out, s.in, false)
	path("B", s.text("config_A_B"), s.out, s.in, false)
	path("C", withBias(s.text("config_C")), s.in, 1, false)
	path("D", withBias(s.text("config_D_E")), s.out, 1, true)
	path("E", withBias(s.text("config_D_E")), s.out, 1, true)
	return s.requirePositive("r")
}

func (s *AdaptedLayer) glora(f *frame, x *tensor) *tensor {
	base := f.Bind(f.Call(s.BaseLayer, x))
	dtype, result, held := base.DType(), f.Bind(base), 0
	w, bias := s.linear().Weight.TensorOrNil(), s.linear().Bias.TensorOrNil()
	weights, others := s.text("config_A_B"), s.text("config_D_E")
	a, b := s.gloraPath(f, "A", weights, &held), s.gloraPath(f, "B", weights, &held)
	c := s.gloraPath(f, "C", s.text("config_C"), &held)
	d, e := s.gloraPath(f, "D", others, &held), s.gloraPath(f, "E", others, &held)
	weight := f.Bind(w.Add(w.Mul(a)).Add(b))
	if bias != nil {
		bias = f.Bind(bias.Add(bias.Mul(d)).Add(e).Add(w.Matmul(c).Squeeze(-1)))
	}
	adapted := f.Bind(x.Linear(weight, bias))
	f.Set(&result, result.Add(adapted))
	f.Set(&result, result.Sub(base.MulScalar()))
	return f.Set(&result, result.To(dtype))
}

func (s *AdaptedLayer) addMiSS() error {
	r, mini := s.count("r"), s.count("mini_r")
	switch s.text("init_weights") {
	case "bat":
		if err := requireDivisor("r", r, s.in, s.out); err != nil {
			return err
		}
		s.addWeight("miss_block", s.out/r, r, r)
	case "mini":
		if err := requireDivisor("mini_r", mini, s.out); err != nil {
			return err
		}
		s.addWeight("miss_block", r, mini)
	default:
		s.addWeight("miss_block", r, s.out)
	}
	if r > s.in {
		return fmt.Errorf("peft refuses r=%d, more than the %d inputs of a layer; use a smaller rank", r, s.in)
	}
	return s.requirePositive("r")
}

func (s *AdaptedLayer) miss(f *frame, x *tensor) *tensor {
	if s.text("init_weights") == "bat" {
		return s.missBat(f, x)
	}
	dtype, block := x.DType(), s.w("miss_block")
	result := f.Bind(f.Call(s.BaseLayer, x))
	if n := s.out / block.Size(1); n > 1 {
		block = f.Bind(block.Repeat(1, n))
	}
	r := block.Size(0)
	if over := x.Size(-1) % r; over != 0 {
		f.Set(&x, x.Pad(0, r-over))
	}
	f.Set(&x, x.To(block.DType()))
	lead := x.Shape()[:x.NDim()-1]
	blocks := f.Call(s.Dropout, x).Reshape(append(slices.Clone(lead), x.Size(-1)/r, r)...)
	f.Set(&result, result.Add(blocks.Sum(false, -2).Matmul(block)))
	return f.Set(&result, result.To(dtype))
}

// gloraPath returns the tensor of one of GLoRA's paths: its parameter, or the buffer at *place, which it then advances.
func (s *AdaptedLayer) gloraPath(f *frame, name, kind string, place *int) *tensor {
	var y *tensor
	switch {
	case s.has(name + "d"):
		y = s.w(name + "d").Matmul(s.w(name + "u"))
	case s.has(name) && kind == "constant":
		y = s.w(name).Select(0, 0)
	case s.has(name):
		y = s.w(name)
	default:
		y = s.Own.BufferTensor(*place)
		*place++
	}
	return f.Bind(y.To(s.linear().Weight.TensorOrNil().DType()))
}

// missBat records the forward of MiSS's variant "bat", in which the blocks transform the weight itself.
func (s *AdaptedLayer) missBat(f *frame, x *tensor) *tensor {
	dtype, base, block := x.DType(), s.linear(), s.w("miss_block")
	weight, r := f.Bind(base.Weight.Clone()), block.Size(-1)
	g := f.FunctionFrame()
	cast := g.Bind(weight.To(block.DType()))
	parts := g.Bind(cast.Reshape(s.out/r, r, s.in/r, r).Permute(2, 0, 1, 3))
	changed := g.Bind(parts.Matmul(block).Add(block))
	delta := f.Bind(g.Return(changed.Permute(1, 2, 0, 3).Reshape(s.out, s.in)))
	f.Set(&weight, weight.Add(delta))
	f.Set(&x, x.To(weight.DType()))
	bias := base.Bias.TensorOrNil()
	if bias != nil {
		bias = f.Bind(bias.To(weight.DType()))
	}
	result := f.Bind(x.Linear(weight, bias))
	return f.Set(&result, result.To(dtype))
}

func (s *AdaptedLayer) addPEANuT() error {
	r := s.count("r")
	s.addWeight("peanut_A", r, s.out)
	s.addWeight("peanut_B", s.out, r)
	for _, part := range []string{"encoder", "decoder"} {
		for i := range s.count("depth") {
			s.addWeight(fmt.Sprint(part, i), r, r)
		}
	}
	return s.requirePositive("r")
}

// peanut records PEANuT's forward, which computes the weight's update from the weight itself by a small network.
func (s *AdaptedLayer) peanut(f *frame, x *tensor) *tensor {
	result := f.Bind(f.Call(s.BaseLayer, x))
	dtype := result.DType()
	g := f.FunctionFrame()
	act := func(y *tensor) *tensor {
		switch s.text("act_fn") {
		case "gelu":
			return y.GELU()
		case "silu":
			return y.SiLU()
		case "tanh":
			return y.Tanh()
		case "identity":
			return y
		}
		return y.ReLU()
	}
	a := s.w("peanut_A")
	weight := g.Bind(s.linear().Weight.Transpose(0, 1).To(a.DType()))
	delta := g.Bind(act(weight.Matmul(a.T())))
	var residuals []*tensor
	for i := range s.count("depth") {
		residuals = append(residuals, g.Bind(delta))
		g.Set(&delta, act(delta.Linear(s.w(fmt.Sprint("encoder", i)), nil)))
	}
	for i := range residuals {
		g.Set(&delta, act(delta.Linear(s.w(fmt.Sprint("decoder", i)), nil)))
		g.Set(&delta, delta.Add(residuals[len(residuals)-1-i]))
	}
	g.Set(&delta, delta.Linear(s.w("peanut_B"), nil))
	whole := f.Bind(g.Return(delta.MulScalar().Transpose(0, 1)))
	cast := f.Bind(x.To(whole.DType()))
	more := f.Bind(cast.Matmul(whole.Transpose(0, 1)))
	return f.Set(&result, result.Add(more.To(dtype)))
}

func (s *AdaptedLayer) addSHiRA() error {
	n := s.count("r") * (s.in + s.out)
	s.addWeight("shira_weight", n)
	s.Own.AddBuffer(trace.I32, 2, n) // shira_indices
	if all := s.in * s.out; n > all {
		return fmt.Errorf("peft refuses r=%d: it would train %d elements, and the weight of a layer has only %d; use "+
			"a smaller rank", s.count("r"), n, all)
	}
	return s.requirePositive("r")
}

// shira records SHiRA's forward, which adds trained values to some elements of the weight, as a sparse tensor.
func (s *AdaptedLayer) shira(f *frame, x *tensor) *tensor {
	base, values := s.linear(), s.w("shira_weight")
	weight := f.Bind(f.Apply(s.sparseSum(), values.MulScalar())[0])
	return f.Bind(x.Linear(weight, base.Bias.TensorOrNil()))
}

// sparseSum returns the autograd.Function of weight.clone() += torch.sparse_coo_tensor(indices, values), as
// add_out_dense_sparse_cuda computes it if the dtypes of values and weight differ.
func (s *AdaptedLayer) sparseSum() *trace.Function {
	w := s.linear().Weight.TensorOrNil()
	return &trace.Function{
		Name: "AddBackward0",
		Forward: func(g *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			t, n := g.Tape(), in[0].Numel()
			sum := g.Bind(w.Detach().Clone())
			indices := g.Bind(t.New("sparse_coo_tensor", program.Activations, trace.I64, 2, n))
			ctx.SaveForBackward(indices, in[0])
			wide := g.Bind(sum.To(in[0].DType()))
			flat := g.Bind(t.New("flatten_indices", program.Temporaries, trace.I64, n))
			if wide != sum {
				into := g.Bind(wide.EmptyLike())
				into.IndexAddInPlace(0, flat, in[0])
			}
			return []*tensor{sum}
		},
		Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			t, wide := g.Tape(), g.Bind(grads[0].To(trace.F32))
			flat := g.Bind(t.New("flatten_indices", program.Temporaries, trace.I64, ctx.Saved(0).Size(1)))
			return []*tensor{wide.Reshape(-1).IndexSelect(0, flat)}
		},
	}
}

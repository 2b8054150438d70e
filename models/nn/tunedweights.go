package nn

import (
	"fmt"
	"strings"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Methods that compute another weight for the layer, as large as its own.

func (s *Tuned) addHiRA() error {
	r := s.count("r")
	s.weight("hira_A", r, s.in)
	s.weight("hira_B", s.out, r)
	s.drops("hira_dropout")
	return s.positive("r")
}

func (s *Tuned) hira(f *frame, x *tensor) *tensor {
	result := f.Let(f.Call(s.BaseLayer, x))
	dtype, a, b := result.DType(), s.w("hira_A"), s.w("hira_B")
	product := f.Let(a.T().MM(b.T()))
	f.Set(&x, x.To(a.DType()))
	dropped := f.Let(f.Call(s.Dropout, x))
	more := f.Let(dropped.Linear(s.plain().Weight.Mul(product.T()), nil))
	f.Set(&result, result.Add(more))
	f.Set(&result, result.To(dtype))
	return result
}

func (s *Tuned) addGLoRA() error {
	r, biased := s.count("r"), s.plain().Bias != nil
	path := func(name, kind string, rows, columns int64, inverted bool) {
		switch {
		case kind == "lora":
			s.weight(name+"d", rows, r)
			s.weight(name+"u", r, columns)
		case kind == "vector" && inverted:
			s.weight(name, rows)
		case kind == "vector":
			s.weight(name, rows, 1)
		case kind == "constant":
			s.weight(name, 1)
		case inverted:
			s.Own.Buffer(s.baseType(), rows)
		default:
			s.Own.Buffer(s.baseType(), rows, columns)
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
	return s.positive("r")
}

// path is what a path of GLoRA gives: parameters, or else the buffer of a place, which goes on to
// the next.
func (s *Tuned) gloraPath(f *frame, name, kind string, place *int) *tensor {
	var y *tensor
	switch {
	case s.has(name + "d"):
		y = s.w(name + "d").Matmul(s.w(name + "u"))
	case s.has(name) && kind == "constant":
		y = s.w(name).Select(0, 0)
	case s.has(name):
		y = s.w(name)
	default:
		y = s.Own.Held(*place)
		*place++
	}
	return f.Let(y.To(s.plain().Weight.T().DType()))
}

func (s *Tuned) glora(f *frame, x *tensor) *tensor {
	base := f.Let(f.Call(s.BaseLayer, x))
	dtype, result, held := base.DType(), f.Let(base), 0
	w, bias := s.plain().Weight.T(), s.plain().Bias.T()
	weights, others := s.text("config_A_B"), s.text("config_D_E")
	a, b := s.gloraPath(f, "A", weights, &held), s.gloraPath(f, "B", weights, &held)
	c := s.gloraPath(f, "C", s.text("config_C"), &held)
	d, e := s.gloraPath(f, "D", others, &held), s.gloraPath(f, "E", others, &held)
	weight := f.Let(w.Add(w.Mul(a)).Add(b))
	if bias != nil {
		bias = f.Let(bias.Add(bias.Mul(d)).Add(e).Add(w.Matmul(c).Squeeze(-1)))
	}
	adapted := f.Let(x.Linear(weight, bias))
	f.Set(&result, result.Add(adapted))
	f.Set(&result, result.Sub(base.MulScalar()))
	f.Set(&result, result.To(dtype))
	return result
}

// missBat is MiSS whose blocks change the weight itself.
func (s *Tuned) missBat(f *frame, x *tensor) *tensor {
	dtype, base, block := x.DType(), s.plain(), s.w("miss_block")
	weight, r := f.Let(base.Weight.Clone()), block.Size(-1)
	g := f.FuncFrame()
	cast := g.Let(weight.To(block.DType()))
	parts := g.Let(cast.Reshape(s.out/r, r, s.in/r, r).Permute(2, 0, 1, 3))
	changed := g.Let(parts.Matmul(block).Add(block))
	delta := f.Let(g.Return(changed.Permute(1, 2, 0, 3).Reshape(s.out, s.in)))
	f.Set(&weight, weight.Add(delta))
	f.Set(&x, x.To(weight.DType()))
	bias := base.Bias.T()
	if bias != nil {
		bias = f.Let(bias.To(weight.DType()))
	}
	result := f.Let(x.Linear(weight, bias))
	f.Set(&result, result.To(dtype))
	return result
}

func (s *Tuned) addPEANuT() error {
	r := s.count("r")
	s.weight("peanut_A", r, s.out)
	s.weight("peanut_B", s.out, r)
	for _, part := range []string{"encoder", "decoder"} {
		for i := range s.count("depth") {
			s.weight(fmt.Sprint(part, i), r, r)
		}
	}
	return s.positive("r")
}

// peanut computes what is added to the weight from the weight itself.
func (s *Tuned) peanut(f *frame, x *tensor) *tensor {
	result := f.Let(f.Call(s.BaseLayer, x))
	dtype := result.DType()
	g := f.FuncFrame()
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
	weight := g.Let(s.plain().Weight.Transpose(0, 1).To(a.DType()))
	delta := g.Let(act(weight.Matmul(a.T())))
	var residuals []*tensor
	for i := range s.count("depth") {
		residuals = append(residuals, g.Let(delta))
		g.Set(&delta, act(delta.Linear(s.w(fmt.Sprint("encoder", i)), nil)))
	}
	for i := range residuals {
		g.Set(&delta, act(delta.Linear(s.w(fmt.Sprint("decoder", i)), nil)))
		g.Set(&delta, delta.Add(residuals[len(residuals)-1-i]))
	}
	g.Set(&delta, delta.Linear(s.w("peanut_B"), nil))
	whole := f.Let(g.Return(delta.MulScalar().Transpose(0, 1)))
	cast := f.Let(x.To(whole.DType()))
	more := f.Let(cast.Matmul(whole.Transpose(0, 1)))
	f.Set(&result, result.Add(more.To(dtype)))
	return result
}

func (s *Tuned) addSHiRA() error {
	n := s.count("r") * (s.in + s.out)
	s.weight("shira_weight", n)
	s.Own.Buffer(trace.I32, 2, n) // shira_indices
	if all := s.in * s.out; n > all {
		return fmt.Errorf("peft raises there: r=%d makes %d places of the %d of the weight", s.count("r"), n, all)
	}
	return s.positive("r")
}

// shira adds values at places of the weight, given as a sparse tensor.
func (s *Tuned) shira(f *frame, x *tensor) *tensor {
	base, values := s.plain(), s.w("shira_weight")
	weight := f.Let(f.Apply(s.sparseSum(), values.MulScalar())[0])
	return f.Let(x.Linear(weight, base.Bias.T()))
}

// sparseSum is weight.clone() += torch.sparse_coo_tensor(indices, values), as
// add_out_dense_sparse_cuda does it where the values are of another type than the weight.
func (s *Tuned) sparseSum() *trace.Function {
	w := s.plain().Weight.T()
	return &trace.Function{
		Name: "AddBackward0",
		Forward: func(g *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			t, n := g.Tape(), in[0].Numel()
			sum := g.Let(w.Detach().Clone())
			indices := g.Let(t.New("sparse_coo_tensor", program.Activations, trace.I64, 2, n))
			ctx.SaveForBackward(indices, in[0])
			wide := g.Let(sum.To(in[0].DType()))
			flat := g.Let(t.New("flatten_indices", program.Temporaries, trace.I64, n))
			if wide != sum {
				into := g.Let(wide.EmptyLike())
				into.IndexAddInPlace(0, flat, in[0])
			}
			return []*tensor{sum}
		},
		Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			t, wide := g.Tape(), g.Let(grads[0].To(trace.F32))
			flat := g.Let(t.New("flatten_indices", program.Temporaries, trace.I64, ctx.Saved(0).Size(1)))
			return []*tensor{wide.Reshape(-1).IndexSelect(0, flat)}
		},
	}
}

func (s *Tuned) addSupertuning() error {
	n := int64(float64(s.in*s.out) * (1 - s.number("sparsity")))
	s.Own.Buffer(trace.I32, n) // supertuning_indices
	s.weight("supertuning_values", n)
	if s.text("r") != none {
		r, err := s.ranked("r")
		if err != nil {
			return err
		}
		s.weight("supertuning_lora_A", r, s.in)
		s.weight("supertuning_lora_B", s.out, r)
	}
	s.drops("lora_dropout")
	if n < 1 {
		return fmt.Errorf("peft raises there: sparsity=%s leaves nothing to train", s.text("sparsity"))
	}
	return nil
}

func (s *Tuned) supertuning(f *frame, x *tensor) *tensor {
	base := s.plain()
	whole := f.Let(base.Weight.Reshape(-1))
	indices := f.Let(s.Own.Held(0).To(trace.I64))
	values := f.Let(s.w("supertuning_values").To(whole.DType()))
	f.Set(&whole, whole.ScatterAdd(indices, values))
	result := f.Let(x.Linear(whole.Reshape(s.out, s.in), base.Bias.T()))
	if s.has("supertuning_lora_A") {
		a := s.w("supertuning_lora_A")
		dropped := f.Let(f.Call(s.Dropout, x).To(a.DType()))
		low := f.Let(dropped.Linear(a, nil).Linear(s.w("supertuning_lora_B"), nil))
		f.Set(&result, result.Add(low.MulScalar().To(result.DType())))
	}
	return result
}

// waveft transforms coefficients at some places of a matrix back from wavelets of the family db1.
func (s *Tuned) waveft(f *frame, x *tensor) *tensor {
	return s.withWeight(f, x, func(g *frame) *tensor {
		h, t, spectrum := g.FuncFrame(), g.Tape(), s.w("waveft_spectrum")
		n := spectrum.Numel()
		indices := h.Let(t.New("to_device", program.Temporaries, trace.I64, 2, n))
		rows, columns := s.out+s.out%2, s.in+s.in%2
		dense := h.Let(t.Zeros(spectrum.DType(), rows, columns))
		if !s.on("use_idwt") {
			dense.SetItem(spectrum, indices.Select(0, 0), indices.Select(0, 1))
			return h.Return(dense.MulScalar())
		}
		padded := h.Let(indices.Clone())
		mask := h.Let(padded.Select(0, 0).GtScalar().And(padded.Select(0, 1).GtScalar()))
		kept := h.Let(t.New("index", program.Temporaries, trace.I64, 2, n))
		values := h.Let(h.Apply(masked, spectrum, mask)[0])
		dense.SetItem(values, kept.Select(0, 0), kept.Select(0, 1))
		a, b := rows/2, columns/2
		parts := make([]*tensor, 4)
		for i, r := range []int64{0, a} {
			for j, c := range []int64{0, b} {
				parts[2*i+j] = dense.Slice(0, r, r+a).Slice(1, c, c+b).Unsqueeze(0)
			}
		}
		stacked := trace.Stack(1, parts...)
		filter := h.Let(t.Zeros(spectrum.DType(), 4, 1, 2, 2))
		whole := stacked.Conv(filter, nil, trace.ConvArgs{Stride: []int64{2, 2}, Transposed: true})
		return h.Return(whole.Squeeze(1).Squeeze(0).MulScalar())
	})
}

// masked is the index of a vector by a mask of which all is true.
var masked = &trace.Function{
	Name: "IndexBackward0",
	Forward: func(g *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
		ctx.SaveForBackward(in[1])
		places := g.Let(g.Tape().New("nonzero", program.Temporaries, trace.I64, in[0].Numel()))
		return []*tensor{in[0].IndexSelect(0, places)}
	},
	Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
		places := g.Let(g.Tape().New("nonzero", program.Temporaries, trace.I64, ctx.Saved(0).Numel()))
		grad := g.Let(grads[0].ZerosLike())
		grad.IndexCopyInPlace(0, places, grads[0])
		return []*tensor{grad, nil}
	},
}

// addLoRAVariant gives a site the parameters of a variant of LoRA.
func (s *Tuned) addLoRAVariant() error {
	r := s.count("r")
	down, up := []int64{r, s.in}, []int64{s.out, r}
	if s.method.is("bdlora") {
		n := s.count("nblocks")
		if s.named("target_modules_bd_a") {
			down[1] /= n
		} else if s.named("target_modules_bd_b") {
			up[1] /= n
		}
		if err := divides("nblocks", n, s.in, s.out, r); err != nil {
			return err
		}
	}
	frozen := map[string]string{"lorafa": "lora_A", "mica": "lora_B"}[s.method.name]
	for _, p := range []struct {
		name string
		dims []int64
	}{{"lora_A", down}, {"lora_B", up}} {
		if p.name == frozen {
			s.Own.Buffer(trace.F32, p.dims...)
		} else {
			s.weight(p.name, p.dims...)
		}
	}
	if s.method.is("kasa") {
		s.weight("lora_diag", r)
	}
	s.drops("lora_dropout")
	return s.positive("r")
}

// named tells whether an option that is a list of names joined by "+" has one that the layer's
// path ends in.
func (s *Tuned) named(key string) bool {
	for name := range strings.SplitSeq(s.text(key), "+") {
		if s.path == name || strings.HasSuffix(s.path, "."+name) {
			return true
		}
	}
	return false
}

func (s *Tuned) loraVariant(f *frame, x *tensor) *tensor {
	result := f.Let(f.Call(s.BaseLayer, x))
	dtype := result.DType()
	f.Set(&x, x.To(s.dtype()))
	through := func(name string, y *tensor, in, out int64) *tensor {
		if !s.has(name) {
			return y.Linear(s.Own.Held(0), nil)
		}
		w := s.w(name)
		if n := in / w.Size(1); n > 1 {
			return s.blockDiagonal(f, y, w, n, out)
		}
		return y.Linear(w, nil)
	}
	r := s.count("r")
	low := through("lora_A", f.Call(s.Dropout, x), s.in, r)
	if s.has("lora_diag") {
		f.Let(low)
		low = low.Mul(s.w("lora_diag"))
	}
	more := through("lora_B", low, r, s.out).MulScalar()
	if s.method.is("bdlora") {
		result.AddInPlace(more)
	} else {
		f.Set(&result, result.Add(more))
	}
	f.Set(&result, result.To(dtype))
	return result
}

// blockDiagonal is BlockDiagonalLinear: n products beside each other.
func (s *Tuned) blockDiagonal(f *frame, x, w *tensor, n, out int64) *tensor {
	g, shape := f.CallFrame(x), append(append([]int64{}, x.Shape()[:x.NDim()-1]...), -1)
	g.Set(&x, x.Reshape(-1, x.Size(-1)))
	g.Set(&x, x.Reshape(-1, n, x.Size(-1)/n))
	y := g.Let(trace.Einsum("bim,inm->bin", x, w.View(n, out/n, w.Size(1))))
	return g.Return(y.Reshape(shape...))
}

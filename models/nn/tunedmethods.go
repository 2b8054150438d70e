package nn

import (
	"fmt"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// methods are those of peft by their names. What each computes follows tuners/NAME/layer.py of
// peft 0.21.
var methods = map[string]*Method{
	"adalora": {
		Options: "init_r=12 lora_dropout=0 importance=false",
		add:     (*Tuned).addAdaLoRA, forward: (*Tuned).adalora, penalty: orthogonal,
	},
	"bdlora": {
		Options: "r=8 nblocks=1 target_modules_bd_a=none target_modules_bd_b=none lora_dropout=0",
		add:     (*Tuned).addLoRAVariant, forward: (*Tuned).loraVariant,
	},
	"beft": {add: (*Tuned).addBEFT, forward: (*Tuned).beft},
	"boft": {
		Options: "boft_block_size=4 boft_n_butterfly_factor=1 boft_P=gpu|cpu",
		add:     (*Tuned).addBOFT, forward: (*Tuned).boft,
	},
	"c3a": {Options: "block_size=256", add: (*Tuned).addC3A, forward: (*Tuned).c3a},
	"deft": {
		Options: "r=8 para=false decomposition_method=relu|qr deft_dropout=0",
		add:     (*Tuned).addDEFT, forward: (*Tuned).deft,
	},
	"delora":    {Options: "r=8 module_dropout=0", add: (*Tuned).addDeLoRA, forward: (*Tuned).delora},
	"fourierft": {Options: "n_frequency=1000", add: (*Tuned).addFourierFT, forward: (*Tuned).fourierFT},
	"glora": {
		Options: "r=8 config_A_B=lora|vector|constant|none config_C=lora|vector|none config_D_E=constant|vector|none",
		add:     (*Tuned).addGLoRA, forward: (*Tuned).glora,
	},
	"gralora": {Options: "r=32 gralora_k=2 gralora_dropout=0", add: (*Tuned).addGraLoRA, forward: (*Tuned).gralora},
	"hira":    {Options: "r=32 hira_dropout=0", add: (*Tuned).addHiRA, forward: (*Tuned).hira},
	"hra":     {Options: "r=8", add: (*Tuned).addHRA, forward: (*Tuned).hra},
	"ia3":     {Options: "feedforward_modules=none", add: (*Tuned).addIA3, forward: (*Tuned).ia3},
	"kasa":    {Options: "r=8 lora_dropout=0", add: (*Tuned).addLoRAVariant, forward: (*Tuned).loraVariant},
	"lily": {
		Options: "r=32 stride_A=1 num_B=2", add: (*Tuned).addLily, share: shareLily, forward: (*Tuned).lily,
	},
	"loha": {Options: "r=8", add: (*Tuned).addLoHa, forward: (*Tuned).loha},
	"lokr": {
		Options: "r=8 decompose_both=false decompose_factor=-1", add: (*Tuned).addLoKr, forward: (*Tuned).lokr,
	},
	"lorafa": {Options: "r=8 lora_dropout=0", add: (*Tuned).addLoRAVariant, forward: (*Tuned).loraVariant},
	"mica":   {Options: "r=8 lora_dropout=0", add: (*Tuned).addLoRAVariant, forward: (*Tuned).loraVariant},
	"miss": {
		Options: "r=64 mini_r=1 miss_dropout=0 init_weights=true|bat|mini",
		add:     (*Tuned).addMiSS, forward: (*Tuned).miss,
	},
	"oft": {
		Options: "r=0 oft_block_size=32 use_cayley_neumann=true num_cayley_neumann_terms=5",
		add:     (*Tuned).addOFT, forward: (*Tuned).oft,
	},
	"osf": {Options: "effective_rank=none rank_pattern=none", add: (*Tuned).addOSF, forward: (*Tuned).osf},
	"peanut": {
		Options: "r=32 depth=0 act_fn=relu|gelu|silu|tanh|identity", add: (*Tuned).addPEANuT, forward: (*Tuned).peanut,
	},
	"p_tuning": {
		Options: "num_virtual_tokens=20 encoder_hidden_size=0 encoder_reparameterization_type=MLP|LSTM",
		words:   true, add: (*Tuned).addPTuning, forward: (*Tuned).prompted,
	},
	"prompt_tuning": {
		Options: "num_virtual_tokens=20", words: true, add: (*Tuned).addPromptTuning, forward: (*Tuned).prompted,
	},
	"psoft": {
		Options: "r=32 psoft_orth=true psoft_mag_a=true psoft_mag_b=true use_cayley_neumann=false " +
			"num_cayley_neumann_terms=5 psoft_dropout=0",
		add: (*Tuned).addPSOFT, forward: (*Tuned).psoft,
	},
	"pvera": {Options: "r=256 pvera_dropout=0", add: (*Tuned).addPVeRA, share: sharePVeRA, forward: (*Tuned).pvera},
	"randlora": {
		Options: "r=32 randlora_dropout=0", add: (*Tuned).addRandLoRA, share: shareRandLoRA, forward: (*Tuned).randlora,
	},
	"road": {
		Options: "variant=road_1|road_2|road_4 group_size=64", add: (*Tuned).addRoAd, forward: (*Tuned).road,
	},
	"shira": {Options: "r=32", add: (*Tuned).addSHiRA, forward: (*Tuned).shira},
	"supertuning": {
		Options: "sparsity=0.99 r=none rank_pattern=none lora_dropout=0",
		add:     (*Tuned).addSupertuning, forward: (*Tuned).supertuning,
	},
	"tinylora": {
		Options: "r=2 u=64 weight_tying=0 tinylora_dropout=0",
		add:     (*Tuned).addTinyLoRA, share: shareTinyLoRA, forward: (*Tuned).tinylora,
	},
	"trainable_tokens": {
		Options: "token_indices=none", words: true, add: (*Tuned).addTrainableTokens, forward: (*Tuned).trainableTokens,
	},
	"unilora": {
		Options: "r=4 theta_d_length=256 unilora_dropout=0",
		add:     (*Tuned).addUniLoRA, share: shareUniLoRA, forward: (*Tuned).unilora,
	},
	"vblora": {
		Options: "r=4 num_vectors=256 vector_length=256 topk=2 vblora_dropout=0",
		add:     (*Tuned).addVBLoRA, share: shareVBLoRA, forward: (*Tuned).vblora,
	},
	"vera": {Options: "r=256 vera_dropout=0", add: (*Tuned).addVeRA, share: shareVeRA, forward: (*Tuned).vera},
	"waveft": {
		Options: "n_frequency=2592 use_idwt=true", add: (*Tuned).addWaveFT, forward: (*Tuned).waveft,
	},
}

// none is the value of an option that is not set.
const none = "none"

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

func (s *Tuned) addLoHa() error {
	r := s.count("r")
	for _, i := range []string{"1", "2"} {
		s.weight("hada_w"+i+"_a", s.out, r)
		s.weight("hada_w"+i+"_b", r, s.in)
	}
	return s.positive("r")
}

// hadaWeight is HadaWeight: the elementwise product of two products of low rank.
var hadaWeight = &trace.Function{
	Name: "HadaWeightBackward",
	Forward: func(_ *frame, ctx *trace.FunctionContext, w []*tensor) []*tensor {
		ctx.SaveForBackward(w...)
		return []*tensor{w[0].MM(w[1]).Mul(w[2].MM(w[3])).MulScalar()}
	},
	Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
		w, grad := ctx.Saved, grads[0]
		g.Set(&grad, grad.MulScalar())
		temp := g.Let(grad.Mul(w(2).MM(w(3))))
		a1 := g.Let(temp.MM(w(1).T()))
		b1 := g.Let(w(0).T().MM(temp))
		g.Set(&temp, grad.Mul(w(0).MM(w(1))))
		a2 := g.Let(temp.MM(w(3).T()))
		b2 := g.Let(w(2).T().MM(temp))
		return []*tensor{a1, b1, a2, b2}
	},
}

func (s *Tuned) loha(f *frame, x *tensor) *tensor {
	return s.withWeight(f, x, func(g *frame) *tensor {
		return g.Apply(hadaWeight, s.w("hada_w1_a"), s.w("hada_w1_b"), s.w("hada_w2_a"), s.w("hada_w2_b"))[0]
	})
}

// withWeight adds a linear layer with a computed weight (_get_delta_activations).
func (s *Tuned) withWeight(f *frame, x *tensor, weight func(g *frame) *tensor) *tensor {
	dtype := x.DType()
	result := f.Let(f.Call(s.BaseLayer, x))
	g := f.FuncFrame(x)
	delta := g.Let(weight(g))
	input := x
	g.Set(&input, input.To(delta.DType()))
	f.Set(&result, result.Add(g.Return(input.Linear(delta, nil))))
	f.Set(&result, result.To(dtype))
	return result
}

// factorization is how LoKr splits a width in two factors, the smaller one first.
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

func (s *Tuned) addLoKr() error {
	r, factor := s.count("r"), s.count("decompose_factor")
	if factor != -1 && factor < 1 {
		return fmt.Errorf("decompose_factor=%d must be -1 or above zero", factor)
	}
	m, n := factorization(s.in, factor)
	l, k := factorization(s.out, factor)
	s.factor("lokr_w1", l, m, r, s.on("decompose_both"))
	s.factor("lokr_w2", k, n, r, true)
	return s.positive("r")
}

// factor is a matrix, or two of low rank where that is smaller.
func (s *Tuned) factor(name string, rows, columns, r int64, splits bool) {
	if splits && 2*r < max(rows, columns) {
		s.weight(name+"_a", rows, r)
		s.weight(name+"_b", r, columns)
		return
	}
	s.weight(name, rows, columns)
}

func (s *Tuned) lokr(f *frame, x *tensor) *tensor {
	return s.withWeight(f, x, func(g *frame) *tensor {
		h := g.FuncFrame()
		factor := func(name string) *tensor {
			for _, own := range s.Own.own {
				if own == name {
					return s.w(name)
				}
			}
			return h.Let(s.w(name + "_a").Matmul(s.w(name + "_b")))
		}
		left, right := factor("lokr_w1"), factor("lokr_w2")
		return h.Return(h.Let(left.Kron(right)).MulScalar())
	})
}

func (s *Tuned) addFourierFT() error { return s.addSpectrum("fourierft_spectrum") }
func (s *Tuned) addWaveFT() error    { return s.addSpectrum("waveft_spectrum") }

// addSpectrum adds n_frequency coefficients, each at a place of the weight.
func (s *Tuned) addSpectrum(name string) error {
	n := s.count("n_frequency")
	s.weight(name, n)
	if n > s.in*s.out {
		return fmt.Errorf("peft raises there: n_frequency %d is more than the %d elements of the weight", n, s.in*s.out)
	}
	return s.positive("n_frequency")
}

func (s *Tuned) fourierFT(f *frame, x *tensor) *tensor {
	return s.withWeight(f, x, func(g *frame) *tensor {
		h, t, spectrum := g.FuncFrame(), g.Tape(), s.w("fourierft_spectrum")
		places := h.Let(t.New("to_device", program.Temporaries, trace.I64, 2, spectrum.Numel()))
		dense := h.Let(t.Zeros(trace.F32, s.out, s.in))
		dense.SetItem(spectrum.To(trace.F32), places.Select(0, 0), places.Select(0, 1))
		delta := h.Let(dense.FFT(nil, -2, -1).Real().MulScalar())
		return h.Return(delta.To(spectrum.DType()))
	})
}

func (s *Tuned) addHRA() error {
	s.weight("hra_u", s.in, s.count("r"))
	return s.positive("r")
}

// hra multiplies the weight by Householder reflections.
func (s *Tuned) hra(f *frame, x *tensor) *tensor {
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
	f.Set(&result, result.To(dtype))
	return result
}

func (s *Tuned) addIA3() error {
	if s.feedsForward() {
		s.weight("ia3_l", 1, s.in)
	} else {
		s.weight("ia3_l", s.out, 1)
	}
	return nil
}

func (s *Tuned) ia3(f *frame, x *tensor) *tensor {
	l := s.w("ia3_l")
	scaling := f.Let(l.Flatten(0, -1).MulScalar())
	if s.feedsForward() {
		dtype := x.DType()
		f.Set(&x, x.To(l.DType()))
		return f.Let(f.Call(s.BaseLayer, f.Let(x.Mul(scaling).To(dtype))))
	}
	result := f.Let(f.Call(s.BaseLayer, x))
	f.Set(&result, result.Mul(scaling).To(result.DType()))
	return result
}

func (s *Tuned) addMiSS() error {
	r, mini := s.count("r"), s.count("mini_r")
	switch s.text("init_weights") {
	case "bat":
		if err := divides("r", r, s.in, s.out); err != nil {
			return err
		}
		s.weight("miss_block", s.out/r, r, r)
	case "mini":
		if err := divides("mini_r", mini, s.out); err != nil {
			return err
		}
		s.weight("miss_block", r, mini)
	default:
		s.weight("miss_block", r, s.out)
	}
	s.drops("miss_dropout")
	if r > s.in {
		return fmt.Errorf("peft raises there: r=%d is more than the layer's %d inputs", r, s.in)
	}
	return s.positive("r")
}

func (s *Tuned) miss(f *frame, x *tensor) *tensor {
	if s.text("init_weights") == "bat" {
		return s.missBat(f, x)
	}
	dtype, block := x.DType(), s.w("miss_block")
	result := f.Let(f.Call(s.BaseLayer, x))
	if n := s.out / block.Size(1); n > 1 {
		block = f.Let(block.Repeat(1, n))
	}
	r := block.Size(0)
	if over := x.Size(-1) % r; over != 0 {
		f.Set(&x, x.Pad(0, r-over))
	}
	f.Set(&x, x.To(block.DType()))
	lead := x.Shape()[:x.NDim()-1]
	blocks := f.Call(s.Dropout, x).Reshape(append(append([]int64{}, lead...), x.Size(-1)/r, r)...)
	f.Set(&result, result.Add(blocks.Sum(false, -2).Matmul(block)))
	f.Set(&result, result.To(dtype))
	return result
}

func (s *Tuned) addDeLoRA() error {
	r := s.count("r")
	s.weight("delora_A", r, s.in)
	s.weight("delora_B", s.out, r)
	s.weight("delora_lambda", 1)
	s.Own.Buffer(trace.F32, s.in) // delora_w_norm
	s.drops("module_dropout")
	return s.positive("r")
}

func (s *Tuned) delora(f *frame, x *tensor) *tensor {
	dtype, a, b := x.DType(), s.w("delora_A"), s.w("delora_B")
	base := f.Let(f.Call(s.BaseLayer, x))
	sum := f.Let(base.ZerosLike())
	dropped := f.Let(f.Call(s.Dropout, x))
	h := f.Let(dropped.Mul(s.Own.Held(0)).Linear(a, nil))
	an := f.Let(a.Norm(2, false, 1).ClampMin())
	bn := f.Let(b.Norm(2, false, 0).ClampMin())
	scaling := f.Let(s.w("delora_lambda").DivScalar().Div(an.Mul(bn)))
	f.Set(&h, h.Mul(scaling))
	f.Set(&h, h.Linear(b, nil))
	sum.AddInPlace(h)
	result := f.Let(base.Add(sum.To(base.DType())))
	f.Set(&result, result.To(dtype))
	return result
}

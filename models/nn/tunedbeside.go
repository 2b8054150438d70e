package nn

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace"
)

// Methods that add something of low rank, or a vector, to what the layer gives.

func (s *Tuned) addAdaLoRA() error {
	r := s.count("init_r")
	s.weight("lora_A", r, s.in)
	s.weight("lora_B", s.out, r)
	s.weight("lora_E", r, 1)
	s.weight("ranknum", 1)  // which has a gradient, too, and none is meant
	if s.on("importance") { // what RankAllocator.update_ipt keeps of each matrix
		for range 3 {
			s.Own.Buffer(trace.F32, r, s.in).Buffer(trace.F32, s.out, r).Buffer(trace.F32, r, 1)
		}
	}
	s.drops("lora_dropout")
	return s.positive("init_r")
}

func (s *Tuned) adalora(f *frame, x *tensor) *tensor {
	a := s.w("lora_A")
	result := f.Let(f.Call(s.BaseLayer, x))
	ranks := f.Let(s.w("ranknum").AddScalar())
	f.Set(&x, x.To(a.DType()))
	low := f.Call(s.Dropout, x).Matmul(a.Mul(s.w("lora_E")).T()).Matmul(s.w("lora_B").T())
	result.AddInPlace(low.MulScalar().Div(ranks))
	return result
}

// orthogonal is what AdaLoraModel.forward adds to the loss: how far the singular vectors of all
// layers are from being orthogonal.
func orthogonal(f *frame, sites []*Tuned, loss *tensor) {
	g := f.FuncFrame()
	var sum, product, id *tensor
	for _, s := range sites {
		a, b := s.w("lora_A"), s.w("lora_B")
		for _, covariance := range []func() *tensor{
			func() *tensor { return a.Matmul(a.T()) }, func() *tensor { return b.T().Matmul(b) },
		} {
			next := covariance()
			if product == nil {
				product, id = g.Let(next), g.Let(next.FilledLike("eye", next.DType()))
			} else {
				g.Set(&product, next)
				g.Set(&id, next.FilledLike("eye", next.DType()))
			}
			norm := product.Sub(id).Norm(2, false)
			if sum == nil {
				sum = g.Let(norm.AddScalar())
			} else {
				sum.AddInPlace(norm)
			}
		}
	}
	g.Set(&sum, sum.DivScalar())
	loss.AddInPlace(sum.MulScalar())
	g.End()
}

func (s *Tuned) addBEFT() error {
	s.weight("beft_bias", 1, s.out)
	return nil
}

func (s *Tuned) beft(f *frame, x *tensor) *tensor {
	bias := f.Let(s.w("beft_bias").Flatten(0, -1))
	result := f.Let(f.Call(s.BaseLayer, x))
	f.Set(&result, result.Add(bias).To(result.DType()))
	return result
}

func (s *Tuned) addDEFT() error {
	r := min(s.count("r"), s.out)
	s.weight("deft_P", s.out, r)
	if !s.on("para") {
		s.weight("deft_R", r, s.in)
	}
	s.drops("deft_dropout")
	return s.positive("r")
}

// deft takes away what of the layer's result lies in a subspace, and adds something else there.
func (s *Tuned) deft(f *frame, x *tensor) *tensor {
	before, bias := x.DType(), s.plain().Bias.T()
	base := f.Let(f.Call(s.BaseLayer, x))
	result := f.Let(base.To(trace.F32))
	product := result
	if bias != nil {
		product = result.Sub(bias.To(trace.F32))
	}
	f.Let(product)
	f.Set(&x, x.To(trace.F32))
	into := f.Let(s.w("deft_P").To(trace.F32))
	var along *tensor
	if s.text("decomposition_method") == "relu" {
		along = f.Let(into.ReLU())
	} else {
		q, r := into.LinalgQR(false)
		f.Discard(r)
		f.Set(&into, q)
		along = f.Let(q)
	}
	correction := f.Let(product.Matmul(along).Matmul(into.Transpose(0, 1)))
	f.Set(&result, result.Sub(correction))
	if !s.on("para") {
		r := f.Let(s.w("deft_R").To(trace.F32))
		f.Set(&r, r.MulScalar())
		dropped := f.Let(f.Call(s.Dropout, x))
		f.Set(&result, result.Add(dropped.Linear(r, nil).Matmul(into.Transpose(0, 1))))
	}
	f.Set(&result, result.To(before))
	return result
}

func (s *Tuned) addLily() error {
	r, n := s.count("r"), s.count("num_B")
	s.weight("lily_A", r, s.in)
	s.weight("lily_B", n*r, s.out)
	s.weight("lily_router", n, r)
	return s.positive("r", "num_B", "stride_A")
}

// shareLily has layers of one name and shape use the second matrix of the first of them, and the
// first matrix of one in so many.
func shareLily(sites []*Tuned) {
	type group struct {
		name    string
		in, out int64
	}
	groups := map[group][]*Tuned{}
	for _, s := range sites {
		g := group{s.path[strings.LastIndexByte(s.path, '.')+1:], s.in, s.out}
		groups[g] = append(groups[g], s)
		i := int64(len(groups[g]) - 1)
		s.borrow("lily_B", groups[g][0])
		s.borrow("lily_A", groups[g][i-i%s.count("stride_A")])
	}
}

func (s *Tuned) lily(f *frame, x *tensor) *tensor {
	result := f.Let(f.Call(s.BaseLayer, x))
	dtype, n, all := result.DType(), s.count("num_B"), s.w("lily_B")
	b := f.Let(all.Reshape(n, -1, all.Size(1)))
	f.Set(&x, x.To(all.DType()))
	hidden := f.Let(x.Linear(s.w("lily_A"), nil))
	logits := f.Let(hidden.Linear(s.w("lily_router"), nil))
	shares := f.Let(logits.Softmax(-1))
	experts := f.Let(shares.Reshape(-1, n).Mean(false, 0))
	combined := f.Let(trace.Einsum("e,eio->io", experts, b))
	delta := f.Let(hidden.Matmul(combined))
	f.Set(&result, result.Add(delta.MulScalar().To(dtype)))
	return result
}

// ranked is the rank that rank_pattern ("q_proj:2944+k_proj:896") has for the layer, or else that
// of an option, zero if that is none.
func (s *Tuned) ranked(key string) (int64, error) {
	if pattern := s.text("rank_pattern"); pattern != none {
		for entry := range strings.SplitSeq(pattern, "+") {
			name, rank, _ := strings.Cut(entry, ":")
			n, err := strconv.ParseInt(rank, 10, 64)
			if err != nil || n < 1 {
				return 0, fmt.Errorf("rank_pattern: %q is not a layer's name and a rank, as in q_proj:2944", entry)
			}
			if strings.Contains(s.path, name) {
				return n, nil
			}
		}
	}
	if s.text(key) == none {
		return 0, nil
	}
	n, err := strconv.ParseInt(s.text(key), 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%s must be a whole number above zero", key, s.text(key))
	}
	return n, nil
}

func (s *Tuned) addOSF() error {
	least := min(s.in, s.out)
	high, err := s.ranked("effective_rank")
	if err != nil {
		return err
	}
	if high == 0 {
		high = least / 2
	}
	high = min(high, least)
	low := least - high
	if low == 0 {
		return fmt.Errorf("effective_rank=%d leaves nothing to train of a layer of %d x %d", high, s.in, s.out)
	}
	s.weight("U_low", s.out, low)
	s.weight("S_low", low)
	s.weight("V_low", low, s.in)
	s.Own.Buffer(trace.F32, s.out, low).Buffer(trace.F32, low).Buffer(trace.F32, low, s.in)
	if s.out > s.in {
		s.Own.Buffer(trace.F32, s.out, high)
	}
	if s.in > s.out {
		s.Own.Buffer(trace.F32, high, s.in)
	}
	return nil
}

// osf adds what the small singular vectors have become, less what they were.
func (s *Tuned) osf(f *frame, x *tensor) *tensor {
	dtype := x.DType()
	result := f.Let(f.Call(s.BaseLayer, x))
	now := s.w("U_low").Mul(s.w("S_low").Unsqueeze(0))
	then := s.Own.Held(0).Mul(s.Own.Held(1).Unsqueeze(0)).Neg()
	a := f.Let(trace.Cat(1, now, then))
	b := f.Let(trace.Cat(0, s.w("V_low"), s.Own.Held(2)))
	f.Set(&x, x.To(a.DType()))
	h := f.Let(x.Linear(b, nil))
	delta := f.Let(h.Linear(a, nil))
	f.Set(&result, result.Add(delta.To(dtype)))
	return result
}

func (s *Tuned) addPSOFT() error {
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
	s.drops("psoft_dropout")
	return s.positive("r")
}

func (s *Tuned) psoft(f *frame, x *tensor) *tensor {
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
	f.Set(&result, result.To(dtype))
	return result
}

// rotation is OrthLayer.get_matrix: a rotation by Cayley's formula, or its series, scaled along
// both sides.
func (s *Tuned) rotation(f *frame) *tensor {
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
			matrix = g.Let(id.Sub(skew).LinalgSolve(id.Add(skew), false))
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

func (s *Tuned) addPVeRA() error {
	s.weight("pvera_lambda_b", s.out)
	s.weight("pvera_lambda_d", 2*s.count("r"))
	s.drops("pvera_dropout")
	return s.positive("r")
}

// sharePVeRA makes the two frozen matrices, of which the first has rows for means and variances.
func sharePVeRA(sites []*Tuned) {
	in, out := widest(sites)
	r, first := sites[0].count("r"), sites[0].Own
	first.Buffer(trace.F32, 2*r, in).Buffer(trace.F32, out, r)
	for _, s := range sites {
		s.shared = first.buffers
	}
}

// widest are the largest widths of all layers.
func widest(sites []*Tuned) (in, out int64) {
	for _, s := range sites {
		in, out = max(in, s.in), max(out, s.out)
	}
	return in, out
}

func (s *Tuned) pvera(f *frame, x *tensor) *tensor {
	before := x.DType()
	result := f.Let(f.Call(s.BaseLayer, x))
	a, b := s.shared[0].Slice(1, 0, s.in), s.shared[1].Slice(0, 0, s.out)
	f.Let(a)
	f.Let(b)
	d := s.w("pvera_lambda_d")
	f.Set(&x, x.To(d.DType()))
	parts := d.Mul(f.Call(s.Dropout, x).Linear(a, nil)).Chunk(2, -1)
	mean, variance := f.Let(parts[0]), f.Let(parts[1])
	g := f.FuncFrame(mean, variance)
	deviation := g.Let(variance.MulScalar().Exp())
	noise := g.Let(deviation.FilledLike("randn_like", deviation.DType()))
	drawn := g.Return(mean.Add(noise.Mul(deviation)))
	f.Set(&result, result.Add(s.w("pvera_lambda_b").Mul(drawn.Linear(b, nil))))
	f.Set(&result, result.To(before))
	return result
}

func (s *Tuned) addTinyLoRA() error {
	r, u := min(s.count("r"), s.in, s.out), s.count("u")
	s.Own.Buffer(trace.F32, r, s.in).Buffer(trace.F32, s.out, r).Buffer(trace.F32, u, r, r)
	s.weight("tinylora_v", u)
	s.drops("tinylora_dropout")
	if tied := s.number("weight_tying"); tied < 0 || tied > 1 {
		return fmt.Errorf("weight_tying=%s is no share from 0 to 1", s.text("weight_tying"))
	}
	return s.positive("r", "u")
}

// shareTinyLoRA has neighboring layers share a vector, as many as weight_tying says.
func shareTinyLoRA(sites []*Tuned) {
	n := len(sites)
	groups := max(1, int(math.RoundToEven(float64(n)*(1-sites[0].number("weight_tying")))))
	size := max(1, n/groups)
	for i, s := range sites {
		s.borrow("tinylora_v", sites[min(i/size, groups-1)*size])
	}
}

func (s *Tuned) tinylora(f *frame, x *tensor) *tensor {
	before, a, b := x.DType(), s.Own.Held(0), s.Own.Held(1)
	result := f.Let(f.Call(s.BaseLayer, x))
	r := f.Let(trace.Einsum("i,ijk->jk", s.w("tinylora_v"), s.Own.Held(2)))
	dropped := f.Let(f.Call(s.Dropout, x))
	f.Set(&dropped, dropped.To(a.DType()))
	h := f.Let(dropped.Linear(a, nil))
	f.Set(&h, h.Linear(r, nil))
	delta := f.Let(h.Linear(b, nil))
	f.Set(&result, result.Add(delta))
	f.Set(&result, result.To(before))
	return result
}

func (s *Tuned) addUniLoRA() error {
	r := s.count("r")
	s.Own.Buffer(trace.I64, r, s.in).Buffer(trace.I64, s.out, r)
	s.Own.Buffer(trace.F32, r, s.in).Buffer(trace.F32, s.out, r) // the scales
	s.drops("unilora_dropout")
	return s.positive("r", "theta_d_length")
}

// shareUniLoRA makes the vector that all matrices are taken from.
func shareUniLoRA(sites []*Tuned) {
	sites[0].weight("unilora_theta_d", sites[0].count("theta_d_length"))
	for _, s := range sites {
		s.borrow("unilora_theta_d", sites[0])
	}
}

func (s *Tuned) unilora(f *frame, x *tensor) *tensor {
	before, theta := x.DType(), s.w("unilora_theta_d")
	result := f.Let(f.Call(s.BaseLayer, x))
	g := f.FuncFrame()
	a := g.Let(theta.Index(s.Own.Held(0)).Mul(s.Own.Held(2)))
	b := g.Let(theta.Index(s.Own.Held(1)).Mul(s.Own.Held(3)))
	g.End(a, b)
	f.Let(a)
	f.Let(b)
	f.Set(&x, x.To(theta.DType()))
	dropped := f.Call(s.Dropout, x)
	f.Set(&result, result.Add(dropped.Linear(a, nil).Linear(b, nil)))
	f.Set(&result, result.To(before))
	return result
}

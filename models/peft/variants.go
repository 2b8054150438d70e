package peft

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// Methods that add a low-rank product to the layer's output.

// addBDLoRA adds LoRA's two matrices to a layer, one of them block diagonal.
func (s *AdaptedLayer) addBDLoRA() error {
	r, n := s.count("r"), s.count("nblocks")
	if err := requireDivisor("nblocks", n, s.in, s.out, r); err != nil {
		return err
	}
	in, rank := s.in, r
	if s.isNamedIn("target_modules_bd_a") {
		in /= n
	} else if s.isNamedIn("target_modules_bd_b") {
		rank /= n
	}
	s.addWeight("lora_A", r, in)
	s.addWeight("lora_B", s.out, rank)
	return s.requirePositive("r")
}

// isNamedIn reports whether an option, a list of names joined by "+", holds a name that ends the layer's path.
func (s *AdaptedLayer) isNamedIn(key string) bool {
	names := strings.Split(s.text(key), "+")
	return slices.ContainsFunc(names, func(name string) bool { return nn.MatchesSuffix(s.path, name) })
}

func (s *AdaptedLayer) bdlora(f *frame, x *tensor) *tensor {
	result := f.Bind(f.Call(s.BaseLayer, x))
	dtype := result.DType()
	f.Set(&x, x.To(s.dtype()))
	through := func(name string, y *tensor, in, out int64) *tensor {
		w := s.w(name)
		if n := in / w.Size(1); n > 1 {
			return s.blockDiagonal(f, y, w, n, out)
		}
		return y.Linear(w, nil)
	}
	r := s.count("r")
	result.AddInPlace(through("lora_B", through("lora_A", f.Call(s.Dropout, x), s.in, r), r, s.out).MulScalar())
	return f.Set(&result, result.To(dtype))
}

// blockDiagonal records BlockDiagonalLinear of peft's tuners/lora: n products, one for each block of the diagonal.
func (s *AdaptedLayer) blockDiagonal(f *frame, x, w *tensor, n, out int64) *tensor {
	g, shape := f.CallFrame(x), append(slices.Clone(x.Shape()[:x.NDim()-1]), -1)
	g.Set(&x, x.Reshape(-1, x.Size(-1)))
	g.Set(&x, x.Reshape(-1, n, x.Size(-1)/n))
	y := g.Bind(ops.Einsum("bim,inm->bin", x, w.View(n, out/n, w.Size(1))))
	return g.Return(y.Reshape(shape...))
}

func (s *AdaptedLayer) addAdaLoRA() error {
	r := s.count("init_r")
	s.addWeight("lora_A", r, s.in)
	s.addWeight("lora_B", s.out, r)
	s.addWeight("lora_E", r, 1)
	s.addWeight("ranknum", 1)    // which has a gradient, too, and none is meant
	if s.enabled("importance") { // what RankAllocator.update_ipt keeps of each matrix
		for range 3 {
			s.Own.AddBuffer(trace.F32, r, s.in).AddBuffer(trace.F32, s.out, r).AddBuffer(trace.F32, r, 1)
		}
	}
	return s.requirePositive("init_r")
}

func (s *AdaptedLayer) adalora(f *frame, x *tensor) *tensor {
	a := s.w("lora_A")
	result := f.Bind(f.Call(s.BaseLayer, x))
	ranks := f.Bind(s.w("ranknum").AddScalar())
	f.Set(&x, x.To(a.DType()))
	low := f.Call(s.Dropout, x).Matmul(a.Mul(s.w("lora_E")).T()).Matmul(s.w("lora_B").T())
	result.AddInPlace(low.MulScalar().Div(ranks))
	return result
}

// addOrthogonalPenalty adds the regularization of AdaLoraModel.forward to the loss, which is larger the less
// orthogonal the singular vectors of the layers are.
func addOrthogonalPenalty(f *frame, sites []*AdaptedLayer, loss *tensor) {
	g := f.FunctionFrame()
	var sum, product, id *tensor
	for _, s := range sites {
		a, b := s.w("lora_A"), s.w("lora_B")
		for _, covariance := range []func() *tensor{
			func() *tensor { return a.Matmul(a.T()) }, func() *tensor { return b.T().Matmul(b) },
		} {
			next := covariance()
			if product == nil {
				product, id = g.Bind(next), g.Bind(next.FilledLike("eye", next.DType()))
			} else {
				g.Set(&product, next)
				g.Set(&id, next.FilledLike("eye", next.DType()))
			}
			norm := product.Sub(id).Norm(2, false)
			if sum == nil {
				sum = g.Bind(norm.AddScalar())
			} else {
				sum.AddInPlace(norm)
			}
		}
	}
	g.Set(&sum, sum.DivScalar())
	loss.AddInPlace(sum.MulScalar())
	g.End()
}

func (s *AdaptedLayer) delora(f *frame, x *tensor) *tensor {
	dtype, a, b := x.DType(), s.w("delora_A"), s.w("delora_B")
	base := f.Bind(f.Call(s.BaseLayer, x))
	sum := f.Bind(base.ZerosLike())
	dropped := f.Bind(f.Call(s.Dropout, x))
	h := f.Bind(dropped.Mul(s.Own.BufferTensor(0)).Linear(a, nil))
	an := f.Bind(a.Norm(2, false, 1).ClampMin())
	bn := f.Bind(b.Norm(2, false, 0).ClampMin())
	scaling := f.Bind(s.w("delora_lambda").DivScalar().Div(an.Mul(bn)))
	f.Set(&h, h.Mul(scaling))
	f.Set(&h, h.Linear(b, nil))
	sum.AddInPlace(h)
	result := f.Bind(base.Add(sum.To(base.DType())))
	return f.Set(&result, result.To(dtype))
}

// shareLily shares matrices among layers with the same name and shape. All use the second matrix of the first layer;
// groups of successive layers use the first matrix of the group's first.
func shareLily(sites []*AdaptedLayer) {
	type group struct {
		name    string
		in, out int64
	}
	groups := map[group][]*AdaptedLayer{}
	for _, s := range sites {
		g := group{s.path[strings.LastIndexByte(s.path, '.')+1:], s.in, s.out}
		groups[g] = append(groups[g], s)
		i := int64(len(groups[g]) - 1)
		s.borrow("lily_B", groups[g][0])
		s.borrow("lily_A", groups[g][i-i%s.count("stride_A")])
	}
}

func (s *AdaptedLayer) lily(f *frame, x *tensor) *tensor {
	result := f.Bind(f.Call(s.BaseLayer, x))
	dtype, n, all := result.DType(), s.count("num_B"), s.w("lily_B")
	b := f.Bind(all.Reshape(n, -1, all.Size(1)))
	f.Set(&x, x.To(all.DType()))
	hidden := f.Bind(x.Linear(s.w("lily_A"), nil))
	logits := f.Bind(hidden.Linear(s.w("lily_router"), nil))
	shares := f.Bind(logits.Softmax(-1))
	experts := f.Bind(shares.Reshape(-1, n).Mean(false, 0))
	combined := f.Bind(ops.Einsum("e,eio->io", experts, b))
	delta := f.Bind(hidden.Matmul(combined))
	return f.Set(&result, result.Add(delta.MulScalar().To(dtype)))
}

func (s *AdaptedLayer) addOSF() error {
	least := min(s.in, s.out)
	high, err := s.rankOf("effective_rank")
	if err != nil {
		return err
	}
	high = min(cmp.Or(high, least/2), least)
	low := least - high
	if low == 0 {
		return fmt.Errorf("effective_rank=%d is too large for a layer of %d x %d; use less", high, s.in, s.out)
	}
	s.addWeight("U_low", s.out, low)
	s.addWeight("S_low", low)
	s.addWeight("V_low", low, s.in)
	s.Own.AddBuffer(trace.F32, s.out, low).AddBuffer(trace.F32, low).AddBuffer(trace.F32, low, s.in)
	if s.out > s.in {
		s.Own.AddBuffer(trace.F32, s.out, high)
	}
	if s.in > s.out {
		s.Own.AddBuffer(trace.F32, high, s.in)
	}
	return nil
}

// osf records OSF's forward, which adds the update of the part of the weight with small singular values.
func (s *AdaptedLayer) osf(f *frame, x *tensor) *tensor {
	dtype := x.DType()
	result := f.Bind(f.Call(s.BaseLayer, x))
	now := s.w("U_low").Mul(s.w("S_low").Unsqueeze(0))
	then := s.Own.BufferTensor(0).Mul(s.Own.BufferTensor(1).Unsqueeze(0)).Neg()
	a := f.Bind(trace.Cat(1, now, then))
	b := f.Bind(trace.Cat(0, s.w("V_low"), s.Own.BufferTensor(2)))
	f.Set(&x, x.To(a.DType()))
	h := f.Bind(x.Linear(b, nil))
	delta := f.Bind(h.Linear(a, nil))
	return f.Set(&result, result.Add(delta.To(dtype)))
}

// rankOf returns the layer's rank: from rank_pattern ("q_proj:2944+k_proj:896"), else from the option key, else zero.
func (s *AdaptedLayer) rankOf(key string) (int64, error) {
	if pattern := s.text("rank_pattern"); pattern != none {
		for entry := range strings.SplitSeq(pattern, "+") {
			name, rank, _ := strings.Cut(entry, ":")
			n, err := strconv.ParseInt(rank, 10, 64)
			if err != nil || n < 1 {
				return 0, fmt.Errorf("invalid rank_pattern entry %q: need LAYER:RANK, like q_proj:2944", entry)
			}
			if strings.Contains(s.path, name) && s.method.name == "osf" || nn.MatchesSuffix(s.path, name) {
				return n, nil
			}
		}
	}
	if s.text(key) == none {
		return 0, nil
	}
	n, err := strconv.ParseInt(s.text(key), 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("invalid %s=%s: need a whole number above 0", key, s.text(key))
	}
	return n, nil
}

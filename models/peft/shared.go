package peft

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// Methods whose adapted layers share matrices or vectors.

// shareVeRA adds two frozen matrices as wide as the widest adapted layer. The first has n rows per rank.
func shareVeRA(n int64) func(sites []*AdaptedLayer) {
	return func(sites []*AdaptedLayer) {
		in, out := largestWidths(sites)
		r := sites[0].count("r")
		sites[0].Own.AddBuffer(trace.F32, n*r, in).AddBuffer(trace.F32, out, r)
		shareBuffers(sites)
	}
}

// shareBuffers makes all adapted layers use the first one's buffers.
func shareBuffers(sites []*AdaptedLayer) {
	for _, s := range sites {
		s.shared = sites[0].Own.Buffers()
	}
}

// shareParameter returns a function that adds a shared parameter to the first adapted layer. dims are options or sizes.
func shareParameter(name string, dims ...string) func(sites []*AdaptedLayer) {
	return func(sites []*AdaptedLayer) {
		sizes := lists.Map(dims, sites[0].count)
		sites[0].addWeight(name, sizes...)
		for _, s := range sites {
			s.borrow(name, sites[0])
		}
	}
}

func (s *AdaptedLayer) vera(f *frame, x *tensor) *tensor {
	before := x.DType()
	result := f.Bind(f.Call(s.BaseLayer, x))
	dtype := result.DType()
	a, b := s.shared[0].Slice(1, 0, s.in), s.shared[1].Slice(0, 0, s.out)
	f.BindEach(a, b)
	f.Set(&x, x.To(s.dtype()))
	low := s.w("vera_lambda_d").Mul(f.Call(s.Dropout, x).Linear(a, nil))
	f.Set(&result, result.Add(s.w("vera_lambda_b").Mul(low.Linear(b, nil))))
	f.Set(&result, result.To(dtype))
	return f.Set(&result, result.To(before))
}

func (s *AdaptedLayer) pvera(f *frame, x *tensor) *tensor {
	before := x.DType()
	result := f.Bind(f.Call(s.BaseLayer, x))
	a, b := s.shared[0].Slice(1, 0, s.in), s.shared[1].Slice(0, 0, s.out)
	f.BindEach(a, b)
	d := s.w("pvera_lambda_d")
	f.Set(&x, x.To(d.DType()))
	parts := d.Mul(f.Call(s.Dropout, x).Linear(a, nil)).Chunk(2, -1)
	mean, variance := f.Bind(parts[0]), f.Bind(parts[1])
	g := f.FunctionFrame(mean, variance)
	deviation := g.Bind(variance.MulScalar().Exp())
	noise := g.Bind(deviation.FilledLike("randn_like", deviation.DType()))
	drawn := g.Return(mean.Add(noise.Mul(deviation)))
	f.Set(&result, result.Add(s.w("pvera_lambda_b").Mul(drawn.Linear(b, nil))))
	return f.Set(&result, result.To(before))
}

func (s *AdaptedLayer) vblora(f *frame, x *tensor) *tensor {
	dtype := x.DType()
	result := f.Bind(f.Call(s.BaseLayer, x))
	a, b := s.w("vblora_logits_A"), s.w("vblora_logits_B")
	g := f.FunctionFrame()
	g.Discard(a.Select(0, 0).Select(0, 0).IsInf().Any(false))
	left := g.Bind(s.mixVectors(g, a).Reshape(a.Size(0), -1))
	right := g.Bind(s.mixVectors(g, b).Transpose(1, 2).Reshape(-1, b.Size(1)))
	g.End(left, right)
	f.BindEach(left, right)
	f.Set(&x, x.To(s.w("vblora_vector_bank").DType()))
	f.Set(&result, result.Add(f.Call(s.Dropout, x).Linear(left, nil).Linear(right, nil)))
	return f.Set(&result, result.To(dtype))
}

// mixVectors records _get_low_rank_matrix of peft's VBLoRA: mixtures of the vectors with the highest logits.
func (s *AdaptedLayer) mixVectors(f *frame, logits *tensor) *tensor {
	g := f.FunctionFrame(logits)
	top, places := logits.TopK(s.count("topk"), -1)
	g.BindEach(top, places)
	weights := g.Bind(top.Softmax(-1))
	return g.Return(weights.Unsqueeze(-1).Mul(s.w("vblora_vector_bank").Index(places)).Sum(false, -2))
}

func (s *AdaptedLayer) addRandLoRA() error {
	r := s.count("r")
	if err := s.requirePositive("r"); err != nil {
		return err
	}
	least := min(s.in, s.out)
	s.bases = (least + r - 1) / r
	s.addWeight("randlora_lambda", r, s.bases)
	s.addWeight("randlora_gamma", s.bases, least)
	return nil
}

// shareRandLoRA adds the frozen bases that all adapted layers use, as large as the widest layer requires.
func shareRandLoRA(sites []*AdaptedLayer) {
	in, out := largestWidths(sites)
	r, least := sites[0].count("r"), min(in, out)
	sites[0].Own.AddBuffer(trace.F32, r, 1, least).AddBuffer(trace.F32, max(in, out), (least+r-1)/r, r)
	shareBuffers(sites)
}

// uniqueBase is peft's autograd.Function UniqueBaseGrad: RandLoRA's frozen bases, scaled along two dimensions.
var uniqueBase = &trace.Function{
	Name: "UniqueBaseGradBackward",
	Forward: func(g *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
		out := g.Bind(in[1].Unsqueeze(2).Mul(in[0]).Mul(in[2].Unsqueeze(0)))
		ctx.SaveForBackward(in...)
		return []*tensor{out}
	},
	Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
		a, lambda, gamma := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2)
		byLambda := g.Bind(ops.Einsum("kbj,kvj,bj->kb", grads[0], a, gamma))
		return []*tensor{nil, byLambda, g.Bind(ops.Einsum("kbj,kvj,kb->bj", grads[0], a, lambda))}
	},
}

func (s *AdaptedLayer) randlora(f *frame, x *tensor) *tensor {
	dtype := x.DType()
	result := f.Bind(f.Call(s.BaseLayer, x))
	g := f.FunctionFrame()
	least, most := min(s.in, s.out), max(s.in, s.out)
	a := g.Bind(s.shared[0].Slice(1, 0, s.bases).Slice(2, 0, least))
	b := g.Bind(s.shared[1].Slice(0, 0, most).Slice(1, 0, s.bases))
	down := g.Bind(b.Flatten(1, -1))
	up := g.Bind(g.Apply(uniqueBase, a, s.w("randlora_lambda"), s.w("randlora_gamma"))[0].Flatten(0, 1))
	if least == s.in {
		down, up = up, down
	} else {
		down, up = g.Bind(down.T()), g.Bind(up.T())
	}
	g.End(down, up)
	f.BindEach(down, up)
	f.Set(&x, x.To(up.DType()))
	f.Set(&result, result.Add(f.Call(s.Dropout, x).Linear(down, nil).Linear(up, nil).MulScalar()))
	return f.Set(&result, result.To(dtype))
}

func (s *AdaptedLayer) addTinyLoRA() error {
	r, u := min(s.count("r"), s.in, s.out), s.count("u")
	s.Own.AddBuffer(trace.F32, r, s.in).AddBuffer(trace.F32, s.out, r).AddBuffer(trace.F32, u, r, r)
	s.addWeight("tinylora_v", u)
	if tied := s.number("weight_tying"); tied < 0 || tied > 1 {
		return fmt.Errorf("invalid weight_tying=%s: need a share from 0 to 1", s.text("weight_tying"))
	}
	return s.requirePositive("r", "u")
}

// shareTinyLoRA makes successive layers share a vector; the option weight_tying sets how many share one.
func shareTinyLoRA(sites []*AdaptedLayer) {
	n := len(sites)
	groups := max(1, int(math.RoundToEven(float64(n)*(1-sites[0].number("weight_tying")))))
	size := max(1, n/groups)
	for i, s := range sites {
		s.borrow("tinylora_v", sites[min(i/size, groups-1)*size])
	}
}

func (s *AdaptedLayer) tinylora(f *frame, x *tensor) *tensor {
	before, a, b := x.DType(), s.Own.BufferTensor(0), s.Own.BufferTensor(1)
	result := f.Bind(f.Call(s.BaseLayer, x))
	r := f.Bind(ops.Einsum("i,ijk->jk", s.w("tinylora_v"), s.Own.BufferTensor(2)))
	dropped := f.Bind(f.Call(s.Dropout, x))
	f.Set(&dropped, dropped.To(a.DType()))
	h := f.Bind(dropped.Linear(a, nil))
	f.Set(&h, h.Linear(r, nil))
	delta := f.Bind(h.Linear(b, nil))
	f.Set(&result, result.Add(delta))
	return f.Set(&result, result.To(before))
}

func (s *AdaptedLayer) addFRoD() error {
	if s.enabled("runtime_offload_base_weight") && s.number("frod_dropout") > 0 {
		return errors.New("frod_dropout needs weights that runtime_offload_base_weight moves to the host; leave out " +
			"one of the two")
	}
	if s.enabled("runtime_offload_base_weight") {
		s.linear().Weight.IsElsewhere = true // on the host
	}
	if rate := s.number("sparse_rate"); rate <= 0 || rate > 1 {
		return fmt.Errorf("invalid sparse_rate=%s: need a share above 0 and up to 1", s.text("sparse_rate"))
	}
	s.addWeight("frod_lambda_s_values", s.frodElements())
	s.addWeight("frod_lambda_l", s.in)
	s.Own.AddBuffer(s.BaseType(), s.out, s.in) // frod_U
	return nil
}

// frodElements returns the number of trained elements of a layer's sparse rotation.
func (s *AdaptedLayer) frodElements() int64 {
	return max(1, min(int64(float64(s.in*s.in)*s.number("sparse_rate")), s.in*(s.in-1)))
}

// shareFRoD copies the basis that layers of the same name share, and the positions of trained elements, to the device
// if the adapters were added before model.to(device). Otherwise each layer copies both in each forward pass.
func shareFRoD(sites []*AdaptedLayer) {
	first := map[string]*AdaptedLayer{}
	for _, s := range sites {
		name := s.path[strings.LastIndexByte(s.path, '.')+1:]
		if first[name] == nil {
			first[name] = s
			if s.text("frod_V") == "gpu" {
				s.Own.AddBuffer(s.BaseType(), s.in, s.in).AddBuffer(trace.I64, 2, s.frodElements())
			}
		}
		s.shared = first[name].Own.Buffers()[1:]
	}
}

// frod records FRoD's forward, which rotates the layer's input in a basis in which the weight is diagonal.
func (s *AdaptedLayer) frod(f *frame, x *tensor) *tensor {
	dtype, places, lead := x.DType(), s.frodElements(), x.Shape()[:x.NDim()-1]
	if dtype == trace.F32 {
		f.Tape().Raise(errors.New("in fp32, FRoD of peft multiplies by a sparse matrix, whose memory vprof does not " +
			"know; train in bf16 or fp16 (--weights), where it is dense"))
	}
	linear, dropped := s.linear(), x
	var result, base *tensor
	if s.number("frod_dropout") > 0 {
		result = f.Bind(f.Call(linear, x))
		base = result
		if linear.Bias != nil {
			base = f.Bind(result.Sub(linear.Bias.TensorOrNil()))
		}
	}
	basis, indices := s.frodBasis(f, dtype, places)
	values := f.Bind(s.w("frod_lambda_s_values").To(dtype))
	scale := f.Bind(s.w("frod_lambda_l").To(dtype))
	sparse := f.Bind(f.Apply(coalescedValues, values, indices)[0])
	order := f.Bind(f.Tape().New("coalesce", program.Activations, trace.I64, 2, places))
	if base != nil {
		dropped = f.Bind(f.Call(s.Dropout, x))
	}
	z := f.Bind(dropped.Reshape(-1, s.in).Matmul(basis))
	rotated := f.Bind(z.Matmul(f.Apply(s.toDense(), sparse, order)[0].T()))
	scaled := f.Bind(z.Mul(scale))
	more := f.Bind(rotated.Add(scaled).Linear(s.Own.BufferTensor(0), nil))
	more = f.Bind(more.Reshape(append(slices.Clone(lead), s.out)...))
	switch {
	case base != nil:
		before := f.Bind(dropped.Linear(linear.Weight.TensorOrNil(), nil))
		f.Set(&result, result.Add(more).Sub(before))
	case linear.Bias != nil:
		result = f.Bind(more.Add(linear.Bias.TensorOrNil()))
	default:
		result = more
	}
	return result
}

// frodBasis returns the shared basis and the positions of the trained elements.
func (s *AdaptedLayer) frodBasis(f *frame, dtype trace.DType, places int64) (basis, indices *tensor) {
	if s.text("frod_V") == "gpu" {
		return f.Bind(s.shared[0].To(dtype)), f.Bind(s.shared[1].Tensor)
	}
	t := f.Tape()
	return f.Bind(t.New("to_device", program.Activations, dtype, s.in, s.in)),
		f.Bind(t.New("to_device", program.Activations, trace.I64, 2, places))
}

// coalescedValues is an autograd.Function that returns the values of a sparse tensor, sorted by position.
var coalescedValues = &trace.Function{
	Name: "CoalesceBackward",
	Forward: func(g *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
		ctx.SaveForBackward(in...)
		for range 3 { // places as numbers, their order, and the first of each
			g.Bind(g.Tape().New("coalesce", program.Temporaries, trace.I64, in[0].Numel()))
		}
		return []*tensor{in[0].Clone()}
	},
	Backward: func(_ *frame, _ *trace.FunctionContext, grads []*tensor) []*tensor {
		return []*tensor{grads[0].Clone(), nil}
	},
}

// toDense returns the autograd.Function of to_dense() of a sparse matrix with the given values and positions.
func (s *AdaptedLayer) toDense() *trace.Function {
	return &trace.Function{
		Name: "ToDenseBackward0",
		Forward: func(g *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			ctx.SaveForBackward(in...)
			return []*tensor{g.Tape().Zeros(in[0].DType(), s.in, s.in)}
		},
		Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			flat := g.Bind(g.Tape().New("flatten_indices", program.Temporaries, trace.I64, ctx.Saved(0).Numel()))
			return []*tensor{grads[0].Reshape(-1).IndexSelect(0, flat), nil}
		},
	}
}

// largestWidths returns the largest input width and the largest output width of all adapted layers.
func largestWidths(sites []*AdaptedLayer) (in, out int64) {
	for _, s := range sites {
		in, out = max(in, s.in), max(out, s.out)
	}
	return in, out
}

package peft

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// Methods with several products of low rank at a layer: side by side, or mixed for each row.

// addAdaMSS gives a site a product for each group of the layer's outputs. Which outputs are in a group is found by
// clustering the weight, which needs its values: here all groups have one size.
func (s *Site) addAdaMSS() error {
	if err := s.positive("r", "num_subspaces", "subspace_rank"); err != nil {
		return err
	}
	in := s.in
	if s.plain().Bias != nil {
		in++ // which stands for a column of ones
	}
	r := min(s.count("r"), s.out, in)
	s.Own.Buffer(trace.F32, r, in) // adamss_newB
	for i, size := range s.subspaces() {
		rank := min(size, s.count("subspace_rank"))
		s.weight(fmt.Sprint("adamss_A", i), rank, r)
		s.weight(fmt.Sprint("adamss_B", i), size, rank)
	}
	return nil
}

// subspaces returns the numbers of outputs in each group.
func (s *Site) subspaces() []int64 {
	n := min(s.count("num_subspaces"), s.out)
	sizes := make([]int64, n)
	for i := range n {
		sizes[i] = s.out*(i+1)/n - s.out*i/n
	}
	return sizes
}

func (s *Site) adamss(f *frame, x *tensor) *tensor {
	dtype, lead := s.BaseType(), x.Shape()[:x.NDim()-1]
	f.Set(&x, x.To(dtype))
	input := f.Let(x)
	if s.plain().Bias != nil {
		ones := f.Let(f.Tape().Filled("ones", dtype, append(slices.Clone(lead), 1)...))
		f.Set(&input, trace.Cat(-1, x, ones))
	}
	result := f.Let(f.Call(s.BaseLayer, x))
	low := f.Let(input.Linear(s.Own.Held(0).To(dtype), nil))
	var chunks []*tensor
	var a, b, out *tensor
	for i := range s.subspaces() {
		first, second := s.w(fmt.Sprint("adamss_A", i)), s.w(fmt.Sprint("adamss_B", i))
		if i == 0 {
			a, b = f.Let(first.To(dtype)), f.Let(second.To(dtype))
			out = f.Let(low.Linear(a, nil))
		} else {
			f.Set(&a, first.To(dtype))
			f.Set(&b, second.To(dtype))
			f.Set(&out, low.Linear(a, nil))
		}
		f.Set(&out, out.Linear(b, nil))
		chunks = append(chunks, f.Let(out))
	}
	delta := f.Let(trace.Cat(-1, chunks...))
	places := f.Let(f.Tape().New("to_device", program.Activations, trace.I64, s.out))
	index := f.Let(places.View(1, 1, s.out).Expand(append(slices.Clone(lead), s.out)...))
	zeros := f.Tape().Zeros(dtype, append(slices.Clone(lead), s.out)...)
	f.Set(&delta, zeros.Scatter(index, delta))
	return f.Set(&result, result.Add(delta))
}

// sharePoly makes the number of each row's task, which the loop brings with a batch: a block, of
// 64 rows or fewer.
func sharePoly(sites []*Site) {
	sites[0].Own.Buffer(trace.I64, 1)
	shareBuffers(sites)
}

// poly makes matrices of low rank for each row, of what its task takes of all skills.
func (s *Site) poly(f *frame, x *tensor) *tensor {
	before, r, rows := x.DType(), s.count("r"), x.Size(0)
	result := f.Let(f.Call(s.BaseLayer, x))
	mixing := f.Let(s.skills(f, rows))
	a := f.Let(ops.Einsum("bqs,qsdr->bqdr", mixing, s.w("poly_lora_A")))
	b := f.Let(ops.Einsum("bqs,qsrd->bqrd", mixing, s.w("poly_lora_B")))
	f.Set(&a, a.Reshape(rows, s.in, r))
	f.Set(&b, b.Transpose(1, 2).Reshape(rows, r, s.out))
	f.Set(&x, x.To(a.DType()))
	result.AddInPlace(x.BMM(a).BMM(b).DivScalar())
	return f.Set(&result, result.To(before))
}

// skills follows PolyRouter.forward: drawn shares of skills [rows, splits, skills].
func (s *Site) skills(f *frame, rows int64) *tensor {
	g, all := f.FuncFrame(), s.w("module_logits")
	tasks := g.Let(s.shared[0].Expand(rows))
	logits := g.Let(all.Index(tasks).View(-1, s.count("n_splits"), s.count("n_skills")))
	h := g.FuncFrame()
	p := h.Let(logits.Sigmoid())
	clamped := h.Let(p.Clamp())
	uniforms := h.Let(h.Tape().Filled("rand", p.DType(), p.Shape()...).Clamp())
	noise := uniforms.Log().Sub(uniforms.Neg().Function("log1p"))
	drawn := noise.Add(clamped.Log()).Sub(clamped.Neg().Function("log1p")).DivScalar().Sigmoid().Clamp()
	shares := g.Let(h.Return(drawn))
	return g.Return(shares.Div(shares.Sum(true, -1).AddScalar()))
}

// compressed follows VeloraFunction: a linear layer that keeps a number for each group of its inputs.
func (s *Site) compressed() *trace.Function {
	groups := s.count("num_groups")
	size := ceil.Div(s.in, groups)
	return &trace.Function{
		Name: "VeloraFunctionBackward",
		Forward: func(g *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			x, w, embed := in[0], in[1], in[2]
			out := g.Let(x.Linear(w, nil))
			h, cast := g.FuncFrame(), embed.To(x.DType())
			h.Let(cast)
			wide := x
			if over := groups*size - s.in; over > 0 {
				wide = h.Let(x.Pad(0, over))
			}
			grouped := h.Let(wide.Reshape(-1, groups, size))
			kept := g.Let(h.Return(ops.Einsum("tgd,d->tg", grouped, cast)))
			ctx.SaveForBackward(kept, w, embed)
			return []*tensor{out}
		},
		Backward: func(g *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			kept, w := ctx.Saved(0), ctx.Saved(1)
			lead := grads[0].Shape()[:grads[0].NDim()-1]
			grad := g.Let(grads[0].Reshape(-1, grads[0].Size(-1)))
			var byInput *tensor
			if ctx.NeedsInputGrad(0) {
				byInput = g.Let(grad.Matmul(w).Reshape(append(slices.Clone(lead), s.in)...))
			}
			h := g.FuncFrame()
			again := h.Let(kept.Unsqueeze(-1).Mul(ctx.Saved(2).To(kept.DType()).View(1, 1, size)))
			flat := h.Let(again.Reshape(-1, groups*size))
			whole := g.Let(h.Return(flat.Slice(1, 0, s.in).MulScalar()))
			return []*tensor{byInput, g.Let(grad.Transpose(0, 1).Matmul(whole)), nil}
		},
	}
}

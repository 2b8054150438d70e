package llama

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// expertList is MixtralSparseMoeBlock of transformers 4, and similar blocks there. Each expert has linear layers of
// its own, and the experts run one after the other, on equal shares of the tokens.
type expertList struct {
	nn.Module
	TorchNames
	Gate             nn.Layer
	Experts          []nn.Layer
	Router           *router `torch:"gate"` // replaces Gate if the gate's weight is a plain parameter
	SharedExpert     *mlp
	SharedExpertGate nn.Layer
	c                *Config
}

func newExpertList(c *Config) nn.Layer {
	s, e := newSparseMoEBlock(c), c.Experts
	l := &expertList{
		TorchNames: c.Names, SharedExpert: s.SharedExpert, SharedExpertGate: s.SharedExpertGate, c: c,
		Experts: lists.Make(e.Count, func(int64) nn.Layer { return newMLPOf(c, e.Inner) }),
	}
	if e.SharedLast {
		l.Router = s.Gate
	} else {
		l.Gate = nn.NewLinear(c.Width, e.Count, false)
	}
	return l
}

// Forward records the block's forward over [batch, length, width].
func (l *expertList) Forward(f *frame, x *tensor) *tensor {
	shape := x.Shape()
	if l.Router != nil { // DeepseekV3MoE
		scores, weights, chosen := l.Router.call(f, x)
		f.Discard(scores)
		f.BindAll([]*tensor{weights, chosen})
		rows := f.Bind(x.View(-1, x.Size(-1)))
		run := l.deepseekV3MoE
		if l.c.Experts.Routing == RouteGreedy {
			run = l.deepseekV2MoE
		}
		f.Set(&rows, run(f, rows, chosen, weights).View(shape...))
		return f.Set(&rows, rows.Add(f.Call(l.SharedExpert, x)))
	}
	rows := f.Bind(x.View(-1, x.Size(-1)))
	weights := f.Bind(f.Bind(f.Call(l.Gate, rows)).SoftmaxTo(1, trace.F32))
	best, chosen := weights.TopK(l.c.Experts.PerToken, -1)
	f.BindAll([]*tensor{f.Set(&weights, best), chosen})
	if l.c.Experts.Normalized {
		weights.DivInPlace(weights.Sum(true, -1))
	}
	f.Set(&weights, weights.To(rows.DType()))
	y := f.Bind(rows.ZerosLike())
	mask := f.Bind(chosen.OneHot(l.c.Experts.Count).Permute(2, 1, 0))
	var place, token, own, out *tensor
	for i, expert := range l.Experts {
		l.expertTokens(f, mask.Select(0, int64(i)), chosen.Numel(), i, &place, &token)
		f.Set(&own, rows.Unsqueeze(0).Index(nil, token).Reshape(-1, rows.Size(-1)))
		f.Set(&out, f.Call(expert, own).Mul(weights.Unsqueeze(2).Index(token, place)))
		y.IndexAddInPlace(0, token, out.To(rows.DType()))
	}
	if l.SharedExpert != nil {
		shared := f.Bind(f.Call(l.SharedExpert, rows))
		f.Set(&shared, f.Call(l.SharedExpertGate, rows).Sigmoid().Mul(shared))
		f.Set(&y, y.Add(shared))
	}
	return y.Reshape(shape...)
}

// expertTokens records torch.where(mask) of expert i: the tokens that chose it and its position among their experts.
func (l *expertList) expertTokens(f *frame, mask *tensor, pairs int64, i int, rows, columns **tensor) {
	mask.SetTrue((pairs + l.c.Experts.Count - 1 - int64(i)) / l.c.Experts.Count)
	found := f.Bind(mask.Nonzero())
	f.Set(rows, found.Select(1, 0))
	f.Set(columns, found.Select(1, 1))
	f.Del(&found)
}

// deepseekV3MoE records DeepseekV3MoE.moe, which sums in the data type of the weights.
func (l *expertList) deepseekV3MoE(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.FunctionFrame(x, chosen, weights)
	y := g.Bind(x.FilledLike("zeros_like", weights.DType()))
	all := g.Bind(chosen.OneHot(l.c.Experts.Count))
	g.Set(&all, all.Permute(2, 0, 1))
	var mask, token, place, share, own, out, weighted *tensor
	for i, expert := range l.Experts {
		g.Set(&mask, all.Select(0, int64(i)))
		l.expertTokens(g, mask, chosen.Numel(), i, &token, &place)
		g.Set(&share, weights.Index(token, place))
		g.Set(&own, x.Index(token))
		g.Set(&out, g.Call(expert, own))
		g.Set(&weighted, out.Mul(share.Unsqueeze(-1)))
		y.IndexAddInPlace(0, token, weighted)
	}
	return g.Return(y.To(x.DType()))
}

// deepseekV2MoE records DeepseekV2MoE.moe, which sorts tokens by expert and concatenates the experts' results.
func (l *expertList) deepseekV2MoE(f *frame, x, chosen, weights *tensor) *tensor {
	g, pairs, n := f.FunctionFrame(x, chosen, weights), chosen.Numel(), l.c.Experts.Count
	counts := g.Bind(g.Tape().Zeros(trace.I64, chosen.Size(0), n))
	counts.ScatterInPlace(chosen)
	g.Bind(counts.Sum(false, 0))
	order := g.Bind(chosen.View(-1).ArgSort(0))
	sorted := g.Bind(x.Index(order.FloorDivide(trace.IntNumber)))
	outs := make([]*tensor, len(l.Experts))
	var own, out *tensor
	for i, expert := range l.Experts {
		g.Set(&own, sorted.Slice(0, pairs*int64(i)/n, pairs*int64(i+1)/n))
		g.Set(&out, g.Call(expert, own))
		outs[i] = g.Bind(out)
	}
	y := g.Bind(trace.Cat(0, outs...))
	back := g.Bind(y.EmptyLike())
	back.SetItem(y, order)
	parts := back.View(chosen.Size(0), chosen.Size(1), -1).To(weights.DType())
	parts.MulInPlace(weights.Unsqueeze(-1))
	return g.Return(parts.Sum(false, 1).To(back.DType()))
}

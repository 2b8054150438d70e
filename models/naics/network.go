package naics

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/models/bert"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Sizes of the model.
const (
	channels = 4 // title, description, excluded, examples
	width    = 384
	experts  = 4
	chosen   = 2 // experts of a sequence
	hidden   = 1024
)

// miniLM is sentence-transformers/all-MiniLM-L6-v2.
var miniLM = bert.Config{
	Vocab: 30522, Width: width, Layers: 6, Heads: 12, Inner: 4 * width, Positions: maxPositions, Types: 2,
	HiddenDropout: 0.1, AttentionDropout: 0.1, Pooler: true,
}

// maxPositions is the longest sequence.
const maxPositions = 512

// adapters are the LoRA options of every encoder.
var adapters = nn.LoRA{Rank: 8, Dropout: 0.1}

// network is the embedder: an encoder for each text channel, a mixture of experts over their pooled hidden states, and
// the projection to the hyperboloid.
type network struct {
	nn.Module
	Encoders   []*bert.Model
	Moe        *expertMixture
	Projection *nn.Linear
	Hyper      *hyperboloid

	checkpointing bool
}

// newNetwork returns the network. With checkpointing the encoders are in training mode; otherwise they stay in
// evaluation mode, as loaded models are. Adapters have dropout in both cases if adapterDropout is set.
func newNetwork(checkpointing, adapterDropout bool) *network {
	n := &network{
		Moe:        newMixture(channels * width),
		Projection: nn.NewLinear(channels*width, width, true),
		Hyper:      &hyperboloid{Linear: nn.NewLinear(width, width+1, true)},

		checkpointing: checkpointing,
	}
	for range channels {
		e := bert.New(miniLM)
		nn.EmbeddingOf(e.Embeddings.WordEmbeddings).RequireGrads()
		adapted := nn.AdaptLinears(e, adapters)
		nn.NewTree(e).SetTraining(checkpointing)
		if adapterDropout {
			for _, l := range adapted {
				nn.NewTree(l).SetTraining(true)
			}
		}
		n.Encoders = append(n.Encoders, e)
	}
	return n
}

// tokens holds the ids and masks of a batch of texts for each channel.
type tokens [channels]struct{ ids, mask *tensor }

// outputs are the network's results for n texts: embedding [n, 386] and its Euclidean form, and the gate's probs [n, 4]
// and idx [n, 2].
type outputs struct{ embedding, euclid, probs, idx *tensor }

// bind binds names to all outputs.
func (o *outputs) bind(f *frame) {
	for _, x := range []*tensor{o.embedding, o.euclid, o.probs, o.idx} {
		f.Bind(x)
	}
}

// del unbinds the names of all outputs.
func (o *outputs) del(f *frame) {
	for _, x := range []**tensor{&o.embedding, &o.euclid, &o.probs, &o.idx} {
		f.Del(x)
	}
}

// call records the network's forward.
func (n *network) call(f *frame, in *tokens) outputs {
	g := f.ModuleFrame(n)
	var pooled []*tensor
	var out, m *tensor
	for c, e := range n.Encoders {
		g.Set(&out, e.Call(g, in[c].ids, in[c].mask, true, n.checkpointing))
		shape := out.Shape()
		g.Set(&m, in[c].mask.Unsqueeze(-1).Expand(shape...).To(trace.F32))
		pooled = append(pooled, g.Bind(out.Mul(m).Sum(false, 1).Div(m.Sum(false, 1).ClampOneSided())))
	}
	mixed, probs, idx := n.Moe.call(g, trace.Cat(1, pooled...))
	g.BindEach(mixed, probs, idx)
	euclid := g.Bind(g.Call(n.Projection, mixed))
	o := outputs{g.Bind(g.Call(n.Hyper, euclid)), euclid, probs, idx}
	for i := len(pooled) - 1; i >= 0; i-- { // the list goes before the other names
		g.Del(&pooled[i])
	}
	g.End(o.embedding, o.euclid, o.probs, o.idx)
	return o
}

// expertMixture sends every text to two of four experts.
type expertMixture struct {
	nn.Module
	Gate    *nn.Linear
	Experts []*nn.Sequential
}

func newMixture(dim int64) *expertMixture {
	m := &expertMixture{Gate: nn.NewLinear(dim, experts, true)}
	for range experts {
		m.Experts = append(m.Experts, nn.NewSequential(
			nn.NewLinear(dim, hidden, true), nn.NewReLU(), nn.NewDropout(0.1), nn.NewLinear(hidden, dim, true)))
	}
	return m
}

// call records the mixture's forward. It returns the mixed states, the gate's probabilities and the chosen experts.
// The recording assumes that the gate sends equally many texts to each expert.
func (m *expertMixture) call(f *frame, x *tensor) (out, probs, idx *tensor) {
	g := f.ModuleFrame(m, x)
	logits := g.Bind(g.Call(m.Gate, x))
	probs = g.Bind(logits.Softmax(1))
	top, idx := logits.TopK(chosen, 1)
	g.BindEach(top, idx)
	weights := g.Bind(top.Softmax(1))
	out = g.Bind(x.ZerosLike())
	rows := max(1, ceil.Div(x.Size(0)*chosen, experts))
	var picked, pick, y, here, scale *tensor
	for _, e := range m.Experts {
		g.Set(&picked, idx.EqScalar().Any(false, 1))
		g.Set(&pick, g.Tape().Arange(rows))
		g.Set(&y, g.Call(e, x.Index(pick)))
		g.Set(&here, idx.Index(pick).EqScalar().To(trace.F32))
		g.Set(&scale, weights.Index(pick).Mul(here).Sum(true, 1))
		out.SetItem(out.Index(pick).AddInPlace(y.Mul(scale)), pick)
	}
	g.End(out, probs, idx)
	return out, probs, idx
}

// hyperboloid is a linear layer and the exponential map at the origin of the Lorentz model.
type hyperboloid struct {
	nn.Module
	Linear *nn.Linear
}

// Forward maps [n, d] to [n, d+2].
func (h *hyperboloid) Forward(f *frame, x *tensor) *tensor {
	v := f.Bind(f.Call(h.Linear, x))
	root := f.Bind(scalarOnGPU(f).Sqrt())
	norm := f.Bind(v.Norm(2, true, 1).ClampOneSided())
	s := f.Bind(norm.Div(root).Unary("sinh"))
	return trace.Cat(1, norm.Div(root).Unary("cosh"), s.Mul(v).Div(norm))
}

// lorentzDistance returns the distance of points u [n, d] and v [n, d] or [n, k, d].
func lorentzDistance(f *frame, u, v *tensor) *tensor {
	g := f.FunctionFrame(u, v)
	if u.NDim() == 2 && v.NDim() == 3 {
		g.Set(&u, u.Unsqueeze(1))
	}
	uv := g.Bind(u.Mul(v))
	last := uv.NDim() - 1
	dot := g.Bind(uv.Slice(last, 1, uv.Size(last)).Sum(false, -1).Sub(uv.Select(last, 0)))
	g.Set(&dot, dot.ClampOneSided())
	return g.Return(scalarOnGPU(g).Sqrt().Mul(dot.Neg().Unary("acosh")))
}

// scalarOnGPU returns torch.tensor(c, device="cuda").
func scalarOnGPU(f *frame) *tensor { return f.Tape().Filled("to_device", trace.F32) }

// Package gpt is GPT-2 as in transformers, trained as a causal language model and as a classifier. Linear layers are
// fields of type Layer, so that adapters can replace them.
package gpt

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Config has the fields of GPT2Config that affect memory.
type Config struct {
	Vocab, Width, Layers, Heads, Inner, Positions int64
	// Dropout probabilities: of embeddings, of attention weights, and of the results of attention and MLP.
	EmbedDropout, AttentionDropout, ResidualDropout float64
	// Activation is the name of an activation function, see [hf.Activations].
	Activation string
	// Untied reports whether the output layer has a weight of its own.
	Untied bool
	// Eager uses eager attention, which keeps its attention weights.
	Eager bool
	// CausalBuffers reports whether layers store causal masks [1, 1, positions, positions], as in releases before 5.2.
	CausalBuffers bool
	// Cache holds the keys and values of all layers; nil for none.
	Cache *hf.KVCache
}

// attention is GPT2Attention, with one projection for query, key and value.
type attention struct {
	nn.Module
	Bias         *nn.Buffer
	CAttn, CProj nn.Layer
	AttnDropout  *nn.Dropout
	ResidDropout *nn.Dropout
	width, heads int64
	dropout      float64
	eager        bool
	cache        *hf.KVCache
}

func (a *attention) call(f *frame, x, mask *tensor) (y, weights *tensor) {
	g := f.ModuleFrame(a, x, mask)
	parts := g.Call(a.CAttn, x).Split(a.width, 2)
	q, k, v := g.Bind(parts[0]), g.Bind(parts[1]), g.Bind(parts[2])
	size := a.width / a.heads
	g.Set(&k, hf.SplitHeads(k, size))
	g.Set(&v, hf.SplitHeads(v, size))
	g.Set(&q, hf.SplitHeads(q, size))
	k, v = a.cache.Update(g, k, v)
	dropout := hf.DropoutInMode(a, a.dropout)
	if a.eager {
		y, weights = eagerAttention(g, a.Bias, q, k, v, mask, dropout)
		g.BindAll([]*tensor{y, weights})
	} else {
		y = g.Bind(hf.Attention(g, q, k, v, mask, hf.AttentionOptions{Causal: true, Dropout: dropout}))
	}
	g.Set(&y, hf.MergeHeads(y))
	g.Pass(&y, a.CProj, a.ResidDropout)
	return g.ReturnPair(y, weights)
}

// eagerAttention records eager_attention_forward of transformers' GPT-2. Releases with causal buffers replace attention
// scores by masked ones, and add a mask if there is one.
func eagerAttention(f *frame, causal *nn.Buffer, q, k, v, mask *tensor, dropout float64) (y, weights *tensor) {
	g := f.FunctionFrame(q, k, v, mask)
	weights = g.Bind(q.Matmul(k.Transpose(2, 3)).MulScalar())
	if causal != nil {
		seen := g.Bind(causal.TensorOrNil().Slice(2, 0, q.Size(2)).Slice(3, 0, k.Size(2)))
		g.Set(&weights, trace.Where(seen, weights, g.Bind(g.Tape().Full(weights.DType()))))
	}
	if mask != nil {
		g.Set(&weights, weights.Add(mask))
	}
	g.Set(&weights, weights.Softmax(-1))
	g.Set(&weights, weights.To(v.DType()))
	g.Set(&weights, weights.Dropout(dropout, dropout > 0))
	y = g.Bind(weights.Matmul(v))
	g.Set(&y, y.Transpose(1, 2))
	return g.ReturnPair(y, weights)
}

// block is GPT2Block, with a norm before attention and before the MLP.
type block struct {
	nn.Module
	Ln1  *nn.LayerNorm `torch:"ln_1"`
	Attn *attention
	Ln2  *nn.LayerNorm `torch:"ln_2"`
	Mlp  *nn.NamedModule
}

func newBlock(c Config) *block {
	b := &block{
		Ln1: nn.NewLayerNorm(c.Width),
		Attn: &attention{
			CAttn: nn.NewConv1D(3*c.Width, c.Width), CProj: nn.NewConv1D(c.Width, c.Width),
			AttnDropout: nn.NewDropout(c.AttentionDropout), ResidDropout: nn.NewDropout(c.ResidualDropout),
			width: c.Width, heads: c.Heads, dropout: c.AttentionDropout, eager: c.Eager, cache: c.Cache,
		},
		Ln2: nn.NewLayerNorm(c.Width),
		Mlp: nn.NewChain().
			Add("c_fc", nn.NewConv1D(c.Inner, c.Width)).
			Add("act", hf.Activation(c.Activation)).
			Add("c_proj", nn.NewConv1D(c.Width, c.Inner)).
			Add("dropout", nn.NewDropout(c.ResidualDropout)),
	}
	if c.CausalBuffers {
		b.Attn.Bias = nn.NewBuffer(trace.Bool, 1, 1, c.Positions, c.Positions)
	}
	return b
}

// forward records the block's forward; args are hidden states and a mask.
func (b *block) forward(f *frame, args []*tensor) *tensor {
	x, mask := args[0], args[1]
	residual := f.Bind(x)
	f.Set(&x, f.Call(b.Ln1, x))
	y, weights := b.Attn.call(f, x, mask)
	f.BindAll([]*tensor{y, weights})
	f.Set(&x, y.Add(residual))
	f.Set(&residual, x)
	f.Set(&x, f.Call(b.Ln2, x))
	z := f.Bind(f.Call(b.Mlp, x))
	return f.Set(&x, residual.Add(z))
}

// Model is GPT2Model.
type Model struct {
	nn.Module
	Wte  nn.Layer
	Wpe  *nn.Embedding
	Drop *nn.Dropout
	H    []*block
	LnF  *nn.LayerNorm

	eager bool
}

// New returns the modules of GPT2Model.
func New(c Config) *Model {
	return &Model{
		Wte: nn.NewEmbedding(c.Vocab, c.Width), Wpe: nn.NewEmbedding(c.Positions, c.Width),
		Drop: nn.NewDropout(c.EmbedDropout), H: lists.Make(c.Layers, func(int64) *block { return newBlock(c) }),
		LnF: nn.NewLayerNorm(c.Width), eager: c.Eager,
	}
}

// Call records GPT2Model.forward, for [hf.Decoder].
func (m *Model) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.CallFrame(ids, padding)
	embeds := g.Bind(g.Call(m.Wte, ids))
	positions := g.Bind(g.Tape().Arange(ids.Size(1)).AddScalar())
	g.Set(&positions, positions.Unsqueeze(0))
	positionEmbeds := g.Bind(g.Call(m.Wpe, positions))
	x := g.Bind(embeds.Add(positionEmbeds))
	var mask *tensor
	switch {
	case !m.eager:
		mask = hf.CausalMask(g, ids.Size(0), positions, padding, text.Packed)
	case padding != nil || g.Tape().Rules().Libraries.ReadsPositions:
		mask = hf.EagerCausalMask(g, embeds, positions, padding, text.Packed)
	}
	g.BindEach(mask)
	g.Set(&x, g.Call(m.Drop, x))
	for i, b := range m.H {
		g.Set(&x, text.CallLayer(g, i, b, b.forward, []*tensor{x, mask}, positions))
	}
	g.Set(&x, g.Call(m.LnF, x))
	return g.Return(g.Set(&x, x.View(ids.Size(0), ids.Size(1), -1)))
}

// torchNames are the module names of GPT2LMHeadModel and GPT2ForSequenceClassification.
var torchNames = nn.TorchNames{"model": "transformer"}

// CausalLM returns the task of next-token prediction.
func CausalLM(c Config, text hf.Text) *hf.TextTask {
	c.Cache = text.Cache
	text.OwnLoss = hf.ModelLoss{Until: trace.SharedByMistral, Unconverted: true}
	m := New(c)
	head := &nn.Linear{Weight: nn.EmbeddingOf(m.Wte).Weight}
	if c.Untied {
		head = nn.NewLinear(c.Width, c.Vocab, false)
	}
	return hf.CausalLM(torchNames, m, m, nn.EmbeddingOf(m.Wte), head, text)
}

// Classification returns the sequence classification task. padToken: the configuration has a padding token.
func Classification(c Config, classes hf.Classes, padToken bool, text hf.Text) *hf.TextTask {
	c.Cache = text.Cache
	m := New(c)
	return hf.SequenceClassification(torchNames, m, m, nn.EmbeddingOf(m.Wte), c.Width, classes, padToken, text)
}

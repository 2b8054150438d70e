// Package bert is BERT and RoBERTa as in transformers: the encoder, and its training as a masked language model and as
// a classifier. Linear layers are fields of type Layer, so that adapters can replace them.
package bert

import (
	"cmp"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Config has the fields of BertConfig that affect memory.
type Config struct {
	Vocab, Width, Layers, Heads, Inner, Positions, Types int64
	// Activation is the name of an activation function, see [hf.Activations]; empty is gelu.
	Activation string
	// HiddenDropout and AttentionDropout are dropout probabilities.
	HiddenDropout, AttentionDropout float64
	// Pooler reports whether the model has BertPooler, which uses the first token.
	Pooler bool
	// Roberta counts positions from the first token that is not padding, as RoBERTa does, and uses RoBERTa's heads.
	Roberta bool
	// Untied reports whether the output layer has a weight of its own.
	Untied bool
	// Eager uses eager attention, which keeps its attention weights.
	Eager bool
}

func (c Config) activation() *nn.FuncLayer { return hf.Activation(cmp.Or(c.Activation, "gelu")) }

// embeddings sums the embeddings of tokens, positions and token types. RoBERTa declares positions in another order.
type embeddings struct {
	nn.Module
	WordEmbeddings                          nn.Layer
	PositionEmbeddings, TokenTypeEmbeddings *nn.Embedding
	LayerNorm                               *nn.LayerNorm `torch:"LayerNorm"`
	Dropout                                 *nn.Dropout
	RobertaPositions                        *nn.Embedding `torch:"position_embeddings"`
	PositionIds, TokenTypeIds               *nn.Buffer
}

func newEmbeddings(c Config) *embeddings {
	e := &embeddings{
		WordEmbeddings:      nn.NewEmbedding(c.Vocab, c.Width),
		PositionEmbeddings:  nn.NewEmbedding(c.Positions, c.Width),
		TokenTypeEmbeddings: nn.NewEmbedding(c.Types, c.Width),
		LayerNorm:           nn.NewLayerNorm(c.Width),
		Dropout:             nn.NewDropout(c.HiddenDropout),
		PositionIds:         nn.NewBuffer(trace.I64, 1, c.Positions),
		TokenTypeIds:        nn.NewBuffer(trace.I64, 1, c.Positions),
	}
	if c.Roberta {
		e.PositionEmbeddings, e.RobertaPositions = nil, e.PositionEmbeddings
	}
	return e
}

func (e *embeddings) Forward(f *frame, ids *tensor) *tensor {
	batch, length := ids.Size(0), ids.Size(1)
	var positions *tensor
	table := e.PositionEmbeddings
	if e.RobertaPositions != nil {
		table = e.RobertaPositions
		positions = f.Bind(robertaPositions(f, ids))
	} else {
		positions = f.Bind(e.PositionIds.Slice(1, 0, length))
	}
	buffered := f.Bind(e.TokenTypeIds.Expand(positions.Size(0), -1))
	f.Set(&buffered, buffered.Gather(positions))
	types := f.Bind(buffered.Expand(batch, length))
	embeds := f.Bind(f.Call(e.WordEmbeddings, ids))
	typeEmbeds := f.Bind(f.Call(e.TokenTypeEmbeddings, types))
	x := f.Bind(embeds.Add(typeEmbeds))
	positionEmbeds := f.Bind(f.Call(table, positions))
	f.Set(&x, x.Add(positionEmbeds))
	f.Pass(&x, e.LayerNorm, e.Dropout)
	return x
}

func robertaPositions(f *frame, ids *tensor) *tensor {
	g := f.FunctionFrame(ids)
	mask := g.Bind(ids.EqScalar().To(trace.I32))
	index := g.Bind(mask.CumSum(1).To(trace.I32).AddScalar().Mul(mask))
	return g.Return(index.To(trace.I64).AddScalar())
}

// selfAttention is BertSelfAttention: projections to query, key and value, and attention.
type selfAttention struct {
	nn.Module
	Query, Key, Value nn.Layer
	headSize          int64
	dropout           float64
	eager             bool
}

// call returns the output and, if attention is eager, the attention weights.
func (a *selfAttention) call(f *frame, x, mask *tensor) (y, weights *tensor) {
	g := f.ModuleFrame(a, x, mask)
	return g.ReturnPair(hf.SelfAttention(g, a, x, mask, a.Query, a.Key, a.Value, a.headSize, a.dropout, a.eager))
}

// output is BertSelfOutput or BertOutput: projection, dropout, and the norm of the sum with the residual.
type output struct {
	nn.Module
	Dense     nn.Layer
	LayerNorm *nn.LayerNorm `torch:"LayerNorm"`
	Dropout   *nn.Dropout
}

func newOutput(c Config, in int64) *output {
	return &output{
		Dense: nn.NewLinear(in, c.Width, true), LayerNorm: nn.NewLayerNorm(c.Width),
		Dropout: nn.NewDropout(c.HiddenDropout),
	}
}

func (o *output) call(f *frame, x, input *tensor) *tensor {
	g := f.ModuleFrame(o, x, input)
	g.Pass(&x, o.Dense, o.Dropout)
	return g.Return(g.Set(&x, g.Call(o.LayerNorm, x.Add(input))))
}

// attention is BertAttention: self-attention and its output projection.
type attention struct {
	nn.Module
	Self   *selfAttention
	Output *output
}

func (a *attention) call(f *frame, x, mask *tensor) (y, weights *tensor) {
	g := f.CallFrame(x, mask)
	y, weights = a.Self.call(g, x, mask)
	g.BindEach(y, weights)
	g.Set(&y, a.Output.call(g, y, x))
	return g.ReturnPair(y, weights)
}

// layer is BertLayer, with a norm after attention and after the feed-forward part.
type layer struct {
	nn.Module
	Attention    *attention
	Intermediate *nn.NamedModule // widens and applies the activation
	Output       *output
}

func newLayer(c Config) *layer {
	linear := func() *nn.Linear { return nn.NewLinear(c.Width, c.Width, true) }
	return &layer{
		Attention: &attention{
			Self: &selfAttention{
				Query: linear(), Key: linear(), Value: linear(), headSize: c.Width / c.Heads,
				dropout: c.AttentionDropout, eager: c.Eager,
			},
			Output: newOutput(c, c.Width),
		},
		Intermediate: nn.NewChain().
			Add("dense", nn.NewLinear(c.Width, c.Inner, true)).
			Add("intermediate_act_fn", c.activation()),
		Output: newOutput(c, c.Inner),
	}
}

// forward records the layer's forward; args are hidden states and a mask.
func (l *layer) forward(f *frame, args []*tensor) *tensor {
	y, weights := l.Attention.call(f, args[0], args[1])
	f.BindEach(y, weights)
	return f.Bind(l.feedForward(f, y))
}

func (l *layer) feedForward(f *frame, x *tensor) *tensor {
	g := f.FunctionFrame(x)
	inner := g.Bind(g.Call(l.Intermediate, x))
	return g.Return(g.Bind(l.Output.call(g, inner, x)))
}

// encoder is BertEncoder: the list of layers.
type encoder struct {
	nn.Module
	Layer []*layer
}

func (e *encoder) call(f *frame, x, mask *tensor, checkpointing bool) *tensor {
	g := f.CallFrame(x, mask)
	for _, l := range e.Layer {
		g.Set(&x, hf.CallLayer(g, l, checkpointing, l.forward, x, mask))
	}
	return g.Return(x)
}

// pooler is BertPooler, which uses the first token's hidden state.
type pooler struct {
	nn.Module
	Dense nn.Layer
}

func (p *pooler) Forward(f *frame, x *tensor) *tensor {
	first := f.Bind(x.Select(1, 0))
	y := f.Bind(f.Call(p.Dense, first))
	return f.Set(&y, y.Tanh())
}

// Model is BertModel.
type Model struct {
	nn.Module
	Embeddings *embeddings
	Encoder    *encoder
	Pooler     *pooler
	eager      bool
}

// New returns the modules of BertModel.
func New(c Config) *Model {
	m := &Model{Embeddings: newEmbeddings(c), Encoder: &encoder{}, eager: c.Eager}
	m.Encoder.Layer = lists.Make(c.Layers, func(int64) *layer { return newLayer(c) })
	if c.Pooler {
		m.Pooler = &pooler{Dense: nn.NewLinear(c.Width, c.Width, true)}
	}
	return m
}

// Call records BertModel.forward: it maps token ids and a padding mask [batch, length] to hidden states [batch, length,
// width]. padded reports whether the mask has a zero. The pooler's output is computed and not used.
func (m *Model) Call(f *frame, ids, padding *tensor, padded, checkpointing bool) *tensor {
	states, pooled := m.outputs(f, ids, padding, padded, checkpointing)
	if pooled != nil {
		f.Discard(pooled) // the output object goes once its states have been taken
	}
	return states
}

// outputs returns the hidden states and the pooler's output, nil without a pooler.
func (m *Model) outputs(f *frame, ids, padding *tensor, padded, checkpointing bool) (states, pooled *tensor) {
	g := f.ModuleFrame(m, ids, padding)
	x := g.Bind(g.Call(m.Embeddings, ids))
	mask := hf.BidirectionalMask(g, x, padding, padded, m.eager)
	if mask != nil {
		g.Set(&padding, mask)
	}
	states = g.Bind(m.Encoder.call(g, x, mask, checkpointing))
	if m.Pooler != nil {
		pooled = g.Bind(g.Call(m.Pooler, states))
	}
	return g.ReturnPair(states, pooled)
}

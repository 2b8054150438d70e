package bert

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// DistilledConfig has the fields of DistilBertConfig that affect memory.
type DistilledConfig struct {
	Vocab, Width, Layers, Heads, Inner, Positions int64
	// Activation is the name of an activation function, see [hf.Activations].
	Activation string
	// Dropout and AttentionDropout are dropout probabilities.
	Dropout, AttentionDropout float64
	// Untied reports whether the output layer has a weight of its own.
	Untied bool
	// Eager uses eager attention, which keeps its attention weights.
	Eager bool
}

// distilEmbeddings sums the embeddings of tokens and positions; DistilBERT has no token types.
type distilEmbeddings struct {
	nn.Module
	WordEmbeddings     nn.Layer
	PositionEmbeddings *nn.Embedding
	LayerNorm          *nn.LayerNorm `torch:"LayerNorm"`
	Dropout            *nn.Dropout
	PositionIds        *nn.Buffer
}

func (e *distilEmbeddings) Forward(f *frame, ids *tensor) *tensor {
	embeds := f.Bind(f.Call(e.WordEmbeddings, ids))
	positions := f.Bind(e.PositionIds.Slice(1, 0, ids.Size(1)))
	positionEmbeds := f.Bind(f.Call(e.PositionEmbeddings, positions))
	x := f.Bind(embeds.Add(positionEmbeds))
	f.Pass(&x, e.LayerNorm, e.Dropout)
	return x
}

// distilAttention is DistilBertSelfAttention: projections, attention, and the output projection.
type distilAttention struct {
	nn.Module
	QLin, KLin, VLin, OutLin nn.Layer
	headSize                 int64
	dropout                  float64
	eager                    bool
}

func (a *distilAttention) call(f *frame, x, mask *tensor) *tensor {
	g := f.ModuleFrame(a, x, mask)
	y, _ := hf.SelfAttention(g, a, x, mask, a.QLin, a.KLin, a.VLin, a.headSize, a.dropout, a.eager)
	return g.Return(g.Set(&y, g.Call(a.OutLin, y)))
}

type distilFFN struct {
	nn.Module
	Dropout    *nn.Dropout
	Lin1, Lin2 nn.Layer
	Activation *nn.FuncLayer
}

func (n *distilFFN) Forward(f *frame, input *tensor) *tensor {
	x := f.Bind(f.Call(n.Lin1, input))
	f.Pass(&x, n.Activation, n.Lin2, n.Dropout)
	return x
}

// distilBlock is TransformerBlock of DistilBERT, with a norm after attention and after the feed-forward part.
type distilBlock struct {
	nn.Module
	Attention       *distilAttention
	SaLayerNorm     *nn.LayerNorm
	Ffn             *distilFFN
	OutputLayerNorm *nn.LayerNorm
}

func newDistilBlock(c DistilledConfig) *distilBlock {
	linear := func() *nn.Linear { return nn.NewLinear(c.Width, c.Width, true) }
	return &distilBlock{
		Attention: &distilAttention{
			QLin: linear(), KLin: linear(), VLin: linear(), OutLin: linear(),
			headSize: c.Width / c.Heads, dropout: c.AttentionDropout, eager: c.Eager,
		},
		SaLayerNorm: nn.NewLayerNorm(c.Width),
		Ffn: &distilFFN{
			Dropout: nn.NewDropout(c.Dropout), Activation: hf.Activation(c.Activation),
			Lin1: nn.NewLinear(c.Width, c.Inner, true), Lin2: nn.NewLinear(c.Inner, c.Width, true),
		},
		OutputLayerNorm: nn.NewLayerNorm(c.Width),
	}
}

// forward records the block's forward; args are hidden states and a mask.
func (b *distilBlock) forward(f *frame, args []*tensor) *tensor {
	x, mask := args[0], args[1]
	y := f.Bind(b.Attention.call(f, x, mask))
	f.Set(&y, f.Call(b.SaLayerNorm, y.Add(x)))
	z := f.Bind(f.Call(b.Ffn, y))
	return f.Set(&z, f.Call(b.OutputLayerNorm, z.Add(y)))
}

// distilTransformer is Transformer of DistilBERT: the list of layers.
type distilTransformer struct {
	nn.Module
	Layer []*distilBlock
}

func (s *distilTransformer) call(f *frame, x, mask *tensor, checkpointing bool) *tensor {
	g := f.CallFrame(x, mask)
	for _, b := range s.Layer {
		g.Set(&x, hf.CallLayer(g, b, checkpointing, b.forward, x, mask))
	}
	return g.Return(x)
}

// Distilled is DistilBertModel.
type Distilled struct {
	nn.Module
	Embeddings  *distilEmbeddings
	Transformer *distilTransformer
	eager       bool
}

// NewDistilled returns the modules of DistilBertModel.
func NewDistilled(c DistilledConfig) *Distilled {
	m := &Distilled{
		Embeddings: &distilEmbeddings{
			WordEmbeddings:     nn.NewEmbedding(c.Vocab, c.Width),
			PositionEmbeddings: nn.NewEmbedding(c.Positions, c.Width),
			LayerNorm:          nn.NewLayerNorm(c.Width), Dropout: nn.NewDropout(c.Dropout),
			PositionIds: nn.NewBuffer(trace.I64, 1, c.Positions),
		},
		Transformer: &distilTransformer{
			Layer: lists.Make(c.Layers, func(int64) *distilBlock { return newDistilBlock(c) }),
		},
		eager: c.Eager,
	}
	return m
}

// Call records DistilBertModel.forward of token ids and a padding mask [batch, length], to hidden states.
func (m *Distilled) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.CallFrame(ids, padding)
	x := g.Bind(g.Call(m.Embeddings, ids))
	mask := hf.BidirectionalMask(g, x, padding, text.Padded, m.eager)
	if mask != nil {
		g.Set(&padding, mask)
	}
	return g.Return(m.Transformer.call(g, x, mask, text.Checkpointing))
}

type distilLM struct {
	nn.Module
	Activation     *nn.FuncLayer
	Encoder        *Distilled `torch:"distilbert"`
	VocabTransform nn.Layer
	VocabLayerNorm *nn.LayerNorm
	VocabProjector nn.Layer
}

// DistilledMaskedLM returns the task of predicting masked tokens with DistilBERT.
func DistilledMaskedLM(c DistilledConfig, text hf.Text) *hf.TextTask {
	m, projector := NewDistilled(c), nn.NewLinear(c.Width, c.Vocab, true)
	net := &distilLM{
		Activation: hf.Activation(c.Activation), Encoder: m,
		VocabTransform: nn.NewLinear(c.Width, c.Width, true), VocabLayerNorm: nn.NewLayerNorm(c.Width),
		VocabProjector: projector,
	}
	if !c.Untied {
		projector.Weight = nn.EmbeddingOf(m.Embeddings.WordEmbeddings).Weight
	}
	return &hf.TextTask{
		Text: text, Net: net, Inputs: nn.EmbeddingOf(m.Embeddings.WordEmbeddings), Output: projector,
		Bidirectional: true,
		Call: func(f *frame, b hf.TextBatch) *tensor {
			g := f.ModuleFrame(net, b.IDs, b.Padding, b.Labels)
			states := g.Bind(m.Call(g, b.IDs, b.Padding, text))
			logits := g.Bind(g.Call(net.VocabTransform, states))
			g.Pass(&logits, net.Activation, net.VocabLayerNorm, net.VocabProjector)
			loss := g.Bind(logits.View(-1, logits.Size(-1)).CrossEntropy(b.Labels.View(-1)))
			return hf.EndWithLoss(g, loss, logits)
		},
	}
}

type distilClassification struct {
	nn.Module
	Encoder                   *Distilled `torch:"distilbert"`
	PreClassifier, Classifier nn.Layer
	Dropout                   *nn.Dropout
}

// DistilledClassification returns the sequence classification task of DistilBERT; dropout is before the classifier.
func DistilledClassification(c DistilledConfig, classes hf.Classes, dropout float64, text hf.Text) *hf.TextTask {
	m := NewDistilled(c)
	net := &distilClassification{
		Encoder: m, PreClassifier: nn.NewLinear(c.Width, c.Width, true),
		Classifier: nn.NewLinear(c.Width, classes.Count, true),
		Dropout:    nn.NewDropout(dropout),
	}
	return &hf.TextTask{
		Text: text, Net: net, Inputs: nn.EmbeddingOf(m.Embeddings.WordEmbeddings), Output: net.Classifier,
		Classes:       &classes,
		Bidirectional: true,
		Heads:         []*nn.Layer{&net.PreClassifier, &net.Classifier},
		Call: func(f *frame, b hf.TextBatch) *tensor {
			g := f.ModuleFrame(net, b.IDs, b.Padding, b.Labels)
			states := g.Bind(m.Call(g, b.IDs, b.Padding, text))
			x := g.Bind(states.Select(1, 0))
			g.Set(&x, g.Call(net.PreClassifier, x))
			g.Set(&x, x.ReLU())
			g.Set(&x, g.Call(net.Dropout, x))
			logits := g.Bind(g.Call(net.Classifier, x))
			return hf.EndWithLoss(g, g.Bind(classes.Loss(logits, b.Labels)), logits)
		},
	}
}

package bert

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
)

// MaskedLM returns the task of masked-token prediction.
func MaskedLM(c Config, text hf.Text) *hf.TextTask {
	c.Pooler = false
	m := New(c)
	task := &hf.TextTask{Text: text, Inputs: nn.EmbeddingOf(m.Embeddings.WordEmbeddings), Bidirectional: true}
	bias := nn.NewParameter(c.Vocab)
	decoder := nn.NewLinear(c.Width, c.Vocab, true)
	if !c.Untied {
		decoder = &nn.Linear{Weight: nn.EmbeddingOf(m.Embeddings.WordEmbeddings).Weight, Bias: bias}
	}
	task.Output = decoder
	var head nn.Layer
	if c.Roberta {
		h := &robertaHead{
			Dense: nn.NewLinear(c.Width, c.Width, true), LayerNorm: nn.NewLayerNorm(c.Width),
			Decoder: decoder, Bias: bias,
		}
		task.Net, head = &robertaLM{Roberta: m, LmHead: h}, h
	} else {
		transform := nn.NewChain().
			Add("dense", nn.NewLinear(c.Width, c.Width, true)).
			Add("transform_act_fn", c.activation()).
			Add("LayerNorm", nn.NewLayerNorm(c.Width))
		h := &bertHead{Predictions: nn.NewChain().Add("transform", transform).Add("decoder", decoder)}
		h.Predictions.ShareParameter("bias", bias)
		task.Net, head = &bertLM{Bert: m, Cls: h}, h
	}
	task.Call = func(f *frame, b hf.TextBatch) *tensor {
		g := f.ModuleFrame(task.Net, b.IDs, b.Padding, b.Labels)
		x := g.Bind(m.Call(g, b.IDs, b.Padding, text.Padded, text.Checkpointing))
		if text.Headless {
			return hf.EndWithLoss(g, g.Bind(x.Sum(false)))
		}
		logits := g.Bind(g.Call(head, x))
		loss := g.Bind(logits.View(-1, logits.Size(-1)).CrossEntropy(b.Labels.View(-1)))
		return hf.EndWithLoss(g, loss, logits)
	}
	return task
}

type bertLM struct {
	nn.Module
	Bert *Model
	Cls  *bertHead
}

type bertHead struct {
	nn.Module
	// Predictions usually shares weight and bias with the word embeddings and the head.
	Predictions *nn.NamedModule
}

func (h *bertHead) Forward(f *frame, x *tensor) *tensor { return f.Bind(f.Call(h.Predictions, x)) }

type robertaLM struct {
	nn.Module
	Roberta *Model
	LmHead  *robertaHead
}

type robertaHead struct {
	nn.Module
	Dense     nn.Layer
	LayerNorm *nn.LayerNorm
	Decoder   nn.Layer
	Bias      *nn.Parameter
}

func (h *robertaHead) Forward(f *frame, x *tensor) *tensor {
	y := f.Bind(f.Call(h.Dense, x))
	f.Set(&y, y.GELU())
	f.Pass(&y, h.LayerNorm, h.Decoder)
	return y
}

// Classification returns the task of classifying each sequence. dropout is the classifier's.
func Classification(c Config, classes hf.Classes, dropout float64, text hf.Text) *hf.TextTask {
	c.Pooler = !c.Roberta
	m := New(c)
	inputs := nn.EmbeddingOf(m.Embeddings.WordEmbeddings)
	task := &hf.TextTask{Text: text, Inputs: inputs, Classes: &classes, Bidirectional: true}
	output := nn.NewLinear(c.Width, classes.Count, true)
	net := &classifier{Bert: m, Dropout: nn.NewDropout(dropout), Classifier: output}
	if c.Roberta {
		net = &classifier{Roberta: m, Classifier: &robertaClassifier{
			Dense: nn.NewLinear(c.Width, c.Width, true), Dropout: nn.NewDropout(dropout), OutProj: output,
		}}
	}
	task.Net, task.Output, task.Heads = net, output, []*nn.Layer{&net.Classifier}
	task.Call = func(f *frame, b hf.TextBatch) *tensor {
		g := f.ModuleFrame(net, b.IDs, b.Padding, b.Labels)
		states, pooled := m.outputs(g, b.IDs, b.Padding, text.Padded, text.Checkpointing)
		x := g.Bind(states)
		if pooled != nil {
			g.Bind(pooled)
			x = g.Bind(g.Call(net.Dropout, pooled))
		}
		logits := g.Bind(g.Call(net.Classifier, x))
		return hf.EndWithLoss(g, g.Bind(classes.Loss(logits, b.Labels)), logits)
	}
	return task
}

// classifier is BertForTokenClassification or BertForSequenceClassification, or RoBERTa's class of the same kind.
type classifier struct {
	nn.Module
	Bert, Roberta *Model
	Encoder       *Distilled `torch:"distilbert"`
	Dropout       *nn.Dropout
	Classifier    nn.Layer
}

// task returns a classification task. states computes the hidden states of the last layer.
func (n *classifier) task(inputs *nn.Embedding, classes hf.Classes, text hf.Text,
	states func(f *frame, b hf.TextBatch) *tensor,
) *hf.TextTask {
	t := hf.TokenClassification(n, inputs, hf.TokenHead{Dropout: n.Dropout, Score: &n.Classifier},
		classes, text, states)
	t.Bidirectional = true
	return t
}

// TokenClassification returns the token classification task.
func TokenClassification(c Config, classes hf.Classes, dropout *nn.Dropout, text hf.Text) *hf.TextTask {
	m := New(c)
	net := &classifier{Dropout: dropout, Classifier: nn.NewLinear(c.Width, classes.Count, true)}
	if net.Bert = m; c.Roberta {
		net.Bert, net.Roberta = nil, m
	}
	return net.task(nn.EmbeddingOf(m.Embeddings.WordEmbeddings), classes, text, func(f *frame, b hf.TextBatch) *tensor {
		return m.Call(f, b.IDs, b.Padding, text.Padded, text.Checkpointing)
	})
}

// DistilledTokenClassification returns the token classification task of DistilBERT.
func DistilledTokenClassification(c DistilledConfig, classes hf.Classes, dropout *nn.Dropout,
	text hf.Text,
) *hf.TextTask {
	m := NewDistilled(c)
	net := &classifier{Encoder: m, Dropout: dropout, Classifier: nn.NewLinear(c.Width, classes.Count, true)}
	return net.task(nn.EmbeddingOf(m.Embeddings.WordEmbeddings), classes, text, func(f *frame, b hf.TextBatch) *tensor {
		return m.Call(f, b.IDs, b.Padding, text)
	})
}

// robertaClassifier is RobertaClassificationHead.
type robertaClassifier struct {
	nn.Module
	Dense   nn.Layer
	Dropout *nn.Dropout
	OutProj nn.Layer
}

func (h *robertaClassifier) Forward(f *frame, features *tensor) *tensor {
	x := f.Bind(features.Select(1, 0))
	f.Pass(&x, h.Dropout, h.Dense)
	f.Set(&x, x.Tanh())
	f.Pass(&x, h.Dropout, h.OutProj)
	return x
}

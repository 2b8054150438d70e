// Package vit is the Vision Transformer as in transformers: with the two-value regression head of a music-emotion
// notebook, in the stages of its unfreezing, and as an image classifier. Linear layers are fields of type Layer, so
// that adapters can replace them.
package vit

import (
	"cmp"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Config has the fields of ViTConfig that affect memory.
type Config struct {
	Image, Patch, Channels          int64
	Width, Layers, Heads, Inner     int64
	HiddenDropout, AttentionDropout float64
	// Activation is the name of an activation function, see [hf.Activations]; empty is gelu.
	Activation string
	// NoQKVBias means that query, key and value projections have no bias.
	NoQKVBias bool
}

// patchEmbeddings is ViTPatchEmbeddings.
type patchEmbeddings struct {
	nn.Module
	Projection   nn.Layer
	requireGrads bool
}

func (p *patchEmbeddings) Forward(f *frame, pixels *tensor) *tensor {
	x := f.Call(p.Projection, pixels).Flatten(2, -1).Transpose(1, 2)
	x.RequireGrad(p.requireGrads)
	return x
}

// embeddings is ViTEmbeddings.
type embeddings struct {
	nn.Module
	ClsToken           *nn.Parameter
	PatchEmbeddings    *patchEmbeddings
	PositionEmbeddings *nn.Parameter
	Dropout            *nn.Dropout
}

func newEmbeddings(c Config) *embeddings {
	patch := nn.ConvOptions{Kernel: []int64{c.Patch, c.Patch}, Stride: []int64{c.Patch}}
	return &embeddings{
		ClsToken:           nn.NewParameter(1, 1, c.Width),
		PatchEmbeddings:    &patchEmbeddings{Projection: nn.NewConv(c.Channels, c.Width, patch)},
		PositionEmbeddings: nn.NewParameter(1, (c.Image/c.Patch)*(c.Image/c.Patch)+1, c.Width), // one for the class
		Dropout:            nn.NewDropout(c.HiddenDropout),
	}
}

func (e *embeddings) Forward(f *frame, pixels *tensor) *tensor {
	x := f.Bind(f.Call(e.PatchEmbeddings, pixels))
	class := f.Bind(e.ClsToken.Expand(pixels.Size(0), -1, -1))
	f.Set(&x, trace.Cat(1, class, x))
	f.Set(&x, x.Add(e.PositionEmbeddings.Tensor))
	return f.Set(&x, f.Call(e.Dropout, x))
}

// attention is ViTAttention.
type attention struct {
	nn.Module
	QProj, KProj, VProj, OProj nn.Layer
	headSize                   int64
	dropout                    float64
}

func newAttention(c Config) *attention {
	linear := func(bias bool) *nn.Linear { return nn.NewLinear(c.Width, c.Width, bias) }
	return &attention{
		QProj: linear(!c.NoQKVBias), KProj: linear(!c.NoQKVBias), VProj: linear(!c.NoQKVBias), OProj: linear(true),
		headSize: c.Width / c.Heads, dropout: c.AttentionDropout,
	}
}

func (a *attention) Forward(f *frame, x *tensor) *tensor {
	y, _ := hf.SelfAttention(f, a, x, nil, a.QProj, a.KProj, a.VProj, a.headSize, a.dropout, false)
	return f.Set(&y, f.Call(a.OProj, y))
}

// layer is ViTLayer, with a norm before attention and before the feed-forward part.
type layer struct {
	nn.Module
	Attention       *attention
	LayernormBefore *nn.LayerNorm
	LayernormAfter  *nn.LayerNorm
	Mlp             *nn.NamedModule
	Dropout         *nn.Dropout
}

func newLayer(c Config) *layer {
	return &layer{
		Attention: newAttention(c), LayernormBefore: nn.NewLayerNorm(c.Width), LayernormAfter: nn.NewLayerNorm(c.Width),
		Mlp: nn.NewChain().
			Add("fc1", nn.NewLinear(c.Width, c.Inner, true)).
			Add("activation_fn", hf.Activation(cmp.Or(c.Activation, "gelu"))).
			Add("fc2", nn.NewLinear(c.Inner, c.Width, true)),
		Dropout: nn.NewDropout(c.HiddenDropout),
	}
}

// forward records the layer's forward; args are the hidden states.
func (l *layer) forward(f *frame, args []*tensor) *tensor {
	x := args[0]
	residual := f.Bind(x)
	f.Pass(&x, l.LayernormBefore, l.Attention, l.Dropout)
	f.Set(&x, x.Add(residual))
	f.Set(&residual, x)
	f.Pass(&x, l.LayernormAfter, l.Mlp, l.Dropout)
	return f.Set(&x, x.Add(residual))
}

// pooler is ViTPooler: a projection of the class token.
type pooler struct {
	nn.Module
	Dense      nn.Layer
	Activation *nn.FuncLayer
}

func (p *pooler) Forward(f *frame, x *tensor) *tensor {
	first := f.Bind(x.Select(1, 0))
	y := f.Bind(f.Call(p.Dense, first))
	return f.Set(&y, f.Call(p.Activation, y))
}

// Model is ViTModel.
type Model struct {
	nn.Module
	Embeddings *embeddings
	Layers     []*layer
	Layernorm  *nn.LayerNorm
	Pooler     *pooler
}

// New returns the modules of ViTModel, with a pooler if pooling is true.
func New(c Config, pooling bool) *Model {
	m := &Model{Embeddings: newEmbeddings(c), Layernorm: nn.NewLayerNorm(c.Width)}
	m.Layers = lists.Make(c.Layers, func(int64) *layer { return newLayer(c) })
	if pooling {
		m.Pooler = &pooler{Dense: nn.NewLinear(c.Width, c.Width, true), Activation: nn.NewFunc((*tensor).Tanh)}
	}
	return m
}

// Call maps images [batch, channels, size, size] to hidden states [batch, tokens, width]. It does not return the
// pooler's result.
func (m *Model) Call(f *frame, pixels *tensor, checkpointing bool) *tensor {
	g := f.CallFrame(pixels)
	embedded := g.Bind(g.Call(m.Embeddings, pixels))
	x := g.Bind(embedded)
	for _, l := range m.Layers {
		g.Set(&x, hf.CallLayer(g, l, checkpointing, l.forward, x))
	}
	y := g.Bind(g.Call(m.Layernorm, x))
	if m.Pooler == nil {
		return g.Return(y)
	}
	pooled := g.Bind(g.Call(m.Pooler, y))
	g.End(y, pooled)
	g.Discard(pooled)
	return y
}

const imageSetting = "image-size"

// ImageSetting returns the setting of the images' height and width.
func ImageSetting(usual int64) models.Setting {
	return models.Setting{Name: imageSetting, Usage: "pixels of a side", Default: usual, Min: 1, Max: 1 << 13}
}

// imageClassifier is ViTForImageClassification.
type imageClassifier struct {
	nn.Module
	Vit        *Model
	Classifier nn.Layer
}

// call returns the loss of image classification.
func (m *imageClassifier) call(f *frame, pixels, labels *tensor, classes hf.Classes, checkpointing bool) *tensor {
	g := f.ModuleFrame(m, pixels, labels)
	pixels = g.Argument(pixels)
	x := g.Bind(m.Vit.Call(g, pixels, checkpointing))
	class := g.Bind(x.Select(1, 0))
	logits := g.Bind(g.Call(m.Classifier, class))
	loss := g.Bind(classes.Loss(logits, labels))
	return hf.EndWithLoss(g, loss, logits)
}

// Classification returns the image classification task.
func Classification(c Config, classes hf.Classes, checkpointing bool) train.Adaptable {
	net := &imageClassifier{Vit: New(c, false), Classifier: nn.NewLinear(c.Width, classes.Count, true)}
	return &train.SupervisedTask{
		Net: net, Last: net.Classifier, RequireGrads: func() { net.Vit.Embeddings.PatchEmbeddings.requireGrads = true },
		Sample: func(t *trace.Tape, n int64) (x, labels *tensor) {
			return t.New("randn", program.Batch, trace.F32, n, c.Channels, c.Image, c.Image), classes.Labels(t, n)
		},
		Learn: func(f *frame, x, labels *tensor, loss **tensor) {
			f.Set(loss, net.call(f, x, labels, classes, checkpointing))
			f.Tape().Mark("forward")
		},
	}
}

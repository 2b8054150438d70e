// Package llama is the Llama family of decoders as transformers builds them,
// with Mistral, Qwen2, Qwen3 and Gemma 2, trained as causal language models and as classifiers.
// Linear layers are held as layers, so that adapters can take their places.
package llama

import (
	"slices"

	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Config is what LlamaConfig holds that matters to memory.
type Config struct {
	Vocab, Width, Layers, Heads, KVHeads, HeadSize, Inner int64
	// QKVBias is the bias of query, key and value, OutputBias that of what
	// follows, MLPBias that of the feed-forward layers.
	QKVBias, OutputBias, MLPBias bool
	AttentionDropout             float64
	// Activation is the name of a function, see [hf.Activations].
	Activation string
	// Windowed says of each layer whether its tokens see only those up to
	// Window before them; nil says that none does.
	Windowed []bool
	Window   int64
	// BothMasks makes the mask of full attention even if no layer has it.
	BothMasks bool
	// QKNorm normalizes each head of query and key, as Qwen3 does.
	QKNorm bool
	// Liger has the kernels of liger-kernel compute norms, rotary positions and
	// feed-forward layers.
	Liger bool
	// Gemma is what Gemma 2 does otherwise; nil for the others.
	Gemma *Gemma
	// Tied says that the output layer shares the weight of the embeddings.
	Tied bool
}

// rmsNorm is LlamaRMSNorm.
type rmsNorm struct {
	nn.Module
	Weight *nn.Parameter
	liger  bool
	gemma  bool
}

func newRMSNorm(c Config, width int64) *rmsNorm {
	return &rmsNorm{Weight: nn.NewParameter(width), liger: c.Liger, gemma: c.Gemma != nil}
}

func (n *rmsNorm) Forward(f *frame, x *tensor) *tensor {
	if n.liger {
		return liger.Norm{Fresh: n.gemma}.RMSNorm(f, x, n.Weight.Tensor)
	}
	if n.gemma {
		return n.gemmaForward(f, x)
	}
	d := x.DType()
	f.Set(&x, x.To(trace.F32))
	variance := f.Let(x.Pow(2).Mean(true, -1))
	f.Set(&x, x.Mul(variance.AddScalar().Rsqrt()))
	return n.Weight.Mul(x.To(d))
}

// rotary is LlamaRotaryEmbedding.
type rotary struct {
	nn.Module
	InvFreq, OriginalInvFreq *nn.Buffer
}

func newRotary(headSize int64) *rotary {
	return &rotary{InvFreq: nn.NewBuffer(trace.F32, headSize/2), OriginalInvFreq: nn.NewBuffer(trace.F32, headSize/2)}
}

// call gives the cosines and sines of positions [1, length], in the type of x.
func (r *rotary) call(f *frame, x, positions *tensor) (cos, sin *tensor) {
	g := f.CallFrame(x, positions)
	g.In(r)
	g.Tape().NoGrad(func() {
		freqs := g.Let(positions.Unsqueeze(-1).To(trace.F32).Mul(r.InvFreq.Tensor))
		emb := g.Let(trace.Cat(-1, freqs, freqs))
		cos = g.Let(emb.Cos().MulScalar())
		sin = g.Let(emb.Sin().MulScalar())
		cos, sin = cos.To(x.DType()), sin.To(x.DType())
	})
	g.End(cos, sin)
	return cos, sin
}

// rotateHalf is rotate_half.
func rotateHalf(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	half := x.Size(-1) / 2
	x1 := g.Let(x.Slice(-1, 0, half))
	x2 := g.Let(x.Slice(-1, half, x.Size(-1)))
	y := trace.Cat(-1, x2.Neg(), x1)
	g.End(y)
	return y
}

// rotate is apply_rotary_pos_emb.
func rotate(f *frame, q, k, cos, sin *tensor) (*tensor, *tensor) {
	g := f.FuncFrame(q, k, cos, sin)
	g.Set(&cos, cos.Unsqueeze(1))
	g.Set(&sin, sin.Unsqueeze(1))
	turn := func(x *tensor) *tensor { return x.Mul(cos).Add(rotateHalf(g, x).Mul(sin)) }
	a := g.Let(turn(q))
	b := g.Let(turn(k))
	g.End(a, b)
	return a, b
}

// attention is causal self attention with rotary positions; several heads of
// the query may share one of key and value.
type attention struct {
	nn.Module
	QProj, KProj, VProj, OProj nn.Layer
	QNorm, KNorm               *rmsNorm
	c                          Config
}

func newAttention(c Config) *attention {
	a := &attention{
		QProj: nn.NewLinear(c.Width, c.Heads*c.HeadSize, c.QKVBias),
		KProj: nn.NewLinear(c.Width, c.KVHeads*c.HeadSize, c.QKVBias),
		VProj: nn.NewLinear(c.Width, c.KVHeads*c.HeadSize, c.QKVBias),
		OProj: nn.NewLinear(c.Heads*c.HeadSize, c.Width, c.OutputBias),
		c:     c,
	}
	if c.QKNorm {
		a.QNorm, a.KNorm = newRMSNorm(c, c.HeadSize), newRMSNorm(c, c.HeadSize)
	}
	return a
}

func (a *attention) call(f *frame, x, mask, cos, sin *tensor) *tensor {
	g := f.CallFrame(x, mask, cos, sin)
	g.In(a)
	q := g.Let(a.heads(g, a.QProj, a.QNorm, x))
	k := g.Let(a.heads(g, a.KProj, a.KNorm, x))
	v := g.Let(hf.Heads(g.Call(a.VProj, x), a.c.HeadSize))
	turn := rotate
	if a.c.Liger {
		turn = liger.Rotate
	}
	turnedQ, turnedK := turn(g, q, k, cos, sin)
	g.Set(&q, turnedQ)
	g.Set(&k, turnedK)
	o := hf.AttentionOptions{Causal: true, Groups: a.c.Heads / a.c.KVHeads}
	if a.Training() {
		o.Dropout = a.c.AttentionDropout
	}
	var y *tensor
	if a.c.Gemma != nil {
		scores, weights := hf.EagerAttention(g, q, k, v, mask, o, a.c.Gemma.AttentionCap)
		y = g.Let(scores)
		g.Let(weights)
	} else {
		y = g.Let(hf.Attention(g, q, k, v, mask, o))
	}
	g.Set(&y, hf.Merge(y))
	g.Set(&y, g.Call(a.OProj, y))
	g.End(y)
	return y
}

// heads projects x and normalizes its heads, if they have a norm.
func (a *attention) heads(f *frame, project nn.Layer, norm *rmsNorm, x *tensor) *tensor {
	y := f.Call(project, x)
	if norm == nil {
		return hf.Heads(y, a.c.HeadSize)
	}
	return f.Call(norm, y.View(y.Size(0), y.Size(1), -1, a.c.HeadSize)).Transpose(1, 2)
}

// mlp is the gated feed-forward half of a layer.
type mlp struct {
	nn.Module
	GateProj, UpProj, DownProj nn.Layer
	ActFn                      *nn.Func
	liger                      bool
}

func newMLP(c Config) *mlp {
	return &mlp{
		GateProj: nn.NewLinear(c.Width, c.Inner, c.MLPBias), UpProj: nn.NewLinear(c.Width, c.Inner, c.MLPBias),
		DownProj: nn.NewLinear(c.Inner, c.Width, c.MLPBias), ActFn: hf.Activation(c.Activation), liger: c.Liger,
	}
}

func (m *mlp) Forward(f *frame, x *tensor) *tensor {
	if m.liger {
		return f.Let(f.Call(m.DownProj, liger.GatedProduct(f, f.Call(m.GateProj, x), f.Call(m.UpProj, x))))
	}
	return f.Let(f.Call(m.DownProj, f.Call(m.ActFn, f.Call(m.GateProj, x)).Mul(f.Call(m.UpProj, x))))
}

// layer is a decoder layer, normalized before each half.
type layer struct {
	nn.Module
	SelfAttn                               *attention
	Mlp                                    *mlp
	InputLayernorm, PostAttentionLayernorm *rmsNorm
	// Gemma 2 normalizes what each half makes, too.
	PreFeedforwardLayernorm, PostFeedforwardLayernorm *rmsNorm
}

func newLayer(c Config) *layer {
	l := &layer{
		SelfAttn: newAttention(c), Mlp: newMLP(c),
		InputLayernorm: newRMSNorm(c, c.Width), PostAttentionLayernorm: newRMSNorm(c, c.Width),
	}
	if c.Gemma != nil {
		l.PreFeedforwardLayernorm, l.PostFeedforwardLayernorm = newRMSNorm(c, c.Width), newRMSNorm(c, c.Width)
	}
	return l
}

// forward takes hidden states, a mask, positions, cosines and sines.
func (l *layer) forward(f *frame, args []*tensor) *tensor {
	if l.PreFeedforwardLayernorm != nil {
		return l.gemmaForward(f, args)
	}
	x, mask, cos, sin := args[0], args[1], args[3], args[4]
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	f.Set(&x, l.SelfAttn.call(f, x, mask, cos, sin))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, f.Call(l.Mlp, x))
	f.Set(&x, residual.Add(x))
	return x
}

// Model is LlamaModel.
type Model struct {
	nn.Module
	EmbedTokens *nn.Embedding
	EmbedScale  *nn.Buffer // of Gemma 2
	Layers      []*layer
	Norm        *rmsNorm
	RotaryEmb   *rotary
	c           Config
}

// New builds the model.
func New(c Config) *Model {
	m := &Model{EmbedTokens: nn.NewEmbedding(c.Vocab, c.Width), Norm: newRMSNorm(c, c.Width), RotaryEmb: newRotary(c.HeadSize), c: c}
	if c.Gemma != nil {
		m.EmbedScale = nn.NewBuffer(trace.F32)
	}
	for range c.Layers {
		m.Layers = append(m.Layers, newLayer(c))
	}
	return m
}

// Call implements [hf.Decoder].
func (m *Model) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.CallFrame(ids, padding)
	words := g.Let(m.embed(g, ids))
	positions := g.Let(g.Tape().Arange(ids.Size(1)).AddScalar())
	g.Set(&positions, positions.Unsqueeze(0))
	full, window := m.masks(g, words, positions, padding, text.Packed)
	x := g.Let(words)
	cos, sin := m.RotaryEmb.call(g, x, positions)
	g.Let(cos)
	g.Let(sin)
	for i, l := range m.Layers {
		mask := full
		if m.c.windowed(i) {
			mask = window
		}
		g.Set(&x, text.CallLayer(g, i, l, l.forward, []*tensor{x}, mask, positions, cos, sin))
	}
	g.Set(&x, g.Call(m.Norm, x))
	g.End(x)
	return x
}

// windowed reports whether the tokens of layer i see a window.
func (c Config) windowed(i int) bool { return i < len(c.Windowed) && c.Windowed[i] }

// masks are those of full attention and of a window; nil where the kernels
// need none or no layer does.
func (m *Model) masks(f *frame, words, positions, padding *tensor, packed bool) (full, window *tensor) {
	if m.c.Gemma != nil {
		full = f.Let(hf.EagerCausalMask(f, words, positions, padding, packed))
		return full, f.Let(hf.EagerWindowMask(f, words, positions, padding, packed))
	}
	batch := words.Size(0)
	if m.c.BothMasks || len(m.c.Windowed) == 0 || slices.Contains(m.c.Windowed, false) {
		if full = hf.CausalMask(f, batch, positions, padding, packed); full != nil {
			f.Let(full)
		}
	}
	if slices.Contains(m.c.Windowed, true) {
		if window = hf.WindowMask(f, batch, positions, padding, packed, m.c.Window); window != nil {
			f.Let(window)
		}
	}
	return full, window
}

// languageModel is LlamaForCausalLM.
type languageModel struct {
	nn.Module
	Model  *Model
	LmHead *nn.Linear
}

// CausalLM is the task of predicting each next token.
func CausalLM(c Config, text hf.Text) *hf.TextTask {
	c.Liger = text.Liger
	m := New(c)
	head := nn.NewLinear(c.Width, c.Vocab, false)
	if c.Tied {
		head.Weight = m.EmbedTokens.Weight
	}
	text.ScoreCap = c.Gemma != nil && c.Gemma.ScoreCap
	return hf.CausalLM(&languageModel{Model: m, LmHead: head}, m, m.EmbedTokens, head, text)
}

// classifier is LlamaForSequenceClassification.
type classifier struct {
	nn.Module
	Model *Model
	Score nn.Layer
}

// Classification is the task of telling something of each sequence. padToken
// says that the model knows which token is padding.
func Classification(c Config, classes hf.Classes, padToken bool, text hf.Text) *hf.TextTask {
	c.Liger = text.Liger
	m := New(c)
	net := &classifier{Model: m, Score: nn.NewLinear(c.Width, classes.Count, false)}
	return hf.SequenceClassification(net, m, m.EmbedTokens, &net.Score, classes, padToken, text)
}

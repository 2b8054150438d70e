package peft

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// ShadowPEFT: a small decoder gives a second state of every token, which goes from block to block of the frozen
// decoder beside the first, changes what goes into each block, and is changed by what comes out.

// Decoder is a decoder whose blocks can have shadows.
type Decoder interface {
	// Shade gives blocks shadows, by their paths, nil for none, and makes the small decoder. It returns the parameters
	// of all, in their order, and the small decoder's forward pass from token ids, or from their embeddings if it has
	// no table of its own, and a padding mask to states as wide as the other's.
	Shade(block func(path string) *Shadow, m Mirror) (parameters []*nn.Parameter, forward Mirrored)
}

// Mirror has the sizes of the small decoder; zero is as the other has it.
type Mirror struct {
	Layers, Width, Heads, Inner int64
	// Embeds says that it has embeddings of its own.
	Embeds bool
}

// Mirrored is the forward pass of the small decoder, which gives states and what its cache keeps.
type Mirrored func(f *trace.Frame, ids, embeds, padding *trace.Tensor) (states *trace.Tensor, kept []*trace.Tensor)

// Shadow is ShadowLayer of one block.
type Shadow struct {
	nn.Module
	Down      nn.Layer `torch:"shadow_down.default"`
	Up        nn.Layer `torch:"shadow_up.default"`
	Transform nn.Layer `torch:"shadow_update_transform.default"`
	Gate      nn.Layer `torch:"shadow_update_gate.default"`
	dropout   nn.Layer
	site      *Site
}

// Begins returns the state that the small decoder has given; nil where adapters are off.
func (s *Shadow) Begins() *trace.Tensor {
	if s.site.disabled {
		return nil
	}
	return s.site.state
}

// Inject follows shadow_inject: what goes into the block in place of x.
func (s *Shadow) Inject(f *trace.Frame, x, state *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(x, state)
	delta := g.Let(x.Sub(state).To(s.site.dtype()))
	g.Pass(&delta, s.dropout)
	g.Set(&delta, g.Call(s.Up, g.Call(s.Down, delta)))
	return g.Return(x.Add(delta.MulScalar().To(x.DType())))
}

// Update follows shadow_update: the state behind the block, which has given x.
func (s *Shadow) Update(f *trace.Frame, x, state *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(x, state)
	dtype := state.DType()
	wide := g.Let(x.To(s.site.dtype()))
	candidate := g.Let(g.Call(s.Transform, wide))
	gate := g.Let(g.Call(s.Gate, wide).Sigmoid())
	next := g.Let(gate.RSubScalar().Mul(state.To(wide.DType())).Add(gate.Mul(candidate)))
	return g.Return(next.To(dtype))
}

// optional returns an option that is a whole number above zero, zero if it is not set.
func (s *Site) optional(key string) (int64, error) {
	if s.text(key) == none {
		return 0, nil
	}
	n, err := strconv.ParseInt(s.text(key), 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%s must be a whole number above zero", key, s.text(key))
	}
	return n, nil
}

func (s *Site) addShadow() error {
	t := s.BaseLayer.(*table)
	if t.decoder == nil {
		return errors.New("vprof records it in decoders like Llama; use \"vprof run\"")
	}
	m := Mirror{Embeds: !s.on("share_embeddings")}
	for key, to := range map[string]*int64{
		"shadow_num_hidden_layers": &m.Layers, "shadow_hidden_size": &m.Width, "shadow_num_attention_heads": &m.Heads,
		"shadow_intermediate_size": &m.Inner,
	} {
		n, err := s.optional(key)
		if err != nil {
			return err
		}
		*to = n
	}
	if err := s.positive("r"); err != nil {
		return err
	}
	hidden, err := s.optional("update_hidden_size")
	if err != nil {
		return err
	}
	if hidden == 0 {
		hidden = s.count("r")
	}
	m.Layers, m.Embeds = max(m.Layers, 1), m.Embeds || m.Width > 0 && m.Width != s.out
	s.embeds = m.Embeds
	s.parts, s.mirrored = t.decoder.Shade(func(path string) *Shadow {
		if !s.wanted(path) {
			return nil
		}
		return s.shadow(hidden)
	}, m)
	if len(s.parts) == 0 {
		return errors.New("no block of the decoder is called so; they are like layers.0")
	}
	return nil
}

// shadow returns the shadow of a block, whose updates have layers of some width.
func (s *Site) shadow(hidden int64) *Shadow {
	update := func() nn.Layer {
		return nn.NewSequential(nn.NewLinear(s.out, hidden, true), nn.NewGELU(), nn.NewLinear(hidden, s.out, true))
	}
	r := s.count("r")
	return &Shadow{
		Down: nn.NewLinear(s.out, r, false), Up: nn.NewLinear(r, s.out, false), Transform: update(), Gate: update(),
		dropout: s.Dropout, site: s,
	}
}

// HasShadows tells whether the method gives blocks shadows.
func (s *Site) HasShadows() bool { return s.mirrored != nil }

// WithShadows follows ShadowModel.forward of a batch: call runs the model, to whose loss that of scores which head
// makes of the small decoder's states is added. f is the frame of PeftModel.forward, which it ends.
func (s *Site) WithShadows(f *trace.Frame, ids, padding, labels *trace.Tensor, call func(),
	head nn.Layer,
) *trace.Tensor {
	t := f.Tape()
	if s.state != nil { // _seed_shadow_state stays to the next call
		t.Release(s.state)
	}
	g := f.FuncFrame(ids, padding)
	var embeds *tensor
	if !s.embeds {
		embeds = g.Let(g.Call(s.embeddings(), ids))
	}
	state, kept := s.mirrored(g, ids, embeds, padding)
	f.LetAll(kept)
	s.state = t.Hold(g.Return(state))
	outputs := append(f.LetAll(t.Outputs(call)), kept...)
	if s.lastLoss != nil {
		t.Release(s.lastLoss)
	}
	h := f.FuncFrame(labels, padding)
	scores := h.Let(h.Call(head, s.state))
	more := f.Let(h.Return(shifted(h, scores, labels)))
	s.lastLoss = t.Hold(more.Detach())
	if s.number("auxiliary_loss_weight") > 0 {
		f.Set(&outputs[0], outputs[0].Add(more.MulScalar()))
	}
	f.End(outputs...)
	t.Output(outputs...)
	return outputs[0]
}

// shifted follows _shifted_ce_loss, in the type of the scores.
func shifted(f *frame, scores, labels *tensor) *tensor {
	g := f.FuncFrame(scores, labels)
	logits := g.Let(scores.Slice(1, 0, scores.Size(1)-1).Contiguous())
	next := g.Let(labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	return g.Return(logits.View(-1, logits.Size(-1)).CrossEntropy(next.View(-1)))
}

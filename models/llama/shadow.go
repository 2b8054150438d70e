package llama

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/peft"
	"github.com/vprof/vprof/models/tower"
)

// mirrored is the small decoder of ShadowPEFT, and what makes its states as wide as the other's.
type mirrored struct {
	nn.Module
	Backbone   *Model
	Projection nn.Layer
}

// decoder is a model as ShadowPEFT sees it, and how it is trained.
type decoder struct {
	m    *Model
	text hf.Text
}

// Shade implements [peft.Decoder]: _build_shadow_backbone and ShadowLayer.
func (d decoder) Shade(block func(path string) *peft.Shadow, m peft.Mirror) ([]*nn.Parameter, peft.Mirrored) {
	base, c := d.m, *d.m.c
	for i := range base.Layers {
		if s := block(fmt.Sprint("model.layers.", i)); s != nil {
			base.Shadows, base.shaded = append(base.Shadows, s), append(base.shaded, i)
		}
	}
	if len(base.Shadows) == 0 {
		return nil, nil
	}
	for to, given := range map[*int64]int64{
		&c.Layers: m.Layers, &c.Width: m.Width, &c.Heads: m.Heads, &c.Inner: m.Inner,
	} {
		if given > 0 {
			*to = given
		}
	}
	for _, flags := range []*LayerFlags{&c.Windowed, &c.Unrotated, &c.Experts.Dense} {
		*flags = slices.Clone((*flags)[:min(int64(len(*flags)), c.Layers)])
	}
	text := d.text
	text.Recomputation = hf.Recomputation{} // its own flag of checkpointing, which nobody sets
	text.Cache = text.Cache.Another()
	c.Cache = text.Cache
	small := &mirrored{Backbone: New(c)}
	if !m.Embeds {
		small.Backbone.EmbedTokens = nil
	}
	if c.Width != base.c.Width {
		small.Projection = nn.NewLinear(c.Width, base.c.Width, false)
	}
	for _, p := range nn.NewTree(small).Parameters {
		p.DType = base.embedding.Weight.DType
	}
	base.Mirrored = small
	forward := func(f *frame, ids, embeds, padding *tensor) (states *tensor, kept []*tensor) {
		text.Begin(f)
		x := small.Backbone.run(f, ids, tower.DecoderInputs{Embeds: embeds}, padding, text)
		if small.Projection != nil {
			x = f.Call(small.Projection, f.Let(x))
		}
		return x, text.Cache.Returned()
	}
	return slices.Concat(nn.NewTree(base.Shadows).Parameters, nn.NewTree(small).Parameters), forward
}

// beside runs block i over the states *x, and over the states of its shadow.
func (m *Model) beside(g *frame, i int, x, shade **tensor, run func(f *frame, x *tensor) *tensor) {
	at := slices.Index(m.shaded, i)
	if at < 0 || m.Shadows[at].Begins() == nil {
		g.Set(x, run(g, *x))
		return
	}
	s := m.Shadows[at]
	if at == 0 {
		*shade = g.Let(s.Begins())
	}
	h := g.CallFrame(*x, *shade)
	in := h.Let(s.Inject(h, *x, *shade))
	y := h.Let(run(h, in))
	next := s.Update(h, y, *shade)
	h.End(y, next)
	g.Set(x, y)
	g.Set(shade, next)
	if at == len(m.Shadows)-1 {
		g.Del(shade)
	}
}

package llama

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

func (c *Config) rotarySize() int64 {
	if c.Rotary.Size > 0 {
		return c.Rotary.Size
	}
	return c.HeadSize
}

// rotary is LlamaRotaryEmbedding, for one or several kinds of layers.
type rotary struct {
	nn.Module
	Kinds                       []*hf.Frequencies `torch:""`
	CosCached, SinCached, Cache *nn.Buffer
	r                           Rotary
}

func newRotary(c *Config) *rotary {
	kind := func(int) *hf.Frequencies { return hf.NewFrequencies(c.rotarySize()) }
	m := &rotary{r: c.Rotary, Kinds: lists.Make(max(c.Rotary.Kinds, 1), kind)}
	if c.Rotary.TuneTables > 0 {
		m.Cache = nn.NewBuffer(trace.F32, c.Rotary.TuneTables, c.rotarySize())
	}
	if n := c.Rotary.Tables; c.Rotary.Own && n > 0 {
		table := nn.NewBufferOfWeights(n, c.rotarySize())
		table.HasWeightType = c.QKV != HeadsProjection // fp32 in GPT-NeoX
		m.CosCached, m.SinCached = new(*table), new(*table)
	}
	return m
}

// cachedAngles records Qwen2RotaryEmbedding.forward before transformers 4.45, and the selection of positions after it.
func (m *rotary) cachedAngles(f *frame, x, positions *tensor) (cos, sin *tensor) {
	of := func(table *nn.Buffer) *tensor {
		return f.Bind(table.Slice(0, 0, positions.Size(-1)).To(x.DType()).Index(positions))
	}
	return of(m.CosCached), of(m.SinCached)
}

// call returns the cosines and sines of positions [1, length] for a kind of layers, in the data type of x.
func (m *rotary) call(f *frame, kind int, x, positions *tensor) (cos, sin *tensor) {
	switch {
	case m.r.Grids > 0:
		return m.gridAngles(f, x, positions)
	case m.CosCached != nil:
		return m.cachedAngles(f, x, positions)
	}
	g := f.ModuleFrame(m, x, positions)
	x, positions = g.ToModuleGPU(x), g.ToModuleGPU(positions)
	g.Tape().NoGrad(func() {
		freqs := g.Bind(positions.Unsqueeze(-1).To(trace.F32).Mul(m.Kinds[kind].InvFreq.Tensor))
		if m.r.Complex {
			cos = g.Bind(freqs.OnesLike().Polar(freqs))
			g.Set(&cos, cos.MulScalar())
			return
		}
		emb := freqs
		if m.r.Interleaved {
			emb = g.Bind(freqs.RepeatInterleave(2, -1))
		} else if !m.r.Halves {
			emb = g.Bind(trace.Cat(-1, freqs, freqs))
		}
		cos = g.Bind(emb.Cos().MulScalar())
		sin = g.Bind(emb.Sin().MulScalar())
		cos, sin = cos.To(x.DType()), sin.To(x.DType())
	})
	return g.ReturnPair(cos, sin)
}

// gridAngles records Qwen2_5_VLRotaryEmbedding.forward.
func (m *rotary) gridAngles(f *frame, x, positions *tensor) (cos, sin *tensor) {
	g := f.ModuleFrame(m, x, positions)
	x, positions = g.ToModuleGPU(x), g.ToModuleGPU(positions)
	g.Tape().NoGrad(func() {
		every := positions
		if positions.NDim() < 3 {
			every = positions.Unsqueeze(0).Expand(m.r.Grids, x.Size(0), -1)
		}
		freqs := g.Bind(every.Unsqueeze(-1).To(trace.F32).Mul(m.Kinds[0].InvFreq.Tensor))
		cos = g.Bind(freqs.Cos().MulScalar())
		sin = g.Bind(freqs.Sin().MulScalar())
		g.Set(&sin, m.recomposeFrequencies(g, sin))
		g.Set(&cos, m.recomposeFrequencies(g, cos))
		cos, sin = cos.To(x.DType()), sin.To(x.DType())
	})
	return g.ReturnPair(cos, sin)
}

// recomposeFrequencies records Qwen VL's recomposition_frequencies, which combines the angles of all position axes.
func (m *rotary) recomposeFrequencies(f *frame, freq *tensor) *tensor {
	g := f.FunctionFrame(freq)
	parts := g.BindAll(freq.Chunk(m.r.Grids, -1))
	for i := range parts {
		g.Set(&parts[i], parts[i].Select(0, int64(i)))
	}
	g.Set(&freq, trace.Cat(-1, parts...))
	y := freq
	if m.r.Interleaved {
		y = y.RepeatInterleave(2, -1)
	} else {
		y = trace.Cat(-1, y, y)
	}
	return g.Return(y)
}

// rotateHalf records rotate_half of transformers: of halves or, with Interleaved, of neighboring elements.
func (r Rotary) rotateHalf(f *frame, x *tensor) *tensor {
	if !r.Interleaved {
		return hf.RotateHalf(f, x)
	}
	g := f.FunctionFrame(x)
	x1 := g.Bind(x.SliceStep(-1, 0, x.Size(-1), 2))
	x2 := g.Bind(x.SliceStep(-1, 1, x.Size(-1), 2))
	return g.Return(trace.Stack(-1, x2.Neg(), x1).Flatten(-2, -1))
}

// rotate records apply_rotary_pos_emb of transformers.
func (r Rotary) rotate(f *frame, q, k, cos, sin *tensor) (*tensor, *tensor) {
	if r.Inside {
		return r.rotateParts(f, q, k, cos, sin)
	}
	g := f.FunctionFrame(q, k, cos, sin)
	d := q.DType()
	if r.InFloat32 {
		g.Set(&q, q.To(trace.F32))
		g.Set(&k, k.To(trace.F32))
	}
	g.Set(&cos, cos.Unsqueeze(1))
	g.Set(&sin, sin.Unsqueeze(1))
	a := g.Bind(r.apply(g, q, cos, sin))
	b := g.Bind(r.apply(g, k, cos, sin))
	if r.InFloat32 {
		a, b = a.To(d), b.To(d)
	}
	return g.ReturnPair(a, b)
}

func (r Rotary) apply(f *frame, x, cos, sin *tensor) *tensor {
	if r.Halves {
		return rotateHalves(f, x, cos, sin)
	}
	return x.Mul(cos).Add(r.rotateHalf(f, x).Mul(sin))
}

// rotateHalves records _apply_rotary_emb of GPT-OSS.
func rotateHalves(f *frame, x, cos, sin *tensor) *tensor {
	g := f.FunctionFrame(x, cos, sin)
	parts := g.BindAll(x.Chunk(2, -1))
	first := g.Bind(parts[0].Mul(cos).Sub(parts[1].Mul(sin)))
	second := g.Bind(parts[1].Mul(cos).Add(parts[0].Mul(sin)))
	return g.Return(trace.Cat(-1, first, second))
}

// rotateParts records apply_rotary_pos_emb of models that rotate only the first elements of each head.
func (r Rotary) rotateParts(f *frame, q, k, cos, sin *tensor) (*tensor, *tensor) {
	g := f.FunctionFrame(q, k, cos, sin)
	g.Set(&cos, cos.Unsqueeze(1))
	g.Set(&sin, sin.Unsqueeze(1))
	qs := r.splitRotated(g, q, cos.Size(-1))
	ks := r.splitRotated(g, k, cos.Size(-1))
	if !r.Stepwise {
		a := g.Bind(trace.Cat(-1, r.apply(g, qs[0], cos, sin), qs[1]))
		b := g.Bind(trace.Cat(-1, r.apply(g, ks[0], cos, sin), ks[1]))
		return g.ReturnPair(a, b)
	}
	a := g.Bind(r.apply(g, qs[0], cos, sin))
	b := g.Bind(r.apply(g, ks[0], cos, sin))
	if r.Kept {
		joinedQ, joinedK := g.Bind(trace.Cat(-1, a, qs[1])), g.Bind(trace.Cat(-1, b, ks[1]))
		return g.ReturnPair(joinedQ, joinedK)
	}
	g.Set(&a, trace.Cat(-1, a, qs[1]))
	g.Set(&b, trace.Cat(-1, b, ks[1]))
	return g.ReturnPair(a, b)
}

// splitRotated returns each head's rotated elements, and the others.
func (r Rotary) splitRotated(f *frame, x *tensor, size int64) []*tensor {
	return slices.Clone([]*tensor{f.Bind(x.Slice(-1, 0, size)), f.Bind(x.Slice(-1, size, x.Size(-1)))})
}

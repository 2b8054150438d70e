package redimnet

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// angularMargin is the additive angular margin softmax over all speakers; its
// weight is cut to the width of the embedding.
type angularMargin struct {
	nn.Module
	Weight *nn.Parameter
}

func (a *angularMargin) call(f *frame, embedding, labels *tensor) *tensor {
	g := f.CallFrame(embedding, labels)
	e := g.Let(embedding.Normalize(1))
	w := g.Let(a.Weight.Slice(1, 0, embedding.Size(1)).Normalize(1))
	cos := g.Let(e.Linear(w, nil).Clamp())
	sin := g.Let(cos.Pow(2).RSubScalar().Sqrt())
	phi := g.Let(cos.MulScalar().Sub(sin.MulScalar()))
	g.Set(&phi, trace.Where(cos.GtScalar(), phi, cos.AddScalar()))
	hot := g.Let(cos.ZerosLike())
	hot.ScatterInPlace(labels.View(-1, 1))
	out := g.Let(hot.Mul(phi).Add(hot.RSubScalar().Mul(cos)).MulScalar())
	return g.Return(out.CrossEntropy(labels))
}

// matryoshkaLoss is the mean of the margin loss over the embeddings.
type matryoshkaLoss struct {
	nn.Module
	Base *angularMargin
}

func newMatryoshkaLoss() *matryoshkaLoss {
	return &matryoshkaLoss{Base: &angularMargin{Weight: nn.NewParameter(speakers, widths[len(widths)-1])}}
}

func (m *matryoshkaLoss) call(f *frame, embeddings []*tensor, labels *tensor) *tensor {
	g := f.CallFrame(labels)
	var loss, total *tensor
	for _, e := range embeddings {
		g.Set(&loss, m.Base.call(g, e.Normalize(1), labels))
		weighted := loss.MulScalar()
		if total == nil {
			g.Set(&total, weighted.AddScalar())
		} else {
			g.Set(&total, total.Add(weighted))
		}
	}
	return g.Return(total.DivScalar())
}

package hf

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/trace"
)

// modelCaller calls a language model for logits from which a trainer computes the loss outside of the model.
type modelCaller struct {
	net     any
	decoder Decoder
	output  *nn.Layer
	text    Text
}

// logits returns the model's logits; only the last tokens' logits if the batch sets Keep.
func (c *modelCaller) logits(f *frame, b TextBatch) *tensor {
	g := f.ModuleFrame(c.net, b.IDs, b.Padding)
	c.text.Context.shardBatch(g, &b)
	x := g.Bind(c.decoder.Call(g, b.IDs, b.Padding, c.text))
	kept := x
	if b.Keep > 0 {
		kept = x.Slice(1, x.Size(1)-b.Keep, x.Size(1))
	}
	logits := g.Bind(c.text.callHead(g, *c.output, kept))
	c.text.adjustLogits(g, &logits)
	return g.Return(logits)
}

// castLogits returns the logits under autocast, converted to fp32.
func (c *modelCaller) castLogits(f *frame, b TextBatch) *tensor {
	return c.text.autocast(f, b, c.logits)
}

// logProbs returns the results of [fusedForward] for a batch with labels.
func (c *modelCaller) logProbs(f *frame, b TextBatch, types ...trace.DType) (all []*tensor) {
	train.Autocast(f.Tape(), c.text.AMP, func() {
		g := f.ModuleFrame(c.net, b.IDs, b.Padding, b.Labels)
		x := g.Bind(c.decoder.Call(g, b.IDs, b.Padding, c.text))
		all = fusedForward(g, x, headWeight(g, *c.output), b.Labels, b.Keep, types...)
		g.End(all...)
	})
	return all
}

// autocast calls a model under autocast and converts its result to fp32, as accelerate's wrapper of forward does.
func (t Text) autocast(f *frame, b TextBatch, call func(*frame, TextBatch) *tensor) (y *tensor) {
	on := false
	train.Autocast(f.Tape(), t.AMP, func() {
		y = call(f, b)
		_, on = f.Tape().Autocasting()
	})
	if on {
		g := f.FunctionFrame(y)
		g.Set(&y, y.To(trace.F32))
		g.End(y)
	}
	return y
}

// callWithStates calls visit with the embeddings, the result of each layer except the last, and the final hidden
// states; visit can keep them. It returns the logits.
func (c *modelCaller) callWithStates(f *frame, b TextBatch, visit func(x *tensor)) *tensor {
	shown := c.text
	var last *tensor
	shown.hidden = func(x *tensor) {
		if last != nil {
			visit(last)
		}
		last = x
	}
	g := f.ModuleFrame(c.net, b.IDs, b.Padding)
	y := g.Bind(c.decoder.Call(g, b.IDs, b.Padding, shown))
	visit(y)
	g.Set(&y, c.text.callHead(g, *c.output, y))
	c.text.adjustLogits(g, &y)
	return g.Return(y)
}

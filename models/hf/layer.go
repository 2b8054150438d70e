package hf

import "slices"

// CallLayer calls a GradientCheckpointingLayer: forward over args, where nil
// stands for an argument that is not given. With checkpointing only the
// arguments are kept, and forward runs again in backward.
func CallLayer(f *frame, m any, checkpointing bool, forward func(f *frame, args []*tensor) *tensor, args ...*tensor) *tensor {
	g := f.CallFrame(args...)
	g.In(m)
	if !checkpointing {
		y := forward(g, args)
		g.End(y)
		return y
	}
	var given []*tensor
	for _, x := range args {
		if x != nil {
			given = append(given, x)
		}
	}
	y := g.Checkpoint(func(h *frame, in []*tensor) *tensor {
		again := make([]*tensor, len(args))
		for i, x := range args {
			if x != nil {
				again[i], in = in[0], in[1:]
			}
		}
		return forward(h, again)
	}, given...)
	g.End(y)
	return y
}

// CallLayer calls layer i of a decoder, which transformers gives its first arguments
// by place and the rest by name: checkpointing knows the former as its inputs and
// keeps the latter in what it calls again.
func (t Text) CallLayer(f *frame, i int, m any, forward func(f *frame, args []*tensor) *tensor, inputs []*tensor, named ...*tensor) *tensor {
	y := t.callLayer(f, i, m, forward, inputs, named)
	if t.hidden != nil {
		if i == 0 {
			t.hidden(inputs[0])
		}
		t.hidden(y)
	}
	return y
}

func (t Text) callLayer(f *frame, i int, m any, forward func(f *frame, args []*tensor) *tensor, inputs, named []*tensor) *tensor {
	args := append(slices.Clone(inputs), named...)
	on := t.Checkpointing && i%max(t.Every, 1) == 0
	if !on || !t.Reentrant {
		return CallLayer(f, m, on, forward, args...)
	}
	g := f.CallFrame(args...)
	g.In(m)
	y := g.CheckpointReentrant(func(h *frame, in []*tensor) *tensor {
		return forward(h, append(slices.Clone(in), named...))
	}, named, inputs...)
	g.End(y)
	return y
}

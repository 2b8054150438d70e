package hf

import (
	"slices"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// CallLayer calls a GradientCheckpointingLayer with all arguments by position; nil in args is None. With
// checkpointing only the arguments are saved, and forward runs again in backward.
func CallLayer(f *frame, m any, checkpointing bool, forward func(f *frame, args []*tensor) *tensor,
	args ...*tensor,
) *tensor {
	return callLayer(f, m, checkpointing, false, forward, args, nil)
}

// callLayer calls a GradientCheckpointingLayer with inputs by position and the rest by name. Checkpointing saves
// inputs under the current saved-tensor hooks. The closure that backward calls holds the rest, which the hooks do not
// see (_NoopSaveInputs of torch.utils.checkpoint).
func callLayer(f *frame, m any, checkpointing, reentrant bool, forward func(f *frame, args []*tensor) *tensor, inputs,
	named []*tensor,
) *tensor {
	if checkpointing && !f.Tape().Rules().Libraries.LayersCheckpoint {
		again := func(h *frame, in []*tensor) *tensor {
			return callLayer(h, m, false, false, forward, insertNone(in, inputs), named)
		}
		if reentrant {
			return f.CheckpointReentrant(again, named, WithoutNil(inputs...)...)
		}
		return f.CheckpointClosure(WithoutNil(named...), again, WithoutNil(inputs...)...)
	}
	g := f.CallFrame(slices.Concat(inputs, named)...)
	g.SetModule(m)
	inputs, named = g.AllToModuleGPU(inputs), g.AllToModuleGPU(named)
	again := func(h *frame, in []*tensor) *tensor { return forward(h, append(insertNone(in, inputs), named...)) }
	switch {
	case !checkpointing:
		return g.Return(forward(g, slices.Concat(inputs, named)))
	case reentrant:
		return g.Return(g.CheckpointReentrant(again, named, WithoutNil(inputs...)...))
	}
	return g.Return(g.CheckpointClosure(WithoutNil(named...), again, WithoutNil(inputs...)...))
}

// WithoutNil returns the arguments that are not None.
func WithoutNil(args ...*tensor) []*tensor {
	return slices.DeleteFunc(slices.Clone(args), func(x *tensor) bool { return x == nil })
}

// insertNone returns in with nil (None) inserted at the positions where all has nil.
func insertNone(in, all []*tensor) []*tensor {
	out := make([]*tensor, len(all))
	for i, x := range all {
		if x != nil {
			out[i], in = in[0], in[1:]
		}
	}
	return out
}

// CallLayer calls layer i of a decoder with inputs by position and rest by name. With checkpointing, only inputs are
// saved; the closure that backward calls holds rest.
func (t Text) CallLayer(f *frame, i int, m any, forward func(f *frame, args []*tensor) *tensor, inputs []*tensor,
	named ...*tensor,
) *tensor {
	call := func() *tensor { return t.callLayer(f, i, m, forward, inputs, named) }
	var y *tensor
	if l, ok := m.(routerLogitsSkipper); ok && l.SelfContained() {
		y = f.Tape().CallOrSkip(l.ModulePath(), inputs[0], call)
	} else {
		y = call()
	}
	if t.hidden != nil {
		if i == 0 {
			t.hidden(inputs[0])
		}
		t.hidden(y)
	}
	return y
}

// routerLogitsSkipper is a layer that reports whether it returns its output alone, without router logits for the loss.
type routerLogitsSkipper interface {
	ModulePath() *trace.Path
	SelfContained() bool
}

func (t Text) callLayer(f *frame, i int, m any, forward func(f *frame, args []*tensor) *tensor, inputs,
	named []*tensor,
) *tensor {
	on := t.Checkpointing && i%max(t.Every, 1) == 0
	if on && t.TrainedOnly {
		if on = hasTrainedParameters(m); on && !inputs[0].RequiresGrad() {
			inputs[0].Leaf()
		}
	}
	return callLayer(f, m, on, t.Reentrant, forward, inputs, named)
}

// hasTrainedParameters reports whether the layer has a parameter that is not frozen.
func hasTrainedParameters(m any) bool {
	return slices.ContainsFunc(nn.NewTree(m).Parameters, func(p *nn.Parameter) bool { return !p.Frozen })
}

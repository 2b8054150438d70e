package trace

import (
	"errors"

	"github.com/vprof/vprof/internal/lists"
)

// spread is a model whose modules lie on several GPUs of one process, of which the tape records one. Tensors of the
// others have shapes and no memory, and are part of the same graph. An operator runs on the GPU of its arguments.
type spread struct {
	// home is where batches are, and what the model returns.
	home StagePart
	// modules says where the modules run that have a GPU of their own; a module that is not there runs where its
	// inputs are.
	modules map[*Path]StagePart
}

// Spread has the modules of a model lie on several GPUs of this process: each is [OwnStage] or [OtherGPU]. Their inputs
// are copied to where they run (AlignDevicesHook of accelerate). home is where batches are, and what the model returns.
func (t *Tape) Spread(home StagePart, modules map[*Path]StagePart) {
	t.ranks.spread, t.ranks.pipeline.part = &spread{home, modules}, home
}

// part returns where x lies.
func (x *Tensor) part() StagePart {
	if x.store.otherGPU {
		return OtherGPU
	}
	return OwnStage
}

// goTo has what follows run where x lies, until the returned function is called. Without [Tape.Spread] it does nothing.
func (t *Tape) goTo(x *Tensor) (back func()) {
	if t.ranks.spread == nil || x == nil {
		return func() {}
	}
	was := t.ranks.pipeline.part
	t.ranks.pipeline.part = x.part()
	return func() { t.ranks.pipeline.part = was }
}

// runWith has an operator run where its arguments lie, which must be one GPU, but for single numbers.
func (t *Tape) runWith(args []*Tensor) {
	for i, x := range args {
		switch {
		case i == 0:
			t.ranks.pipeline.part = x.part()
		case x.part() != args[0].part() && x.NDim() > 0 && args[0].NDim() > 0:
			t.Raise(errors.New("RuntimeError: Expected all tensors to be on the same device: the model does not " +
				"move its labels, or another argument, to the GPU of what it computes, and does not train with this " +
				"device_map"))
		}
	}
}

// WhereItIs runs f on the GPU that has x.
func (x *Tensor) WhereItIs(f func()) {
	defer x.tape.goTo(x)()
	f()
}

// SameGPU reports whether x and y lie on one GPU.
func (x *Tensor) SameGPU(y *Tensor) bool { return x.store.otherGPU == y.store.otherGPU }

// ToGPUOf is x.to(y.device).
func (x *Tensor) ToGPUOf(y *Tensor) *Tensor { return x.toPart(y.part()) }

// toPart is x.to(device): a copy on another GPU, or x itself. The gradient goes the way back.
func (x *Tensor) toPart(p StagePart) *Tensor {
	t, from := x.tape, x.part()
	if t.ranks.spread == nil || from == p {
		return x
	}
	c := t.begin("to_device", x)
	t.ranks.pipeline.part = p
	y := x.emptyLike(x.dtype)
	t.launchCopy(y, x)
	return c.end(y.derived("ToCopyBackward0", inputs{x}, nil, func(b *backward) { b.give(0, b.grad.toPart(from)) }))
}

// enterModule has the module at p run on its GPU until the frame ends, if it has one.
func (f *Frame) enterModule(p *Path) {
	if part, placed := f.t.ranks.spread.modules[p]; placed && !f.placed {
		f.placed, f.before = true, f.t.ranks.pipeline.part
		f.t.ranks.pipeline.part = part
	}
}

// Here returns an argument of the module that runs in the frame as its code gets it: on the module's own GPU. Nil stays
// nil.
func (f *Frame) Here(x *Tensor) *Tensor {
	if !f.placed || x == nil {
		return x
	}
	y := x.toPart(f.t.ranks.pipeline.part)
	if y != x { // the hook holds it until the module returns
		f.held = append(f.held, y.retain())
	}
	return y
}

// AllHere is [Frame.Here] of several arguments.
func (f *Frame) AllHere(args []*Tensor) []*Tensor {
	if !f.placed {
		return args
	}
	return lists.Map(args, f.Here)
}

// Home returns the parts of what a model returns as its caller gets them: on the GPU that the batch came from
// (io_same_device). All of them are copied before any is freed. Nil stays nil.
func (t *Tape) Home(xs []*Tensor) []*Tensor {
	if t.ranks.spread == nil {
		return xs
	}
	home := make([]*Tensor, len(xs))
	for i, x := range xs {
		if x != nil {
			home[i] = x.retain().toPart(t.ranks.spread.home)
		}
	}
	for i, x := range xs {
		switch {
		case x == nil:
		case home[i] == x:
			x.refs--
		default:
			x.release()
		}
	}
	return home
}

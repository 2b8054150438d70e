package trace

import (
	"errors"

	"github.com/vprof/vprof/internal/lists"
)

// deviceMap describes a model whose modules are on several GPUs of one process. The tape records one of these GPUs.
// Tensors on other GPUs have shapes but no memory, and belong to the same graph. An operator runs on the GPU of its
// arguments.
type deviceMap struct {
	// home is the GPU of batches and of the model's outputs.
	home StagePart
	// modules maps modules to GPUs. A module without an entry runs on the GPU of its inputs.
	modules map[*Path]StagePart
}

// SetDeviceMap distributes the modules of a model over several GPUs of this process: each is [OwnStage] or [OtherGPU].
// Their inputs are copied to their GPU (AlignDevicesHook of accelerate). home is the GPU of batches and outputs.
func (t *Tape) SetDeviceMap(home StagePart, modules map[*Path]StagePart) {
	t.ranks.spread, t.ranks.pipeline.part = &deviceMap{home, modules}, home
}

// part returns the GPU of x.
func (x *Tensor) part() StagePart {
	if x.store.otherGPU {
		return OtherGPU
	}
	return OwnStage
}

// switchToGPUOf switches to the GPU of x until the returned function is called. Without [Tape.SetDeviceMap] it does
// nothing.
func (t *Tape) switchToGPUOf(x *Tensor) (back func()) {
	if t.ranks.spread == nil || x == nil {
		return func() {}
	}
	was := t.ranks.pipeline.part
	t.ranks.pipeline.part = x.part()
	return func() { t.ranks.pipeline.part = was }
}

// runWith switches to the GPU of an operator's arguments. All must be on the same GPU, except scalars.
func (t *Tape) runWith(args []*Tensor) {
	for i, x := range args {
		switch {
		case i == 0:
			t.ranks.pipeline.part = x.part()
		case x.part() != args[0].part() && x.NDim() > 0 && args[0].NDim() > 0:
			t.Raise(errors.New("RuntimeError: Expected all tensors to be on the same device: the model does not move " +
				"its labels, or another argument, to the GPU of its output; it cannot be trained with device_map, so " +
				"use another --strategy"))
		}
	}
}

// OnItsGPU runs f on the GPU of x.
func (x *Tensor) OnItsGPU(f func()) {
	defer x.tape.switchToGPUOf(x)()
	f()
}

// SameGPU reports whether x and y are on one GPU.
func (x *Tensor) SameGPU(y *Tensor) bool { return x.store.otherGPU == y.store.otherGPU }

// ToGPUOf records x.to(y.device).
func (x *Tensor) ToGPUOf(y *Tensor) *Tensor { return x.toPart(y.part()) }

// toPart records x.to(device): a copy on another GPU, or x itself. The gradient is copied back.
func (x *Tensor) toPart(p StagePart) *Tensor {
	t, from := x.tape, x.part()
	if t.ranks.spread == nil || from == p {
		return x
	}
	c := t.Begin("to_device", x)
	t.ranks.pipeline.part = p
	y := x.AllocLike(x.dtype)
	t.LaunchCopy(y, x)
	return c.End(y.SetGradFn("ToCopyBackward0", inputs{x}, nil, func(b *Gradients) { b.Set(0, b.Grad.toPart(from)) }))
}

// enterModule runs the module at p on its GPU, if it has one, until the frame ends.
func (f *Frame) enterModule(p *Path) {
	if part, placed := f.t.ranks.spread.modules[p]; placed && !f.placed {
		f.placed, f.before = true, f.t.ranks.pipeline.part
		f.t.ranks.pipeline.part = part
	}
}

// ToModuleGPU copies an argument of the frame's module to the module's GPU. Nil stays nil.
func (f *Frame) ToModuleGPU(x *Tensor) *Tensor {
	if !f.placed || x == nil {
		return x
	}
	y := x.toPart(f.t.ranks.pipeline.part)
	if y != x { // the hook holds it until the module returns
		f.held = append(f.held, y.Retain())
	}
	return y
}

// AllToModuleGPU copies several arguments as [Frame.ToModuleGPU] does.
func (f *Frame) AllToModuleGPU(args []*Tensor) []*Tensor {
	if !f.placed {
		return args
	}
	return lists.Map(args, f.ToModuleGPU)
}

// OutputsToBatchGPU returns a model's outputs on the GPU of the batch (io_same_device). All are copied, then freed.
func (t *Tape) OutputsToBatchGPU(xs []*Tensor) []*Tensor {
	if t.ranks.spread == nil {
		return xs
	}
	home := make([]*Tensor, len(xs))
	for i, x := range xs {
		if x != nil {
			home[i] = x.Retain().toPart(t.ranks.spread.home)
		}
	}
	for i, x := range xs {
		switch {
		case x == nil:
		case home[i] == x:
			x.refs--
		default:
			x.Release()
		}
	}
	return home
}

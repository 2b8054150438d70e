package compiled

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// dtypes are the element types by PyTorch's names.
var dtypes = map[string]trace.DType{
	"uint8": trace.U8, "int8": trace.U8, "int32": trace.I32, "int64": trace.I64, "float16": trace.F16,
	"bfloat16": trace.BF16,
	"float32":  trace.F32, "float64": trace.F64, "complex64": trace.C64, "bool": trace.Bool,
}

// newTrainer trains a model whose forward and backward were recorded.
func newTrainer(f *File, r *Recording, c models.Case) models.Trainer {
	net := &nn.Parts{}
	l := &loop{parameters: map[string]*nn.Parameter{}, sites: make([]*trace.Path, len(f.Sites))}
	for i, line := range f.Sites {
		l.sites[i] = &trace.Path{Line: line}
	}
	for _, p := range f.Parameters {
		w := nn.NewParameter(p.Shape...)
		w.DType, w.Frozen = dtypes[p.DType], !p.Trained
		l.parameters[p.Name] = w
		net.Put(p.Name, w)
	}
	for _, b := range f.Buffers {
		net.Buffer(dtypes[b.DType], b.Shape...)
	}
	own := &train.Own[*loop]{Case: c, Net: nn.NewTree(net)}
	own.Load = func(tape *trace.Tape, n int) *loop {
		l.tape, l.kept, l.live = tape, false, nil
		for i := range f.Inputs {
			in := &f.Inputs[i]
			tape.Hold(tape.New("zeros", program.Batch, dtypes[in.DType], in.at(int64(n))...))
		}
		return l
	}
	own.Step = func(s *train.Session, opt *optim.Optimizer, l *loop) {
		for range c.Accumulate {
			l.play(r)
		}
		var clipped []*nn.Parameter
		if c.Clip == models.ClipNorm {
			clipped = train.Trainable(own.Net.Parameters)
		}
		s.Step(opt, clipped)
		l.tape.Mark("optimizer")
		opt.ZeroGrad()
		l.tape.Mark("zero_grad")
		l.end(r)
	}
	return struct{ models.Trainer }{own} // which validates nothing
}

// loop is a training loop that plays recordings.
type loop struct {
	tape       *trace.Tape
	parameters map[string]*nn.Parameter
	sites      []*trace.Path
	kept       bool            // what the first step leaves is there
	live       []*trace.Tensor // by allocation of the step
}

// play plays forward and backward, with the gradients that they leave.
func (l *loop) play(r *Recording) {
	if !l.kept {
		for _, n := range r.Kept {
			l.tape.Hold(l.tape.New("workspace", program.Workspace, trace.U8, n))
		}
		l.kept = true
	} else {
		l.release()
	}
	l.live = make([]*trace.Tensor, len(r.Allocations))
	classes := r.classes()
	l.events(r, classes, r.Order[:r.Forward])
	l.tape.Mark("forward")
	l.events(r, classes, r.Order[r.Forward:r.Backward])
	for _, g := range r.Gradients {
		l.give(l.parameters[g.Parameter].Tensor, l.live[g.Allocation], g.Offset)
	}
	for _, g := range r.Gradients {
		l.drop(g.Allocation) // the parameter holds it, or has added it to what it had
	}
	l.tape.Mark("backward")
}

// give gives a parameter its gradient, unless it has one from the micro-batch before.
func (l *loop) give(p, at *trace.Tensor, offset int64) {
	if p.Grad() != nil {
		return
	}
	strides := make([]int64, p.NDim())
	n := int64(1)
	for d := p.NDim() - 1; d >= 0; d-- {
		strides[d] = n
		n *= p.Size(d)
	}
	l.tape.NoGrad(func() { p.SetGrad(at.ViewType(p.DType()).AsStrided(p.Shape(), strides, offset/p.DType().Size())) })
}

// events plays some events of a step.
func (l *loop) events(r *Recording, classes []program.Class, order []int) {
	for _, n := range order {
		if n < 0 {
			l.drop(^n)
			continue
		}
		a := r.Allocations[n]
		l.live[n] = l.tape.Hold(l.tape.NewAt(l.sites[a[1]], "empty_strided", classes[n], trace.U8, a[0]))
	}
}

// end plays what goes when the step's function returns.
func (l *loop) end(r *Recording) {
	l.events(r, nil, r.Order[r.Backward:])
	l.release()
}

// release lets go of what the step has left: the next one makes it again.
func (l *loop) release() {
	for i := range l.live {
		l.drop(i)
	}
}

func (l *loop) drop(i int) {
	if x := l.live[i]; x != nil {
		l.live[i] = nil
		l.tape.Release(x)
	}
}

// classes are what the allocations of a step are for: what lives from forward to backward is kept for it.
func (r *Recording) classes() []program.Class {
	classes := make([]program.Class, len(r.Allocations))
	for i := range classes {
		classes[i] = program.Temporaries
	}
	kept := map[int]bool{}
	for _, n := range r.Order[:r.Forward] {
		kept[max(n, ^n)] = n >= 0
	}
	for n, lives := range kept {
		if lives {
			classes[n] = program.Activations
		}
	}
	for _, g := range r.Gradients {
		classes[g.Allocation] = program.Gradients
	}
	return classes
}

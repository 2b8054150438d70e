package recorded

import (
	"cmp"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/pt2/cudnnanswers"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// newTrainer returns the trainer of a model whose forward and backward were recorded. o may be nil.
func newTrainer(f *File, r *Recording, c models.Case, o cudnnanswers.Source) models.Trainer {
	net := &nn.NamedModule{}
	l := &loop{parameters: map[string]*nn.Parameter{}, keeps: c.Loop != models.LoopTrainer}
	for _, site := range r.Program.Sites {
		l.paths = append(l.paths, &trace.Path{Line: site.Where})
	}
	for _, p := range f.Steps.Parameters {
		w := nn.NewParameter(p.Shape...)
		w.DType, w.Frozen = dtypes[p.DType], !p.Trained
		l.parameters[p.Name] = w
		net.ShareParameter(p.Name, w)
	}
	for _, b := range f.Steps.Buffers {
		net.AddBuffer(dtypes[b.DType], b.Shape...)
	}
	own := &train.OwnLoopModel[*loop]{Case: c, Net: nn.NewTree(net)}
	own.Place = func(tape *trace.Tape) { r.setup.placeModel(tape, own.Net) }
	own.Load = func(tape *trace.Tape, n int) *loop {
		if release, err := c.Release(); err == nil && o != nil && len(r.steps[1].asked) > 0 {
			cudnnanswers.Answers(nil).With(o).Answer(tape, release.Versions().CuDNN)
		}
		l.tape, l.count, l.now = tape, 0, nil
		for i := range f.Steps.Inputs {
			in := &f.Steps.Inputs[i]
			tape.Hold(tape.New("zeros", program.Batch, dtypes[in.DType], in.shapeAt(int64(n))...))
		}
		return l
	}
	own.Step = func(s *train.Session, opt *optim.Optimizer, l *loop) {
		for range c.Accumulate {
			l.play(r, s.Scaler)
		}
		var clipped []*nn.Parameter
		if c.Clip == models.ClipNorm {
			clipped = train.Trainable(own.Net.Parameters)
		}
		s.Step(opt, clipped)
		l.tape.Mark("optimizer")
		opt.ZeroGrad()
		l.tape.Mark("zero_grad")
		if c.Loop != models.LoopPlain {
			l.endStep()
		}
	}
	return struct{ models.Trainer }{own} // which validates nothing
}

// loop is a training loop that replays recorded forward and backward passes.
type loop struct {
	tape       *trace.Tape
	parameters map[string]*nn.Parameter
	paths      []*trace.Path // of the recording's sites
	keeps      bool          // the model's results, to the end of the step
	count      int           // steps so far
	now        *playedStep   // the step whose variables are bound
}

// playedStep is a step of which some events were already played.
type playedStep struct {
	*Step
	first  bool
	live   []*trace.Tensor      // by its allocations
	places map[int]*Convolution // of its convolutions that cuDNN is asked about, by their places
}

// play plays the recorded forward and backward passes, and sets the resulting gradients. Tensors of the previous step
// are freed when its variables are rebound. Between the passes the scaler, if there is one, scales the loss.
func (l *loop) play(r *Recording, scaler *optim.GradScaler) {
	s := &r.steps[min(l.count, len(r.steps)-1)]
	p := &playedStep{
		Step: s, first: l.count == 0, live: make([]*trace.Tensor, len(s.Allocations)),
		places: make(map[int]*Convolution, len(s.asked)),
	}
	for i := range s.asked {
		p.places[s.asked[i].Place] = &s.asked[i]
	}
	l.count++
	l.playEvents(p, 0, s.Forward)
	l.endStep()
	l.now = p
	l.tape.Mark("forward")
	if scaler != nil {
		loss := l.tape.Hold(l.tape.New("empty", program.Temporaries, trace.F32))
		defer l.tape.Release(l.tape.Hold(scaler.Scale(loss)))
		l.tape.Release(loss)
	}
	l.playEvents(p, s.Forward, s.Backward)
	for _, g := range s.Gradients {
		l.setGrad(l.parameters[g.Parameter].Tensor, p.live[g.Allocation], g.Offset)
	}
	for _, g := range s.Gradients {
		l.freeAllocation(p, g.Allocation) // the parameter holds it, or has added it to what it had
	}
	l.tape.Mark("backward")
}

// setGrad sets a parameter's gradient to a position in at, unless the previous micro-batch has set it.
func (l *loop) setGrad(p, at *trace.Tensor, offset int64) {
	if p.Grad() == nil {
		l.tape.NoGrad(func() { p.SetGrad(tensorIn(at, p.DType(), p.Shape(), offset)) })
	}
}

// tensorIn returns a tensor inside an allocation, at an offset in bytes.
func tensorIn(in *trace.Tensor, d trace.DType, dims []int64, offset int64) *trace.Tensor {
	strides := trace.DenseStrides(dims, lists.Ascending(len(dims)))
	return in.ViewType(d).AsStrided(dims, strides, offset/d.Size())
}

// placeModel allocates the model's parameters and buffers on the device as they were recorded.
func (s *Step) placeModel(tape *trace.Tape, net *nn.Tree) {
	classes := make([]program.Class, len(s.Allocations))
	for _, n := range s.Order {
		if n < 0 {
			classes[^n] = program.Temporaries
		} else {
			classes[n] = program.Weights
		}
	}
	for _, h := range s.Held[len(net.Parameters):] {
		if h.Allocation >= 0 {
			classes[h.Allocation] = program.Buffers
		}
	}
	live := make([]*trace.Tensor, len(s.Allocations))
	for _, n := range s.Order {
		if n < 0 {
			tape.Release(live[^n])
		} else {
			live[n] = tape.Hold(tape.New("to_dtype_layout", classes[n], trace.U8, s.Allocations[n].Bytes))
		}
	}
	place := func(i int, class program.Class, d trace.DType, dims []int64) *trace.Tensor {
		h := s.Held[i]
		if h.Allocation < 0 {
			return tape.Hold(tape.New("to_dtype_layout", class, d, dims...))
		}
		return tape.Hold(tensorIn(live[h.Allocation], d, dims, h.Offset))
	}
	for i, p := range net.Parameters {
		tape.NoGrad(func() { p.Tensor = place(i, program.Weights, p.DType, p.Dims) })
		if !p.Frozen {
			p.Leaf()
		}
	}
	for i, b := range net.Buffers {
		b.Tensor = place(len(net.Parameters)+i, program.Buffers, b.DType, b.Dims)
	}
}

// playEvents plays a step's events with the indices from and up to to.
func (l *loop) playEvents(p *playedStep, from, to int) {
	classes := p.classes(l.keeps)
	for i, n := range p.Order[from:to] {
		c := p.places[from+i]
		if c != nil {
			l.tape.ConvWorkspace(c.Question.Config, c.Question.Operation)
		}
		if c != nil && c.Workspace >= 0 {
			continue // it stands for what was recorded
		}
		if n < 0 {
			if !l.keeps || !slices.Contains(p.Returned, ^n) {
				l.freeAllocation(p, ^n)
			}
			continue
		}
		a := p.Allocations[n]
		op := cmp.Or(p.nodeNames(n), Unnamed)
		p.live[n] = l.tape.Hold(l.tape.NewAt(l.paths[a.Site], op, classes[n], trace.U8, a.Bytes))
	}
}

// Unnamed is the operator of an allocation of compiled code whose graph node is unknown: the function that allocates.
const Unnamed = "empty_strided"

// endStep plays the frees at the end of a step, when the variables of its tensors are deleted. Allocations that the
// first step leaves stay allocated. What later steps leave is freed, since the next step allocates its own.
func (l *loop) endStep() {
	p := l.now
	if p == nil {
		return
	}
	for _, n := range p.Returned {
		l.freeAllocation(p, n)
	}
	l.playEvents(p, p.Backward, len(p.Order))
	for i := range p.live {
		if !p.first {
			l.freeAllocation(p, i)
		}
	}
	l.now = nil
}

func (l *loop) freeAllocation(p *playedStep, i int) {
	if x := p.live[i]; x != nil {
		p.live[i] = nil
		l.tape.Release(x)
	}
}

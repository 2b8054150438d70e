package pt2

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// pipeline is a stage of the model: the nodes from begin to end, with the weights that
// they use (PipelineStage of torch.distributed.pipelining).
type pipeline struct {
	t          *trainer
	tape       *trace.Tape
	begin, end int
	micro      int
	first      bool
	last       bool
	schedule   []distributed.Action
	// inputs come from the stage before, outputs go to the one behind.
	inputs, outputs []crossing
	// examples are the inputs and outputs that a stage is made with, and keeps.
	examples []crossing
	// numbers are those that the stages before compute.
	numbers map[int32]aten.Value

	received [][]*trace.Tensor // buffers for inputs, by micro-batch
	grads    [][]*trace.Tensor // buffers for gradients of outputs
	chunks   []*chunk
	results  []*trace.Tensor // of the last stage, until the next step
	sent     []*trace.Tensor // gradients on their way to the stage before
}

// crossing is a tensor between stages.
type crossing struct {
	value int32
	dtype trace.DType
	shape []int64
	// trains says that gradients flow back.
	trains bool
}

// chunk is a micro-batch between its forward and its backward.
type chunk struct {
	outs []*trace.Tensor
	loss *trace.Tensor
}

// newPipeline cuts the model in front of blocks, which are shared out evenly, and keeps
// one stage of it.
func newPipeline(t *trainer, tape *trace.Tape) (*pipeline, error) {
	s, stages := t.c.Strategy, t.c.GPUs
	blocks := train.Matching(t.g.Blocks, t.g.Modules)
	if len(blocks) < stages {
		return nil, fmt.Errorf("a pipeline of %d stages has at least a block in each, and the model has %d; use fewer GPUs", stages, len(blocks))
	}
	rank := int(*s.Rank)
	p := &pipeline{t: t, tape: tape, micro: int(s.Micro), first: rank == 0, last: rank == stages-1, end: len(t.g.Nodes)}
	if p.micro == 0 {
		p.micro = stages
	}
	cut := func(stage int) (int, error) {
		found := calls(t.g.Program, blocks[len(blocks)*stage/stages])
		if len(found) != 1 {
			return 0, fmt.Errorf("block %s is called %d times; a pipeline needs blocks that follow each other", blocks[len(blocks)*stage/stages], len(found))
		}
		return found[0].begin, nil
	}
	var err error
	if !p.first {
		if p.begin, err = cut(rank); err != nil {
			return nil, err
		}
	}
	if !p.last {
		if p.end, err = cut(rank + 1); err != nil {
			return nil, err
		}
	}
	p.schedule = distributed.Schedule(s.Schedule, p.micro, stages, rank)
	p.measure()
	p.keepOwn()
	return p, nil
}

// measure finds what crosses the stage's borders: a forward pass on a tape of its own
// shows shapes and types.
func (p *pipeline) measure() {
	scratch := trace.New(p.tape.Board(), *p.tape.Rules(), trace.Options{})
	p.t.w.to(scratch)
	p.t.load(scratch)
	f := scratch.Frame()
	w := p.t.walker(f.CallFrame())
	note := func(at int) []crossing {
		var out []crossing
		for _, v := range p.between(at) {
			if x, ok := w.values[v].(*trace.Tensor); ok && x != nil {
				out = append(out, crossing{v, x.DType(), slices.Clone(x.Shape()), x.RequiresGrad()})
			} else if !ok && at == p.begin {
				p.numbers[v] = w.values[v]
			}
		}
		return out
	}
	if !p.first {
		w.run(0, p.begin)
		p.numbers = map[int32]aten.Value{}
		p.inputs = note(p.begin)
	}
	w.run(p.begin, p.end)
	p.examples = p.inputs
	if p.last {
		if x, ok := w.values[p.t.g.Results[p.t.output].Value].(*trace.Tensor); ok {
			p.examples = append(slices.Clip(p.inputs), crossing{dtype: x.DType(), shape: slices.Clone(x.Shape())})
		}
	} else {
		p.outputs = note(p.end)
		p.examples = append(slices.Clip(p.inputs), p.outputs...)
	}
	scratch.Finish()
}

// between are the values that nodes before a place make and nodes behind it use.
func (p *pipeline) between(at int) []int32 {
	made := map[int32]bool{}
	for i := range at {
		for _, o := range p.t.g.Nodes[i].Outputs {
			values(o, func(v int32) { made[v] = true })
		}
	}
	var out []int32
	use := func(v int32) {
		if made[v] && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	for i := at; i < len(p.t.g.Nodes); i++ {
		for _, a := range p.t.g.Nodes[i].Inputs {
			values(a.Argument, use)
		}
	}
	return out
}

// keepOwn leaves out the weights that the stage's nodes do not use.
func (p *pipeline) keepOwn() {
	used := map[int32]bool{}
	for i := p.begin; i < p.end; i++ {
		for _, a := range p.t.g.Nodes[i].Inputs {
			values(a.Argument, func(v int32) { used[v] = true })
		}
	}
	own := func(xs []*tensor) []*tensor {
		return slices.DeleteFunc(slices.Clone(xs), func(x *tensor) bool {
			return !slices.ContainsFunc(x.values, func(v int32) bool { return used[v] })
		})
	}
	w := p.t.w
	w.parameters, w.buffers, w.moved = own(w.parameters), own(w.buffers), own(w.moved)
	p.t.regions = slices.DeleteFunc(slices.Clone(p.t.regions), func(r region) bool { return r.begin < p.begin || r.end > p.end })
}

// allocate makes the buffers for what other stages send, for every micro-batch.
func (p *pipeline) allocate() {
	buffers := func(of []crossing, c program.Class) [][]*trace.Tensor {
		out := make([][]*trace.Tensor, p.micro)
		for i := range out {
			for _, x := range of {
				b := p.tape.Hold(p.tape.New("empty_memory_format", c, x.dtype, x.shape...))
				if x.trains {
					b.Leaf()
				}
				out[i] = append(out[i], b)
			}
		}
		return out
	}
	p.received = buffers(p.inputs, program.Activations)
	p.grads = buffers(p.outputs, program.Gradients)
	p.chunks = make([]*chunk, p.micro)
}

// run is one step of the schedule.
func (p *pipeline) run(s *train.Session) {
	if p.chunks == nil {
		p.allocate()
	}
	p.forget(&p.results)
	for _, a := range p.schedule {
		if a.Backward {
			p.backward(s, a.Micro)
		} else {
			p.forward(s, a.Micro)
		}
	}
	p.forget(&p.sent)
	p.tape.Mark("backward")
	if p.last && p.results[0].NDim() > 0 { // what step() returns, and nobody keeps
		f := p.tape.Frame()
		p.tape.NoGrad(func() { f.Let(trace.Cat(0, p.results...)) })
		f.End()
	}
	for _, x := range p.t.w.trainable() {
		if x.Grad() != nil {
			trace.Update("div__Scalar", 1, x.Grad())
		}
	}
}

func (p *pipeline) forget(xs *[]*trace.Tensor) {
	for _, x := range *xs {
		p.tape.Release(x)
	}
	*xs = nil
}

// forward is forward_one_chunk.
func (p *pipeline) forward(s *train.Session, i int) {
	c := &chunk{}
	for k := range p.inputs {
		p.tape.Collective(program.Receive, 2, p.received[i][k], nil)
	}
	f := p.tape.Frame()
	s.Autocast(func() {
		w := p.t.walker(f.CallFrame())
		for v, n := range p.numbers {
			w.values[v] = n
		}
		for k, x := range p.inputs {
			w.values[x.value] = w.frame.Let(p.received[i][k])
		}
		w.run(p.begin, p.end)
		if p.last {
			out, _ := w.values[p.t.g.Results[p.t.output].Value].(*trace.Tensor)
			w.frame.End(out)
			p.results = append(p.results, p.tape.Hold(out))
			c.loss = p.tape.Hold(p.t.loss(f, out))
			return
		}
		for _, x := range p.outputs {
			out, _ := w.values[x.value].(*trace.Tensor)
			c.outs = append(c.outs, p.tape.Hold(out))
		}
		w.frame.End(c.outs...)
	})
	f.End()
	for _, x := range c.outs {
		p.tape.Collective(program.Send, 2, nil, x)
	}
	p.chunks[i] = c
}

// backward is backward_one_chunk.
func (p *pipeline) backward(s *train.Session, i int) {
	c := p.chunks[i]
	p.chunks[i] = nil
	if p.last {
		s.Backward(c.loss)
		p.tape.Release(c.loss)
	} else {
		var roots, grads []*trace.Tensor
		for k, x := range c.outs {
			if x.RequiresGrad() {
				p.tape.Collective(program.Receive, 2, p.grads[i][k], nil)
				roots, grads = append(roots, x), append(grads, p.grads[i][k])
			}
		}
		trace.Backward(roots, grads)
		for _, x := range c.outs {
			p.tape.Release(x)
		}
	}
	var sent []*trace.Tensor
	for k, x := range p.inputs {
		if !x.trains {
			continue
		}
		if g := p.received[i][k].TakeGrad(); g != nil {
			p.tape.Collective(program.Send, 2, nil, g)
			sent = append(sent, g)
		}
	}
	p.forget(&p.sent)
	p.sent = sent
}

// recordPipeline is Record of a stage.
func (t *trainer) recordPipeline(tape *trace.Tape, steps int) error {
	return tape.Try(func() {
		p, err := newPipeline(t, tape)
		if err != nil {
			tape.Raise(err)
		}
		t.w.to(tape)
		tape.Mark("model")
		s := train.NewSession(tape, t.c)
		opt, err := s.OptimizerOf(t.c, ownOptimizer, nil, t.w.trainable())
		if err != nil {
			tape.Raise(err)
		}
		for _, x := range p.examples {
			tape.Hold(tape.New("zeros", program.Batch, x.dtype, x.shape...))
		}
		t.load(tape)
		tape.Mark("batch")
		for i := range steps {
			tape.SetStep(i)
			p.run(s)
			opt.Step()
			tape.Mark("optimizer")
			opt.ZeroGrad()
			tape.Mark("zero_grad")
			tape.Mark("step_end")
		}
	})
}

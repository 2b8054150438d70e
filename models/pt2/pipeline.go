package pt2

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// pipeline is the stages of a pipeline that one rank has: one, or several of an
// interleaved schedule.
type pipeline struct {
	t        *trainer
	tape     *trace.Tape
	micro    int
	schedule []distributed.Action
	stages   []*stage
	// sent are gradients on their way to the stage before.
	sent []*trace.Tensor
}

// stage is the nodes of the model from begin to end, with the weights that they use
// (PipelineStage of torch.distributed.pipelining).
type stage struct {
	*pipeline
	begin, end  int
	first, last bool
	regions     []region
	parameters  []*tensor
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
	undone   int             // backward passes that are to come
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
// the stages of one rank: of several, those that lie as many stages apart as there are
// ranks.
func newPipeline(t *trainer, tape *trace.Tape) (*pipeline, error) {
	s, ranks, each := t.c.Strategy, t.c.GPUs, t.c.Strategy.StagesOfRank()
	blocks := train.Matching(t.g.Blocks, t.g.Modules)
	if len(blocks) < ranks*each {
		return nil, fmt.Errorf("a pipeline of %d stages has at least a block in each, and the model has %d; use fewer GPUs", ranks*each, len(blocks))
	}
	rank := int(*s.Rank)
	p := &pipeline{t: t, tape: tape, micro: int(s.Micro)}
	if p.micro == 0 {
		p.micro = ranks
	}
	p.schedule = distributed.Schedule(s.Schedule, p.micro, ranks, rank)
	if s.Schedule == models.Interleaved {
		if rounds := distributed.Rounds(p.micro, ranks); p.micro%rounds != 0 {
			return nil, fmt.Errorf("%d micro-batches cannot go round %d ranks in %d rounds, as the interleaved schedule has them; take a multiple", p.micro, ranks, rounds)
		}
		p.schedule = distributed.Interleaved(p.micro, ranks, rank, each)
	}
	for i := range each {
		st, err := p.cut(blocks, i*ranks+rank, ranks*each)
		if err != nil {
			return nil, err
		}
		p.stages = append(p.stages, st)
	}
	for _, st := range p.stages {
		st.measure()
	}
	p.keepOwn()
	return p, nil
}

// cut makes a stage of several.
func (p *pipeline) cut(blocks []string, at, of int) (*stage, error) {
	st := &stage{pipeline: p, first: at == 0, last: at == of-1, end: len(p.t.g.Nodes)}
	place := func(i int) (int, error) {
		block := blocks[len(blocks)*i/of]
		found := calls(p.t.g.Program, block)
		if len(found) != 1 {
			return 0, fmt.Errorf("block %s is called %d times; a pipeline needs blocks that follow each other", block, len(found))
		}
		return found[0].begin, nil
	}
	var err error
	if !st.first {
		if st.begin, err = place(at); err != nil {
			return nil, err
		}
	}
	if !st.last {
		if st.end, err = place(at + 1); err != nil {
			return nil, err
		}
	}
	for _, r := range p.t.regions {
		if r.begin >= st.begin && r.end <= st.end {
			st.regions = append(st.regions, r)
		}
	}
	return st, nil
}

// measure finds what crosses the stage's borders: a forward pass on a tape of its own
// shows shapes and types.
func (p *stage) measure() {
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
func (p *stage) between(at int) []int32 {
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

// keepOwn leaves out the weights that the rank's nodes do not use.
func (p *pipeline) keepOwn() {
	own := func(xs []*tensor, stages ...*stage) []*tensor {
		used := map[int32]bool{}
		for _, st := range stages {
			for i := st.begin; i < st.end; i++ {
				for _, a := range p.t.g.Nodes[i].Inputs {
					values(a.Argument, func(v int32) { used[v] = true })
				}
			}
		}
		adapting := map[*tensor]bool{}
		for v, a := range p.t.adapters {
			adapting[a.a], adapting[a.b] = used[v], used[v]
		}
		return slices.DeleteFunc(slices.Clone(xs), func(x *tensor) bool {
			return !adapting[x] && !slices.ContainsFunc(x.values, func(v int32) bool { return used[v] })
		})
	}
	w := p.t.w
	for _, st := range p.stages {
		st.parameters = own(w.parameters, st)
	}
	w.parameters, w.buffers, w.moved = own(w.parameters, p.stages...), own(w.buffers, p.stages...), own(w.moved, p.stages...)
}

// buffers are one for each crossing and micro-batch.
func (p *pipeline) buffers(of []crossing, c program.Class) [][]*trace.Tensor {
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

// allocate makes the buffers for what other stages send, for every micro-batch.
func (p *pipeline) allocate() {
	for _, st := range p.stages {
		st.received = p.buffers(st.inputs, program.Activations)
		st.chunks = make([]*chunk, p.micro)
	}
	for _, st := range p.stages {
		st.grads = p.buffers(st.outputs, program.Gradients)
	}
}

// run is one step of the schedule.
func (p *pipeline) run(s *train.Session) {
	if p.stages[0].chunks == nil {
		p.allocate()
	}
	for _, st := range p.stages {
		p.forget(&st.results)
		st.undone = p.micro
	}
	for _, a := range p.schedule {
		st := p.stages[a.Stage]
		if !a.Backward {
			st.forward(s, a.Micro)
			continue
		}
		st.backward(s, a.Micro)
		if len(p.stages) > 1 { // the runtime of several stages keeps nothing that it sends
			p.forget(&p.sent)
			if st.undone--; st.undone == 0 {
				st.scale()
			}
		}
	}
	p.forget(&p.sent)
	p.tape.Mark("backward")
	if st := p.stages[len(p.stages)-1]; st.last && st.results[0].NDim() > 0 { // what step() returns, and nobody keeps
		f := p.tape.Frame()
		p.tape.NoGrad(func() { f.Let(trace.Cat(0, st.results...)) })
		f.End()
	}
	if len(p.stages) == 1 {
		p.stages[0].scale()
	}
}

// scale divides the gradients by the number of micro-batches.
func (p *stage) scale() {
	for _, w := range p.parameters {
		if !w.frozen && w.x.Grad() != nil {
			trace.Update("div__Scalar", 1, w.x.Grad())
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
func (p *stage) forward(s *train.Session, i int) {
	c := &chunk{}
	for k := range p.inputs {
		p.tape.Collective(program.Receive, 2, p.received[i][k], nil)
	}
	f := p.tape.Frame()
	s.Autocast(func() {
		w := p.t.walker(f.CallFrame())
		w.regions = p.regions
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
func (p *stage) backward(s *train.Session, i int) {
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
		if t.channelsLast() {
			t.w.toChannelsLast(tape)
		}
		tape.Mark("model")
		s := train.NewSession(tape, t.c)
		trained := t.w.trainable()
		opt, err := s.OptimizerOf(t.c, ownOptimizer, nil, trained)
		if err != nil {
			tape.Raise(err)
		}
		for _, st := range p.stages {
			for _, x := range st.examples {
				tape.Hold(tape.New("zeros", program.Batch, x.dtype, x.shape...))
			}
		}
		t.load(tape)
		tape.Mark("batch")
		for i := range steps {
			tape.SetStep(i)
			p.run(s)
			t.update(s, opt, trained)
			tape.Mark("optimizer")
			opt.ZeroGrad()
			tape.Mark("zero_grad")
			tape.Mark("step_end")
		}
	})
}

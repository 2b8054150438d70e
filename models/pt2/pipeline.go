package pt2

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// stage is the nodes of the model from begin to end, with the weights that they use.
type stage struct {
	t           *trainer
	tape        *trace.Tape
	begin, end  int
	first, last bool
	regions     []region
	parameters  []*tensor
	// inputs come from the stage before, outputs go to the one behind.
	inputs, outputs []crossing
	// numbers are those that the stages before compute.
	numbers map[int32]aten.Value
}

// crossing is a value between stages.
type crossing struct {
	value int32
	train.Crossing
}

// newPipeline cuts the model in front of blocks, and keeps the stages of one rank.
func newPipeline(t *trainer, tape *trace.Tape) (*train.Pipeline, error) {
	var stages []*stage
	p, err := train.NewPipeline(tape, t.c, train.Matching(t.g.Blocks, t.g.Modules), func(from, to string) (*train.Stage, error) {
		st, err := t.cut(tape, from, to)
		if err != nil {
			return nil, err
		}
		stages = append(stages, st)
		out := &train.Stage{Examples: st.measure(), Forward: st.forward, Trained: st.trained}
		for _, x := range st.inputs {
			out.Inputs = append(out.Inputs, x.Crossing)
		}
		for _, x := range st.outputs {
			out.Outputs = append(out.Outputs, x.Crossing)
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	t.keepOwn(stages)
	return p, nil
}

// cut makes the stage of the blocks from one to another.
func (t *trainer) cut(tape *trace.Tape, from, to string) (*stage, error) {
	st := &stage{t: t, tape: tape, first: from == "", last: to == "", end: len(t.g.Nodes)}
	place := func(block string) (int, error) {
		found := calls(t.g.Program, block)
		if len(found) != 1 {
			return 0, fmt.Errorf("block %s is called %d times; a pipeline needs blocks that follow each other", block, len(found))
		}
		return found[0].begin, nil
	}
	var err error
	if !st.first {
		if st.begin, err = place(from); err != nil {
			return nil, err
		}
	}
	if !st.last {
		if st.end, err = place(to); err != nil {
			return nil, err
		}
	}
	for _, r := range t.regions {
		if r.begin >= st.begin && r.end <= st.end {
			st.regions = append(st.regions, r)
		}
	}
	return st, nil
}

// measure finds what crosses the stage's borders: a forward pass on a tape of its own
// shows shapes and types. It returns the inputs and outputs that the stage is made with.
func (p *stage) measure() (examples []train.Crossing) {
	scratch := trace.New(p.tape.Board(), *p.tape.Rules(), trace.Options{})
	p.t.w.to(scratch)
	p.t.load(scratch)
	f := scratch.Frame()
	w := p.t.walker(f.CallFrame())
	note := func(at int) []crossing {
		var out []crossing
		for _, v := range p.between(at) {
			if x, ok := w.values[v].(*trace.Tensor); ok && x != nil {
				c := train.Crossing{DType: x.DType(), Shape: slices.Clone(x.Shape()), Trains: x.RequiresGrad()}
				out, examples = append(out, crossing{v, c}), append(examples, c)
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
	if !p.last {
		p.outputs = note(p.end)
	} else if x, ok := w.values[p.t.g.Results[p.t.output].Value].(*trace.Tensor); ok {
		examples = append(examples, train.Crossing{DType: x.DType(), Shape: slices.Clone(x.Shape())})
	}
	scratch.Finish()
	return examples
}

// between are the values that nodes before a place make and nodes after it use.
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
func (t *trainer) keepOwn(stages []*stage) {
	own := func(xs []*tensor, stages ...*stage) []*tensor {
		used := map[int32]bool{}
		for _, st := range stages {
			for i := st.begin; i < st.end; i++ {
				for _, a := range t.g.Nodes[i].Inputs {
					values(a.Argument, func(v int32) { used[v] = true })
				}
			}
		}
		adapting := map[*tensor]bool{}
		for v, a := range t.adapters {
			adapting[a.a], adapting[a.b] = used[v], used[v]
		}
		return slices.DeleteFunc(slices.Clone(xs), func(x *tensor) bool {
			return !adapting[x] && !slices.ContainsFunc(x.values, func(v int32) bool { return used[v] })
		})
	}
	w := t.w
	for _, st := range stages {
		st.parameters = own(w.parameters, st)
	}
	w.parameters, w.buffers, w.moved = own(w.parameters, stages...), own(w.buffers, stages...), own(w.moved, stages...)
}

// trained are the parameters of the stage that are trained.
func (p *stage) trained() []*trace.Tensor {
	var out []*trace.Tensor
	for _, w := range p.parameters {
		if !w.frozen {
			out = append(out, w.x)
		}
	}
	return out
}

// forward runs the stage's nodes on a micro-batch.
func (p *stage) forward(s *train.Session, _ int, received []*trace.Tensor) (c train.Pass) {
	for k, x := range p.inputs {
		if x.Trains {
			c.Roots = append(c.Roots, p.tape.Hold(received[k]))
		}
	}
	f := p.tape.Frame()
	s.Autocast(func() {
		w := p.t.walker(f.CallFrame())
		w.regions = p.regions
		for v, n := range p.numbers {
			w.values[v] = n
		}
		for k, x := range p.inputs {
			w.values[x.value] = w.frame.Let(received[k])
		}
		w.run(p.begin, p.end)
		if p.last {
			out, _ := w.values[p.t.g.Results[p.t.output].Value].(*trace.Tensor)
			w.frame.End(out)
			c.Result = p.tape.Hold(out)
			c.Loss = p.tape.Hold(p.t.loss(f, out))
			return
		}
		for _, x := range p.outputs {
			out, _ := w.values[x.value].(*trace.Tensor)
			c.Outs = append(c.Outs, p.tape.Hold(out))
		}
		w.frame.End(c.Outs...)
	})
	f.End()
	return c
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
		opt, err := p.Optimizer(s, t.c, ownOptimizer, trained)
		if err != nil {
			tape.Raise(err)
		}
		p.Prepare(func() { t.load(tape) })
		tape.Mark("batch")
		for i := range steps {
			tape.SetStep(i)
			p.Run(s)
			t.update(s, opt, trained)
			tape.Mark("optimizer")
			opt.ZeroGrad()
			tape.Mark("zero_grad")
			tape.Mark("step_end")
		}
	})
}

// Ranks implements [models.Staged].
func (t *trainer) Ranks(scratch *trace.Tape) (ranks []string, err error) {
	err = scratch.Try(func() {
		cuts, wrong := train.Cuts(t.c, train.Matching(t.g.Blocks, t.g.Modules))
		if wrong != nil {
			scratch.Raise(wrong)
		}
		t.w.to(scratch)
		t.load(scratch)
		p := scratch.Program()
		f := scratch.Frame()
		train.NewSession(scratch, t.c).Autocast(func() {
			w := t.walker(f.CallFrame())
			var places []int
			for i, from := range cuts[:len(cuts)-1] {
				st, wrong := t.cut(scratch, from, cuts[i+1])
				if wrong != nil {
					scratch.Raise(wrong)
				}
				places = append(places, len(p.Instructions))
				w.regions = st.regions
				w.run(st.begin, st.end)
			}
			ranks = train.StagesOf(t.c, p, places, t.w.trainable())
		})
	})
	return ranks, err
}

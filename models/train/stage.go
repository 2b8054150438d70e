package train

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// stageLayers is a stage of a model of layers: a range of blocks, with the code before them in the first stage and the
// code after them in the last. Other ranks run the rest of the model's code, which shows the tensors that cross the
// boundaries.
type stageLayers struct {
	t        *taskTrainer
	tape     *trace.Tape
	from, to string
	// root is around all of the stage where ranks share it, nil else.
	root trace.Wrapper
	// numbers are the numbers of the storages that the stage receives from earlier stages.
	numbers []uint32
	// skipped are the layers of other stages that passes need not run.
	skipped trace.OtherStagesCalls

	pass *Pass
	// outs has the places of what is sent among the pass's, by storage.
	outs map[any]int
}

// blockGate is a [trace.Wrapper] around the first or last block of a stage, outside of the strategy's wrappers.
type blockGate struct {
	block string
	t     *taskTrainer
	trace.Wrapper
}

// Enter implements [trace.Wrapper].
func (g blockGate) Enter(args []*trace.Tensor) {
	g.t.enter(g.block, args)
	g.Wrapper.Enter(args)
}

// noWrapper is the wrapper of a module that no strategy wraps.
type noWrapper struct{}

func (noWrapper) Enter([]*trace.Tensor)              {}
func (noWrapper) Inputs() (d trace.DType, cast bool) { return d, false }
func (noWrapper) Leave([]*trace.Tensor)              {}

// enter marks the beginning of a block, with its arguments.
func (t *taskTrainer) enter(block string, args []*trace.Tensor) {
	if t.onBlock != nil {
		t.onBlock(block, args)
	}
}

// gates puts a gate before every block of a model.
func (t *taskTrainer) gates(tape *trace.Tape, blocks []string) {
	if t.graph == nil {
		for _, b := range blocks {
			tape.Wrap(t.net.Path(b), blockGate{b, t, noWrapper{}})
		}
	} else if err := t.graph.Gate(blocks, func(block string) { t.enter(block, nil) }); err != nil {
		tape.Raise(err)
	}
}

// compute runs a forward pass. result is the output that the loss is computed from if a graph returns one, else the
// loss.
func (t *taskTrainer) compute(s *Session, f *trace.Frame) (loss, result *trace.Tensor) {
	s.Autocast(func() {
		if t.graph != nil {
			result = t.graph.Compute(f, nil, &loss)
			return
		}
		t.task.Loss(f, &loss)
		result = loss
	})
	return loss, result
}

// crossingSurvey finds the tensors that cross a boundary between stages, by a pass over shapes on a separate tape:
// tensors computed before the boundary that blocks after it read. It implements [trace.StageBoundary].
type crossingSurvey struct {
	known     map[any]bool // the model's own storages, and whether the stage uses them
	inside    bool
	crossings []Crossing
	numbers   []uint32
	// result is the model's final result.
	result Crossing
	// parameters and buffers are the ones that the stage uses.
	parameters []*nn.Parameter
	buffers    []*nn.Buffer
}

func (s *crossingSurvey) find(x *trace.Tensor) int {
	if i := slices.Index(s.numbers, x.Number()); i >= 0 {
		return i
	}
	shape := x.Shape()
	if x.Bytes() != x.StorageBytes() {
		shape = []int64{x.StorageBytes() / x.DType().Size()}
	}
	s.numbers = append(s.numbers, x.Number())
	s.crossings = append(s.crossings, Crossing{DType: x.DType(), Shape: slices.Clone(shape)})
	return len(s.numbers) - 1
}

// Receive implements [trace.StageBoundary].
func (s *crossingSurvey) Receive(x *trace.Tensor) {
	if used, own := s.known[x.Storage()]; own {
		s.known[x.Storage()] = used || s.inside
		return
	}
	s.find(x)
}

// ReceiveLeaf implements [trace.StageBoundary].
func (s *crossingSurvey) ReceiveLeaf(x *trace.Tensor) {
	c := &s.crossings[s.find(x)]
	c.Trains, c.Shape = true, slices.Clone(x.Shape())
}

// Send implements [trace.StageBoundary].
func (s *crossingSurvey) Send(*trace.Tensor) bool { return false }

// survey finds the tensors that cross the boundary before block from, and the parameters and buffers that are used from
// there up to block to. Empty names mean the first and the last stage.
func (t *taskTrainer) survey(tape *trace.Tape, blocks []string, from, to string) (*crossingSurvey, error) {
	scratch := trace.New(tape.GPU(), *tape.Rules(), trace.Options{})
	defer scratch.Finish()
	s := &crossingSurvey{known: map[any]bool{}, inside: from == ""}
	err := scratch.Try(func() {
		scratch.OnOtherRank(true, func() {
			t.net.To(scratch)
			nn.MoveAdapters(scratch, t.net, t.adapters)
			t.parallelizeAll(scratch)
		})
		for _, p := range t.net.Parameters {
			s.known[p.Storage()] = false
		}
		for _, b := range t.net.Buffers {
			s.known[b.Storage()] = false
		}
		t.task.Load(scratch, int64(t.c.Batch))
		entered := map[string]int{}
		t.gates(scratch, blocks)
		t.onBlock = func(block string, _ []*trace.Tensor) {
			if entered[block]++; entered[block] > 1 {
				scratch.Raise(fmt.Errorf("block %s is called twice; a pipeline needs blocks that follow each other",
					block))
			}
			switch block {
			case from:
				scratch.EnterStage(trace.OwnStage)
				s.inside = true
			case to:
				s.inside = false
			}
		}
		t.net.Train(true)
		scratch.StagePass(s, nil, nil)
		if from != "" {
			scratch.EnterStage(trace.EarlierStages)
		}
		f := scratch.Frame()
		_, result := t.compute(NewSession(scratch, t.c), f)
		s.result = Crossing{DType: result.DType(), Shape: slices.Clone(result.Shape())}
		f.End()
		t.onBlock = nil
		s.parameters = lists.Filter(t.net.Parameters, func(p *nn.Parameter) bool { return s.known[p.Storage()] })
		s.buffers = lists.Filter(t.net.Buffers, func(b *nn.Buffer) bool { return s.known[b.Storage()] })
	})
	return s, err
}

// stage makes the stage with the blocks from one to before another.
func (t *taskTrainer) stage(tape *trace.Tape, blocks []string, from, to string) (*Stage, error) {
	s, err := t.survey(tape, blocks, from, to)
	if err != nil {
		return nil, err
	}
	l := &stageLayers{t: t, tape: tape, from: from, to: to, numbers: s.numbers, skipped: trace.OtherStagesCalls{}}
	for _, p := range s.parameters {
		p.Away = false
	}
	for _, b := range s.buffers {
		b.Away = false
	}
	out := &Stage{Inputs: s.crossings, Examples: append(slices.Clip(s.crossings), s.result)}
	if to != "" {
		behind, err := t.survey(tape, blocks, to, "")
		if err != nil {
			return nil, err
		}
		out.Outputs = behind.crossings
		out.Examples = slices.Concat(out.Inputs, out.Outputs)
	}
	out.Trained = func() []*trace.Tensor { return Tensors(Trainable(s.parameters)) }
	out.Forward = func(s *Session, _ int, received []*trace.Tensor) *Pass { return l.forward(s, received) }
	out.share = func(s *Session) *Ranks {
		own := blocks[max(0, slices.Index(blocks, from)):]
		if to != "" {
			own = own[:slices.Index(own, to)]
		}
		r := t.shareStage(s, own)
		l.root, out.Finish = r.Wrappers[""], r.finish
		out.Trained = func() []*trace.Tensor { return r.Parameters }
		return r
	}
	return out, nil
}

// forward runs the model's code with the stage's blocks as its own part.
func (l *stageLayers) forward(s *Session, received []*trace.Tensor) *Pass {
	inputs := map[uint32]*trace.Tensor{}
	for i, x := range received {
		inputs[l.numbers[i]] = x
	}
	l.pass, l.outs = &Pass{}, map[any]int{}
	l.tape.StagePass(l, inputs, l.skipped)
	root := l.root
	if root == nil {
		root = noWrapper{}
	}
	if l.from != "" {
		l.tape.EnterStage(trace.EarlierStages)
	} else {
		root.Enter(nil)
	}
	l.t.onBlock = func(block string, args []*trace.Tensor) {
		switch block {
		case l.from:
			l.tape.EnterStage(trace.OwnStage)
			root.Enter(args)
		case l.to:
			root.Leave(args)
			l.tape.EnterStage(trace.LaterStages)
		}
	}
	if l.to == "" && l.t.graph == nil && l.t.c.Loop == models.LoopFunction {
		l.tape.KeepOutputs(func(xs []*trace.Tensor) {
			for _, x := range xs {
				l.pass.Scores = append(l.pass.Scores, l.tape.Hold(x))
			}
		})
		defer l.tape.KeepOutputs(nil)
	}
	f := l.tape.Frame()
	loss, result := l.t.compute(s, f)
	if l.to == "" {
		root.Leave([]*trace.Tensor{loss})
		l.pass.Loss, l.pass.Result = l.tape.Hold(loss), l.tape.Hold(result)
	}
	f.End()
	l.t.onBlock = nil
	l.tape.StagePass(nil, nil, nil)
	return l.pass
}

// Receive implements [trace.StageBoundary].
func (l *stageLayers) Receive(x *trace.Tensor) {
	l.tape.Raise(fmt.Errorf("a pipeline stage reads a tensor of shape %v that it did not receive", x.Shape()))
}

// ReceiveLeaf implements [trace.StageBoundary].
func (l *stageLayers) ReceiveLeaf(x *trace.Tensor) {
	l.pass.Roots = append(l.pass.Roots, l.tape.Hold(x))
}

// Send implements [trace.StageBoundary].
func (l *stageLayers) Send(x *trace.Tensor) bool {
	i, found := l.outs[x.Storage()]
	switch {
	case !found:
		l.outs[x.Storage()] = len(l.pass.Outs)
		l.pass.Outs = append(l.pass.Outs, l.tape.Hold(x))
	case x.RequiresGrad() && !l.pass.Outs[i].RequiresGrad():
		old := l.pass.Outs[i]
		l.pass.Outs[i] = l.tape.Hold(x)
		l.tape.Release(old)
	default:
		return false
	}
	return true
}

// pipelineTrainer is the trainer of a pipeline. Its schedules only train, and do not validate. It implements
// [models.RankNamer].
type pipelineTrainer struct{ t *taskTrainer }

// Counts implements [models.Trainer].
func (s pipelineTrainer) Counts() models.Counts { return s.t.Counts() }

// Record implements [models.Trainer].
func (s pipelineTrainer) Record(tape *trace.Tape, steps int) error {
	return s.t.recordPipeline(tape, steps)
}

// setComputeType sets the type of all weights to that in which the ranks of a stage compute and send, until the
// returned function restores the types of the rank's own weights.
func (t *taskTrainer) setComputeType() (own func()) {
	was := make([]trace.DType, len(t.net.Parameters))
	for i, p := range t.net.Parameters {
		if was[i] = p.DType; t.c.Strategy.MP != "" && p.DType.IsFloat() {
			p.DType = dtypeOf(t.c.Strategy.MP)
		}
	}
	return func() {
		for i, p := range t.net.Parameters {
			if !p.Away {
				p.DType = was[i]
			}
		}
	}
}

// pipelineParameters returns the trained parameters of a rank's stages, and the parameters whose gradients are clipped,
// after they are divided among ranks.
func (t *taskTrainer) pipelineParameters(s *Session, p *Pipeline) (trained, clipped []*trace.Tensor) {
	if !t.c.Strategy.SharesStages(t.c.GPUs) {
		own := slices.DeleteFunc(slices.Clone(t.net.Parameters), func(p *nn.Parameter) bool { return p.Away })
		return Tensors(Trainable(own)), Tensors(own)
	}
	t.parallelizeAll(s.Tape)
	for _, st := range p.stages {
		trained = append(trained, st.share(s).Parameters...)
	}
	s.Tape.Mark("wrap")
	return trained, trained
}

// recordPipeline records the stages that a rank of a pipeline has.
func (t *taskTrainer) recordPipeline(tape *trace.Tape, steps int) error {
	return tape.Try(func() {
		blocks := t.blocks()
		for _, p := range t.net.Parameters {
			p.Away = true
		}
		for _, b := range t.net.Buffers {
			b.Away = true
		}
		own := t.setComputeType()
		t.gates(tape, blocks)
		p, err := NewPipeline(tape, t.c, blocks, func(from, to string) (*Stage, error) {
			return t.stage(tape, blocks, from, to)
		})
		if err != nil {
			tape.Raise(err)
		}
		own()
		t.place(tape)
		tape.Mark("model")
		s := NewSession(tape, t.c)
		tape.AutocastAlone()
		trained, clipped := t.pipelineParameters(s, p)
		opt, err := p.Optimizer(s, t.c, defaultOptimizer, trained)
		if err != nil {
			tape.Raise(err)
		}
		if !t.clips() {
			clipped = nil
		}
		p.Prepare(func() { t.task.Load(tape, int64(t.c.Batch)) })
		tape.Mark("batch")
		for range tape.Steps(steps) {
			t.net.Train(true)
			p.Run(s)
			s.StepOver(opt, clipped)
			tape.Mark("optimizer")
			p.EndStep()
			opt.ZeroGrad()
			tape.Mark("zero_grad")
			tape.Mark("step_end")
		}
	})
}

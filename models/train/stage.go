package train

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// stageLayers is one stage of a model of layers: a range of blocks, with the code before all blocks in the first
// stage and the code after them in the last. The rest of the model's code runs as on other ranks, which shows the
// tensors that cross the boundaries.
type stageLayers struct {
	t        *taskTrainer
	tape     *trace.Tape
	from, to string
	// root is the wrapper of the whole stage if several ranks shard it; nil otherwise.
	root trace.Wrapper
	// numbers are the numbers of the storages that the stage receives.
	numbers []uint32
	// skipped are the calls of other stages' layers that passes can skip.
	skipped trace.OtherStagesCalls

	pass *MicroBatchPass
	// outs maps storages to indices of the tensors that the pass sends to other stages.
	outs map[any]int
}

// blockGate is a [trace.Wrapper] around the first or last block of a stage, outside of the strategy's wrappers.
type blockGate struct {
	block string
	t     *taskTrainer
	trace.Wrapper
}

func (g blockGate) Enter(args []*trace.Tensor) {
	g.t.enterBlock(g.block, args)
	g.Wrapper.Enter(args)
}

// noWrapper is the wrapper of a module that no strategy wraps.
type noWrapper struct{}

func (noWrapper) Enter([]*trace.Tensor)              {}
func (noWrapper) Inputs() (d trace.DType, cast bool) { return d, false }
func (noWrapper) Leave([]*trace.Tensor)              {}

// enterBlock passes on the arguments of a block before the block begins.
func (t *taskTrainer) enterBlock(block string, args []*trace.Tensor) {
	if t.onBlock != nil {
		t.onBlock(block, args)
	}
}

func (t *taskTrainer) addGates(tape *trace.Tape, blocks []string) {
	if t.graph == nil {
		for _, b := range blocks {
			tape.Wrap(t.net.PathOf(b), blockGate{b, t, noWrapper{}})
		}
	} else if err := t.graph.OnBlock(blocks, func(block string) { t.enterBlock(block, nil) }); err != nil {
		tape.Raise(err)
	}
}

// computeForward runs a forward pass. result is the output from which the loss is computed if a graph returns it, else
// the loss.
func (t *taskTrainer) computeForward(s *Session, f *trace.Frame) (loss, result *trace.Tensor) {
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

// boundarySurvey finds the tensors that cross a boundary between stages: tensors computed before it that later blocks
// read. It runs the model on a separate tape, and implements [trace.StageBoundary].
type boundarySurvey struct {
	known     map[any]bool // parameters' and buffers' storages, and whether the stage uses them
	inside    bool
	crossings []StageTensor
	numbers   []uint32
	// result is the model's result.
	result StageTensor
	// parameters and buffers are the ones that the stage uses.
	parameters []*nn.Parameter
	buffers    []*nn.Buffer
}

func (s *boundarySurvey) find(x *trace.Tensor) int {
	if i := slices.Index(s.numbers, x.Number()); i >= 0 {
		return i
	}
	shape := x.Shape()
	if x.Bytes() != x.StorageBytes() {
		shape = []int64{x.StorageBytes() / x.DType().Size()}
	}
	s.numbers = append(s.numbers, x.Number())
	s.crossings = append(s.crossings, StageTensor{DType: x.DType(), Shape: slices.Clone(shape)})
	return len(s.numbers) - 1
}

func (s *boundarySurvey) Receive(x *trace.Tensor) {
	if used, own := s.known[x.Storage()]; own {
		s.known[x.Storage()] = used || s.inside
		return
	}
	s.find(x)
}

func (s *boundarySurvey) ReceiveLeaf(x *trace.Tensor) {
	c := &s.crossings[s.find(x)]
	c.NeedsGrad, c.Shape = true, slices.Clone(x.Shape())
}

func (s *boundarySurvey) Send(*trace.Tensor) bool { return false }

// surveyBoundary finds the tensors that cross the boundary before block from, and the parameters and buffers used
// between it and block to. An empty from is the model's start, an empty to its end.
func (t *taskTrainer) surveyBoundary(tape *trace.Tape, blocks []string, from, to string) (*boundarySurvey, error) {
	scratch := trace.New(tape.GPU(), *tape.Rules(), trace.Options{})
	defer scratch.Finish()
	s := &boundarySurvey{known: map[any]bool{}, inside: from == ""}
	err := scratch.Try(func() {
		scratch.OnOtherRank(true, func() {
			t.net.MoveToDevice(scratch)
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
		t.addGates(scratch, blocks)
		t.onBlock = func(block string, _ []*trace.Tensor) {
			if entered[block]++; entered[block] > 1 {
				scratch.Raise(fmt.Errorf("block %s is called twice; pipeline parallelism (pp) needs blocks that "+
					"follow each other, so use another --strategy", block))
			}
			switch block {
			case from:
				scratch.EnterStage(trace.OwnStage)
				s.inside = true
			case to:
				s.inside = false
			}
		}
		t.net.SetTraining(true)
		scratch.StagePass(s, nil, nil)
		if from != "" {
			scratch.EnterStage(trace.EarlierStages)
		}
		f := scratch.Frame()
		_, result := t.computeForward(NewSession(scratch, t.c), f)
		s.result = StageTensor{DType: result.DType(), Shape: slices.Clone(result.Shape())}
		f.End()
		t.onBlock = nil
		s.parameters = lists.Filter(t.net.Parameters, func(p *nn.Parameter) bool { return s.known[p.Storage()] })
		s.buffers = lists.Filter(t.net.Buffers, func(b *nn.Buffer) bool { return s.known[b.Storage()] })
	})
	return s, err
}

// newStage creates the stage with the blocks from one up to another.
func (t *taskTrainer) newStage(tape *trace.Tape, blocks []string, from, to string) (*Stage, error) {
	s, err := t.surveyBoundary(tape, blocks, from, to)
	if err != nil {
		return nil, err
	}
	l := &stageLayers{t: t, tape: tape, from: from, to: to, numbers: s.numbers, skipped: trace.OtherStagesCalls{}}
	for _, p := range s.parameters {
		p.IsElsewhere = false
	}
	for _, b := range s.buffers {
		b.IsElsewhere = false
	}
	out := &Stage{Inputs: s.crossings, Examples: append(slices.Clip(s.crossings), s.result)}
	if to != "" {
		behind, err := t.surveyBoundary(tape, blocks, to, "")
		if err != nil {
			return nil, err
		}
		out.Outputs = behind.crossings
		out.Examples = slices.Concat(out.Inputs, out.Outputs)
	}
	out.Trained = func() []*trace.Tensor { return Tensors(Trainable(s.parameters)) }
	out.Forward = func(s *Session, _ int, received []*trace.Tensor) *MicroBatchPass { return l.forward(s, received) }
	out.applyStrategy = func(s *Session) *Ranks {
		own := blocks[max(0, slices.Index(blocks, from)):]
		if to != "" {
			own = own[:slices.Index(own, to)]
		}
		r := t.shardStage(s, own)
		l.root, out.Finish = r.Wrappers[""], r.finish
		out.Trained = func() []*trace.Tensor { return r.Parameters }
		return r
	}
	return out, nil
}

// forward runs the model's code for the blocks of the stage.
func (l *stageLayers) forward(s *Session, received []*trace.Tensor) *MicroBatchPass {
	inputs := map[uint32]*trace.Tensor{}
	for i, x := range received {
		inputs[l.numbers[i]] = x
	}
	l.pass, l.outs = &MicroBatchPass{}, map[any]int{}
	l.tape.StagePass(l, inputs, l.skipped)
	root := cmp.Or[trace.Wrapper](l.root, noWrapper{})
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
	loss, result := l.t.computeForward(s, f)
	if l.to == "" {
		root.Leave([]*trace.Tensor{loss})
		l.pass.Loss, l.pass.Result = l.tape.Hold(loss), l.tape.Hold(result)
	}
	f.End()
	l.t.onBlock = nil
	l.tape.StagePass(nil, nil, nil)
	return l.pass
}

func (l *stageLayers) Receive(x *trace.Tensor) {
	l.tape.Raise(fmt.Errorf("a pipeline stage reads a tensor of shape %v from another stage than the one before it; "+
		"use another --strategy than pp", x.Shape()))
}

func (l *stageLayers) ReceiveLeaf(x *trace.Tensor) {
	l.pass.Roots = append(l.pass.Roots, l.tape.Hold(x))
}

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

// pipelineTrainer trains a pipeline, whose schedules have no validation. It implements [models.RankDescriber].
type pipelineTrainer struct{ t *taskTrainer }

func (s pipelineTrainer) Counts() models.Counts { return s.t.Counts() }

func (s pipelineTrainer) Record(tape *trace.Tape, steps int) error {
	return s.t.recordPipeline(tape, steps)
}

// setComputeType sets the data type of all weights to the one in which the ranks of a stage compute and send. The
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
			if !p.IsElsewhere {
				p.DType = was[i]
			}
		}
	}
}

// pipelineParameters returns the trained parameters of a rank's stages, and the parameters whose gradients are clipped,
// after sharding.
func (t *taskTrainer) pipelineParameters(s *Session, p *Pipeline) (trained, clipped []*trace.Tensor) {
	if !t.c.Strategy.SharesStages(t.c.GPUs) {
		own := slices.DeleteFunc(slices.Clone(t.net.Parameters), func(p *nn.Parameter) bool { return p.IsElsewhere })
		return Tensors(Trainable(own)), Tensors(own)
	}
	t.parallelizeAll(s.Tape)
	for _, st := range p.stages {
		trained = append(trained, st.applyStrategy(s).Parameters...)
	}
	s.Tape.Mark("wrap")
	return trained, trained
}

func (t *taskTrainer) recordPipeline(tape *trace.Tape, steps int) error {
	return tape.Try(func() {
		blocks := t.wrappedBlocks()
		for _, p := range t.net.Parameters {
			p.IsElsewhere = true
		}
		for _, b := range t.net.Buffers {
			b.IsElsewhere = true
		}
		own := t.setComputeType()
		t.addGates(tape, blocks)
		p, err := NewPipeline(tape, t.c, blocks, func(from, to string) (*Stage, error) {
			return t.newStage(tape, blocks, from, to)
		})
		if err != nil {
			tape.Raise(err)
		}
		own()
		t.placeModel(tape)
		tape.Mark("model")
		s := NewSession(tape, t.c)
		tape.AutocastAlone()
		trained, clipped := t.pipelineParameters(s, p)
		opt, err := p.Optimizer(s, t.c, defaultOptimizer, trained)
		if err != nil {
			tape.Raise(err)
		}
		if !t.clipsGradients() {
			clipped = nil
		}
		p.Prepare(func() { t.task.Load(tape, int64(t.c.Batch)) })
		tape.Mark("batch")
		for range tape.Steps(steps) {
			t.net.SetTraining(true)
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

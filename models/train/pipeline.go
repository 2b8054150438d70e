package train

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Pipeline holds the stages of one pipeline rank: one, or several in an interleaved schedule
// (torch.distributed.pipelining).
type Pipeline struct {
	tape     *trace.Tape
	micro    int
	gpipe    bool
	schedule []distributed.PipelineAction
	stages   []*Stage
	first    bool // one of the stages is the model's first
	// unsent are passes whose outputs are still being sent to the next stage.
	unsent []*MicroBatchPass
	// sent are gradients that are being sent to the previous stage.
	sent []*trace.Tensor
}

// Stage is one stage of a pipeline (PipelineStage).
type Stage struct {
	// Last reports whether the stage computes the loss.
	Last bool
	// Inputs come from the previous stage. Outputs go to the next one.
	Inputs, Outputs []StageTensor
	// Examples are the example inputs and outputs with which PipelineStage is created, and which it keeps.
	Examples []StageTensor
	// Forward runs micro-batch i on the received tensors.
	Forward func(s *Session, i int, received []*trace.Tensor) *MicroBatchPass
	// Trained returns the stage's trained parameters.
	Trained func() []*trace.Tensor
	// Finish ends the backward passes of all micro-batches; nil if there is nothing to do.
	Finish func()
	// applyStrategy applies the strategy among the ranks of the stage.
	applyStrategy func(s *Session) *Ranks

	received [][]*trace.Tensor // buffers of received inputs, by micro-batch
	grads    [][]*trace.Tensor // buffers of received gradients of the outputs
	passes   []*MicroBatchPass
	results  []*trace.Tensor // the last stage's results, until the next step
	// graph are the tensors that autograd graphs of losses hold after backward, if the loop keeps the losses of all
	// micro-batches in a list until the step ends.
	graph            []*trace.Tensor
	pendingBackwards int // number of backward passes still to run
}

// StageTensor is a tensor that one pipeline stage sends to another.
type StageTensor struct {
	DType trace.DType
	Shape []int64
	// NeedsGrad reports whether the next stage sends back the tensor's gradient.
	NeedsGrad bool
}

// MicroBatchPass holds the tensors of a micro-batch between forward and backward.
type MicroBatchPass struct {
	// Roots are the leaf tensors whose gradients are sent back.
	Roots []*trace.Tensor
	// Outs are the tensors to send, in the order of the stage's outputs.
	Outs []*trace.Tensor
	// Result and Loss are set by the last stage. Scores are the tensors from which its loss was computed, if the
	// schedule keeps them.
	Result, Loss *trace.Tensor
	Scores       []*trace.Tensor
}

// NewPipeline creates the stages of the case's rank and divides the blocks among them. If a rank has several stages,
// their numbers differ by the number of ranks. stage creates the stage of the blocks from "from" up to, not
// including, "to"; an empty from is the model's start, an empty to its end.
func NewPipeline(tape *trace.Tape, c models.Case, blocks []string,
	stage func(from, to string) (*Stage, error),
) (*Pipeline, error) {
	s, ranks, each := c.Strategy, int(c.Strategy.PipelineRanks(c.GPUs)), c.Strategy.StagesOfRank()
	cuts, err := StageStarts(c, blocks)
	if err != nil {
		return nil, err
	}
	rank := int(*s.Rank) / (c.GPUs / ranks)
	p := &Pipeline{tape: tape, micro: s.MicroBatches(c.GPUs), gpipe: s.Schedule == "gpipe"}
	p.schedule = distributed.PipelineSchedule(s.Schedule, p.micro, ranks, rank)
	if s.Schedule == models.Interleaved {
		if rounds := distributed.MicroBatchRounds(p.micro, ranks); p.micro%rounds != 0 {
			return nil, fmt.Errorf("%d micro-batches (micro=) cannot be divided among %d ranks in %d rounds, as "+
				"schedule=interleaved requires; use a multiple of the number of ranks", p.micro, ranks, rounds)
		}
		p.schedule = distributed.InterleavedSchedule(p.micro, ranks, rank, each)
	}
	for i := range each {
		at := i*ranks + rank
		st, err := stage(cuts[at], cuts[at+1])
		if err != nil {
			return nil, err
		}
		st.Last, p.first = cuts[at+1] == "", p.first || at == 0
		p.stages = append(p.stages, st)
	}
	return p, nil
}

// StageStarts returns the first block of each stage, and an entry for the end of the model. The first and the last
// entry are empty.
func StageStarts(c models.Case, blocks []string) ([]string, error) {
	s := c.Strategy
	stages := int(s.PipelineRanks(c.GPUs)) * s.StagesOfRank()
	if len(blocks) < stages {
		return nil,
			fmt.Errorf("a pipeline of %d stages needs a block in each, but the model has only %d blocks; use fewer "+
				"GPUs or stages", stages, len(blocks))
	}
	out := make([]string, stages+1)
	if len(s.Split) == 0 {
		for i := 1; i < stages; i++ {
			out[i] = blocks[len(blocks)*i/stages]
		}
		return out, nil
	}
	if len(s.Split) != stages-1 {
		return nil, fmt.Errorf("split: %d stages need %d cuts between them, but split=%s has %d", stages, stages-1,
			strings.Join(s.Split, "+"), len(s.Split))
	}
	last := 0
	for i, name := range s.Split {
		at := slices.Index(blocks, name)
		if n, err := strconv.Atoi(name); err == nil && n < len(blocks) {
			at = n
		}
		switch {
		case at < 0:
			return nil, fmt.Errorf("split: unknown block %s; the blocks are %s to %s, or 0 to %d", name, blocks[0],
				blocks[len(blocks)-1], len(blocks)-1)
		case at <= last:
			return nil, fmt.Errorf("split: after the cut %s a stage has no blocks; every stage needs at least one, "+
				"and the cuts must be in order", name)
		}
		last, out[i+1] = at, blocks[at]
	}
	return out, nil
}

// Optimizer returns the optimizer of the rank's parameters.
func (p *Pipeline) Optimizer(s *Session, c models.Case, own optim.Config,
	trained []*trace.Tensor,
) (*optim.Optimizer, error) {
	if len(trained) == 0 {
		return nil, fmt.Errorf("rank %d has a stage without trained parameters, and PyTorch's optimizers refuse an "+
			"empty list; train more, or use fewer stages", *c.Strategy.Rank)
	}
	return s.OptimizerOfTensors(c, own, nil, trained)
}

// Prepare allocates the example inputs and outputs of the stages and, by load, the batch of every micro-batch. An
// output with the shape and type of an input shares its example.
func (p *Pipeline) Prepare(load func()) {
	for _, st := range p.stages {
		f := p.tape.Frame()
		for i, x := range st.Examples {
			if !slices.ContainsFunc(st.Examples[:i], x.hasSameShape) {
				example := f.Bind(p.tape.New("zeros", program.Batch, x.DType, x.Shape...))
				if !p.receivesLate() { // older stages keep their examples
					p.tape.Hold(example)
				}
			}
		}
		f.End()
	}
	if p.first && !p.receivesLate() { // also the first stage's inputs have an example
		load()
	}
	for range p.micro {
		load()
	}
}

func (c StageTensor) hasSameShape(other StageTensor) bool {
	return c.DType == other.DType && slices.Equal(c.Shape, other.Shape)
}

// receivesLate reports whether stages allocate received tensors on arrival and free tensors after sending.
func (p *Pipeline) receivesLate() bool { return p.tape.Rules().StagesReceiveLate }

func (p *Pipeline) newBuffers(of []StageTensor, c program.Class) (out []*trace.Tensor) {
	for _, x := range of {
		b := p.tape.Hold(p.tape.New("empty_memory_format", c, x.DType, x.Shape...))
		if x.NeedsGrad && c == program.Activations {
			b.Leaf()
		}
		out = append(out, b)
	}
	return out
}

// allocateBuffers allocates buffers for the tensors from other stages, for every micro-batch.
func (p *Pipeline) allocateBuffers() {
	for _, st := range p.stages {
		st.passes = make([]*MicroBatchPass, p.micro)
		st.received, st.grads = make([][]*trace.Tensor, p.micro), make([][]*trace.Tensor, p.micro)
	}
	if p.receivesLate() {
		return
	}
	for _, st := range p.stages {
		for i := range p.micro {
			st.received[i] = p.newBuffers(st.Inputs, program.Activations)
		}
	}
	for _, st := range p.stages {
		for i := range p.micro {
			st.grads[i] = p.newBuffers(st.Outputs, program.Gradients)
		}
	}
}

// Run records the forward and backward passes of a step.
func (p *Pipeline) Run(s *Session) {
	if p.stages[0].passes == nil {
		p.allocateBuffers()
	}
	for _, st := range p.stages {
		p.releaseAll(&st.results)
		st.pendingBackwards = p.micro
	}
	for _, a := range p.schedule {
		st := p.stages[a.Stage]
		if !a.Backward {
			p.forward(st, s, a.Micro)
			continue
		}
		p.backward(st, s, a.Micro)
		if len(p.stages) > 1 {
			if !p.receivesLate() { // the schedule of several stages keeps nothing that it sends
				p.releaseAll(&p.sent)
			}
			if st.pendingBackwards--; st.pendingBackwards == 0 {
				p.scaleGradients(st)
			}
		}
	}
	p.releaseAll(&p.sent)
	p.tape.Mark("backward")
	// the value of step(), which is dropped at once
	if st := p.stages[len(p.stages)-1]; st.Last && st.results[0].NDim() > 0 {
		f := p.tape.Frame()
		p.tape.NoGrad(func() { f.Bind(trace.Cat(0, st.results...)) })
		f.End()
	}
	if len(p.stages) == 1 {
		p.scaleGradients(p.stages[0])
	}
}

// scaleGradients ends the backward passes of a stage and divides its gradients by the number of micro-batches.
func (p *Pipeline) scaleGradients(st *Stage) {
	if st.Finish != nil {
		st.Finish()
	}
	for _, x := range st.Trained() {
		if x.Grad() != nil {
			trace.Update("div__Scalar", 1, x.Grad())
		}
	}
}

// EndStep frees losses and their autograd graphs.
func (p *Pipeline) EndStep() {
	for _, st := range p.stages {
		p.releaseAll(&st.graph)
	}
}

func (p *Pipeline) releaseAll(xs *[]*trace.Tensor) {
	p.tape.Release(*xs...)
	*xs = nil
}

func (p *Pipeline) forward(st *Stage, s *Session, i int) {
	if p.receivesLate() {
		st.received[i] = p.newBuffers(st.Inputs, program.Activations)
	}
	for _, x := range st.received[i] {
		p.tape.Collective(program.Receive, 2, x, nil)
	}
	pass := st.Forward(s, i, st.received[i])
	if !p.gpipe {
		p.releaseSent()
	}
	for _, x := range pass.Outs {
		p.tape.Collective(program.Send, 2, nil, x)
	}
	// the schedule of several stages waits after the backward of the outputs
	if p.receivesLate() && !st.Last && len(p.stages) == 1 {
		p.unsent = append(p.unsent, pass)
	}
	if pass.Result != nil {
		st.results = append(st.results, pass.Result)
	}
	st.passes[i] = pass
}

// releaseSent frees outputs that have been sent; backward starts at the operators that computed them.
func (p *Pipeline) releaseSent() {
	for _, pass := range p.unsent {
		for i, x := range pass.Outs {
			if x.RequiresGrad() {
				pass.Outs[i] = x.GradientEdge()
				p.tape.Release(x)
			}
		}
		pass.Outs = slices.DeleteFunc(pass.Outs, func(x *trace.Tensor) bool {
			if !x.RequiresGrad() {
				p.tape.Release(x)
			}
			return !x.RequiresGrad()
		})
	}
	p.unsent = nil
}

func (p *Pipeline) backward(st *Stage, s *Session, i int) {
	pass := st.passes[i]
	st.passes[i] = nil
	if p.gpipe {
		p.releaseSent()
	}
	if p.receivesLate() {
		st.grads[i] = p.newBuffers(lists.Filter(st.Outputs, func(c StageTensor) bool { return c.NeedsGrad }),
			program.Gradients)
	}
	p.releaseSent()
	if st.Last {
		s.Backward(pass.Loss)
		p.tape.Release(pass.Loss)
		st.keepLossGraph(p.tape, pass, i)
		p.releaseAll(&pass.Scores)
	} else {
		var roots, grads []*trace.Tensor
		for k, x := range pass.Outs {
			if !x.RequiresGrad() {
				continue
			}
			if p.receivesLate() { // only these have buffers
				k = len(grads)
			}
			p.tape.Collective(program.Receive, 2, st.grads[i][k], nil)
			roots, grads = append(roots, x), append(grads, st.grads[i][k])
		}
		trace.Backward(roots, grads)
		p.releaseAll(&pass.Outs)
	}
	var sent []*trace.Tensor
	for _, x := range pass.Roots {
		if g := x.TakeGrad(); g != nil {
			p.tape.Collective(program.Send, 2, nil, g)
			sent = append(sent, g)
		}
	}
	p.releaseAll(&pass.Roots)
	if p.receivesLate() {
		p.releaseAll(&st.received[i])
		p.releaseAll(&st.grads[i])
	}
	if !p.receivesLate() || len(p.stages) == 1 { // it waits for gradients at the end
		p.releaseAll(&p.sent)
	}
	p.sent = append(p.sent, sent...)
}

// keepLossGraph keeps the tensors from outside the stage that a loss's graph holds: the micro-batch's received inputs,
// through their AccumulateGrad nodes. A loss that the stage computes itself is detached after backward (detach_).
func (st *Stage) keepLossGraph(t *trace.Tape, pass *MicroBatchPass, i int) {
	for k, x := range st.received[i] {
		if len(pass.Scores) > 0 && st.Inputs[k].NeedsGrad {
			st.graph = append(st.graph, t.Hold(x))
		}
	}
}

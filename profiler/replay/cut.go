package replay

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// ReplayableSteps are the training steps of a program, cut where a training loop loads its next batch. There a
// [StepLoop] can continue with the steps of another program of the same model, whose batches have another length.
type ReplayableSteps struct {
	setup *actionList
	// steps holds the recorded steps. The last represents all later ones; the first is different, since it allocates
	// the optimizer's state.
	steps []cutStep
}

func (s *ReplayableSteps) stepAt(n int) *cutStep { return &s.steps[min(n, len(s.steps)-1)] }

// A cutStep is a training step: its first micro-batch, one that represents all others, and the rest after them.
type cutStep struct {
	batches []*actionList
	rest    *actionList
}

// batch returns the actions of the i-th micro-batch.
func (s *cutStep) batch(i int) *actionList { return s.batches[min(i, len(s.batches)-1)] }

// An actionList is a section of a program with its own numbering of buffers.
type actionList struct {
	actions []action
	// buffersIn are the buffers that live when the section begins, buffersOut the buffers that live when it ends, in
	// the order of their allocation.
	buffersIn, buffersOut []uint32
	buffers               []program.Buffer
}

// An action is an instruction that changes the memory; its argument is the index of a buffer of the section.
type action struct {
	kind   program.Kind
	buffer uint32
}

// ActionCount returns the number of allocations and frees of the last step.
func (s *ReplayableSteps) ActionCount() int {
	n := 0
	last := s.stepAt(len(s.steps))
	for _, p := range append(slices.Clone(last.batches), last.rest) {
		n += len(p.actions)
	}
	return n
}

// CutSteps cuts a recording of two or more training steps, each with the given number of micro-batches. A recording
// with two micro-batches also serves steps with more.
func CutSteps(p *program.Program, microBatches int) (*ReplayableSteps, error) {
	if microBatches < 1 {
		return nil, fmt.Errorf("replay: a step of %d micro-batches: need at least 1", microBatches)
	}
	c := &cutter{program: p}
	s := &ReplayableSteps{}
	from := 0
	for i, in := range p.Instructions {
		if in.Kind != program.MarkPhase {
			continue
		}
		phase := p.Phases[in.Arg]
		if i+1 < len(p.Instructions) && c.nextStep(i+1) == phase.Step {
			continue
		}
		switch {
		case phase.Step < 0:
			s.setup = c.part(from, i+1)
		default:
			s.steps = append(s.steps, c.step(from, i+1, microBatches))
		}
		from = i + 1
	}
	if c.err == nil && (s.setup == nil || len(s.steps) < 2) {
		c.err = errors.New("the recording needs a set-up and two training steps; record more steps")
	}
	if c.err != nil {
		return nil, fmt.Errorf("replay: %w", c.err)
	}
	if !s.areEqual() {
		return nil, ErrStepsDiffer
	}
	return s, nil
}

// ErrStepsDiffer reports that the last step of a recording does not end with the buffers that it began with, so that it
// cannot represent further steps. A recording of more steps may be steady.
var ErrStepsDiffer = errors.New("the last recorded step does not end with the buffers it began with; record more steps")

// areEqual reports whether the last step, which represents all later ones, leaves as many buffers of each class.
func (s *ReplayableSteps) areEqual() bool {
	count := func(p *actionList, numbers []uint32) (n [program.NumClasses]int) {
		for _, b := range numbers {
			n[p.buffers[b].Class]++
		}
		return n
	}
	step := s.stepAt(len(s.steps))
	first, last := step.batches[0], step.rest
	return count(first, first.buffersIn) == count(last, last.buffersOut)
}

// A cutter walks through a program once.
type cutter struct {
	program *program.Program
	// live are the buffers that live at the current instruction, in the order of their allocation.
	live []uint32
	err  error
}

// nextStep returns the step of the first phase that ends at an instruction or after it; no step if none does.
func (c *cutter) nextStep(from int) int {
	const none = -2
	for _, in := range c.program.Instructions[from:] {
		if in.Kind == program.MarkPhase {
			return c.program.Phases[in.Arg].Step
		}
	}
	return none
}

// step cuts the instructions of a step after the backward pass of each micro-batch.
func (c *cutter) step(from, to, microBatches int) cutStep {
	var s cutStep
	if microBatches > 1 {
		for _, end := range c.backwardStarts(from, to, microBatches) {
			s.batches = append(s.batches, c.part(from, end))
			from = end
		}
	}
	s.rest = c.part(from, to)
	if microBatches == 1 {
		s.batches, s.rest = []*actionList{s.rest}, &actionList{}
		s.rest.buffersIn, s.rest.buffers = s.batches[0].remaining()
		s.rest.buffersOut = s.rest.buffersIn
	}
	return s
}

// remaining returns the buffers that live after a part, numbered from zero.
func (p *actionList) remaining() (numbers []uint32, buffers []program.Buffer) {
	for i, b := range p.buffersOut {
		numbers, buffers = append(numbers, uint32(i)), append(buffers, p.buffers[b])
	}
	return numbers, buffers
}

// backwardStarts returns the ends of the micro-batches' backward passes, of which each may have several.
func (c *cutter) backwardStarts(from, to, microBatches int) []int {
	var ends []int
	for i, in := range c.program.Instructions[from:to] {
		if in.Kind == program.MarkPhase && c.program.Phases[in.Arg].Name == "backward" {
			ends = append(ends, from+i+1)
		}
	}
	each := len(ends) / microBatches
	if each == 0 || len(ends)%microBatches != 0 {
		c.err = fmt.Errorf("the %d backward passes of a step cannot be divided among %d micro-batches",
			len(ends), microBatches)
		return nil
	}
	var last []int
	for i := each - 1; i < len(ends); i += each {
		last = append(last, ends[i])
	}
	return last
}

// part copies a range of instructions out of the program.
func (c *cutter) part(from, to int) *actionList {
	p := &actionList{}
	number := make(map[uint32]uint32, len(c.live))
	add := func(buffer uint32) uint32 {
		n := uint32(len(p.buffers))
		number[buffer] = n
		p.buffers = append(p.buffers, c.program.Buffers[buffer])
		return n
	}
	for _, b := range c.live {
		p.buffersIn = append(p.buffersIn, add(b))
	}
	dead := map[uint32]bool{}
	for _, in := range c.program.Instructions[from:to] {
		switch in.Kind {
		case program.Alloc:
			p.actions = append(p.actions, action{in.Kind, add(in.Arg)})
			c.live = append(c.live, in.Arg)
		case program.Free:
			n, lives := number[in.Arg]
			if !lives {
				c.err = fmt.Errorf("buffer %d is freed but not allocated", in.Arg)
				return p
			}
			p.actions = append(p.actions, action{in.Kind, n})
			dead[in.Arg] = true
		case program.EmptyCache:
			p.actions = append(p.actions, action{kind: in.Kind})
		}
	}
	live := c.live[:0:0]
	for _, b := range c.live {
		if !dead[b] {
			live = append(live, b)
			p.buffersOut = append(p.buffersOut, number[b])
		}
	}
	c.live = live
	return p
}

package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// StepLoop is a training loop over batches of different lengths. It executes steps of several programs one after
// another in one allocator, whose cache is kept between steps as in training.
type StepLoop struct {
	heap *allocator.Allocator
	// live are the live blocks by class, in the order of the last executed program. Blocks that this program does not
	// have come last.
	live   [program.NumClasses][]holding
	blocks []*allocator.Block // of the part that is carried out
	steps  int                // that were carried out
}

// A holding is a live block of the loop, with its requested size in bytes.
type holding struct {
	block *allocator.Block
	bytes int64
}

// NewLoop makes a loop on the memory source of the options, to which it releases nothing, without Timeline and Hooks.
func NewLoop(o Options) (*StepLoop, error) {
	heap, err := o.allocator()
	if err != nil {
		return nil, err
	}
	return &StepLoop{heap: heap}, nil
}

// Step runs one training step, with a program for each micro-batch. The first call also sets up the model and allocates
// the optimizer's state. An allocation that does not fit is an [*allocator.OOMError] and ends the loop.
func (l *StepLoop) Step(ctx context.Context, batches ...*ReplayableSteps) error {
	if len(batches) == 0 {
		return errors.New("replay: a step needs at least one micro-batch")
	}
	if l.steps == 0 {
		if err := l.execute(ctx, batches[0].setup); err != nil {
			return err
		}
	}
	for i, s := range batches {
		if err := l.execute(ctx, s.stepAt(l.steps).batch(i)); err != nil {
			return err
		}
	}
	err := l.execute(ctx, batches[len(batches)-1].stepAt(l.steps).rest)
	l.steps++
	return err
}

// Stats returns the allocator's statistics, with the peaks since the start of the loop.
func (l *StepLoop) Stats() allocator.Stats { return l.heap.Stats() }

func (l *StepLoop) execute(ctx context.Context, p *actionList) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := l.receiveBuffers(p)
	if err != nil {
		return err
	}
	for _, a := range p.actions {
		switch a.kind {
		case program.Alloc:
			if l.blocks[a.buffer], err = l.malloc(p.buffers[a.buffer]); err != nil {
				return err
			}
		case program.Free:
			l.heap.Free(l.blocks[a.buffer])
			l.blocks[a.buffer] = nil
		default:
			if err := l.heap.EmptyCache(); err != nil {
				return err
			}
		}
	}
	l.keepBuffers(p)
	return nil
}

func (l *StepLoop) malloc(b program.Buffer) (*allocator.Block, error) {
	return l.heap.MallocOn(allocator.Stream(b.Stream), b.Bytes)
}

// receiveBuffers assigns a live block to each buffer that is live at the start of a section. Buffers of a class have
// the same order in all programs of a model. Blocks without a buffer in the section stay in l.live.
func (l *StepLoop) receiveBuffers(p *actionList) error {
	var known [program.NumClasses]int
	l.blocks = append(l.blocks[:0], make([]*allocator.Block, len(p.buffers))...)
	for _, n := range p.buffersIn {
		b := p.buffers[n]
		lives := &l.live[b.Class]
		at := known[b.Class]
		known[b.Class]++
		if at >= len(*lives) { // a workspace that other lengths have no need of
			block, err := l.malloc(b)
			if err != nil {
				return err
			}
			*lives = append(*lives, holding{block, b.Bytes})
		}
		h := &(*lives)[at]
		if h.bytes != b.Bytes {
			if err := l.resizeHolding(h, b); err != nil {
				return err
			}
		}
		l.blocks[n] = h.block
	}
	for class, n := range known {
		l.live[class] = append(l.live[class][:0:0], l.live[class][n:]...)
	}
	return nil
}

// resizeHolding handles a buffer whose size differs in this section. A new batch is allocated before the old one is
// freed. Other buffers of the last step keep their sizes. Weights and states must have equal sizes.
func (l *StepLoop) resizeHolding(h *holding, b program.Buffer) error {
	switch b.Class {
	case program.Batch:
		block, err := l.malloc(b)
		if err != nil {
			return err
		}
		l.heap.Free(h.block)
		*h = holding{block, b.Bytes}
		return nil
	case program.Weights, program.OptimizerState:
		return fmt.Errorf("replay: %v of %d bytes, before of %d bytes: the programs record different models", b.Class,
			b.Bytes, h.bytes)
	default:
		return nil
	}
}

// keepBuffers stores the blocks that are live after a section, followed by the blocks that the section does not have.
func (l *StepLoop) keepBuffers(p *actionList) {
	var live [program.NumClasses][]holding
	for _, n := range p.buffersOut {
		b := p.buffers[n]
		live[b.Class] = append(live[b.Class], holding{l.blocks[n], b.Bytes})
	}
	for class := range live {
		l.live[class] = append(live[class], l.live[class]...)
	}
	l.blocks = l.blocks[:0]
}

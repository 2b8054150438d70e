package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// Loop is a training loop over batches of different lengths: steps of several programs, one after the other in one
// allocator, whose cache stays between them as it does in training.
type Loop struct {
	heap *allocator.Allocator
	// live holds the live blocks by class, in the order of the last executed program; blocks unknown to it come last.
	live   [program.NumClasses][]holding
	blocks []*allocator.Block // of the part that is carried out
	steps  int                // that were carried out
}

// A holding of the loop is a block with its requested size in bytes.
type holding struct {
	block *allocator.Block
	bytes int64
}

// NewLoop makes a loop on the memory that the options name; it returns no memory to it. Timeline and Hooks have no
// effect here.
func NewLoop(o Options) (*Loop, error) {
	heap, err := o.allocator()
	if err != nil {
		return nil, err
	}
	return &Loop{heap: heap}, nil
}

// Step runs a training step with a program for each micro-batch. The first call also sets up the model, and makes the
// optimizer's state. An allocation that does not fit is an [*allocator.OOMError] and ends the loop.
func (l *Loop) Step(ctx context.Context, batches ...*Steps) error {
	if len(batches) == 0 {
		return errors.New("replay: a step needs at least one micro-batch")
	}
	if l.steps == 0 {
		if err := l.carryOut(ctx, batches[0].setup); err != nil {
			return err
		}
	}
	for i, s := range batches {
		if err := l.carryOut(ctx, s.at(l.steps).batch(i)); err != nil {
			return err
		}
	}
	err := l.carryOut(ctx, batches[len(batches)-1].at(l.steps).rest)
	l.steps++
	return err
}

// Stats returns the allocator's statistics, with peaks since the loop began.
func (l *Loop) Stats() allocator.Stats { return l.heap.Stats() }

// carryOut executes a part.
func (l *Loop) carryOut(ctx context.Context, p *part) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := l.enter(p)
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
	l.leave(p)
	return nil
}

func (l *Loop) malloc(b program.Buffer) (*allocator.Block, error) {
	return l.heap.MallocOn(allocator.Stream(b.Stream), b.Bytes)
}

// enter finds the block of each buffer that is allocated when a part begins: buffers of a class have the same order in
// all programs of a model. Blocks unknown to the part stay in l.live.
func (l *Loop) enter(p *part) error {
	var known [program.NumClasses]int
	l.blocks = append(l.blocks[:0], make([]*allocator.Block, len(p.buffers))...)
	for _, n := range p.enter {
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
			if err := l.change(h, b); err != nil {
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

// change handles a buffer whose size differs in this part. A new batch is allocated before the old one is freed. Other
// buffers of the last step keep their sizes; weights and state must not differ.
func (l *Loop) change(h *holding, b program.Buffer) error {
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

// leave stores the blocks that live at the end of a part, before blocks that the part does not know.
func (l *Loop) leave(p *part) {
	var live [program.NumClasses][]holding
	for _, n := range p.leave {
		b := p.buffers[n]
		live[b.Class] = append(live[b.Class], holding{l.blocks[n], b.Bytes})
	}
	for class := range live {
		l.live[class] = append(live[class], l.live[class]...)
	}
	l.blocks = l.blocks[:0]
}

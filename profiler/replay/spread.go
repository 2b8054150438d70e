package replay

import (
	"context"
	"math/rand/v2"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// PeakSpread is the range of a program's peak reserved bytes under small changes: another order of frees, other sizes
// if a batch's sizes are only known approximately, and the opposite order of addresses. A real run differs from its
// recording in such details, and a small difference may cost a whole segment more.
type PeakSpread struct {
	Low  int64 `json:"low"`
	High int64 `json:"high"`
	// OtherOrder is the peak of allocated bytes with addresses in the opposite order. Larger is the peak with larger
	// convolution workspaces; zero if their sizes are known.
	OtherOrder int64 `json:"other"`
	Larger     int64 `json:"larger,omitempty"`
}

// The perturbations. Sizes that depend on the batch may be scaled, as if samples were a little longer or shorter. One
// free in lateFreeShare is delayed by up to maxLateFree allocations, as if Python or another stream released a tensor
// late.
const (
	lateFreeShare = 20
	maxLateFree   = 16
)

var perturbedSizes = [...]float64{.985, .99, .995, 1.005, 1.01, 1.015}

// MeasureSpread replays a program several times without a memory limit: unchanged, with addresses in the opposite
// order, with the order of frees changed (and sizes, if sizes is set), and with convolution workspaces enlarged by the
// given bytes. rising is the unchanged order of addresses. Equal programs have equal spreads.
func MeasureSpread(
	ctx context.Context, p *program.Program, config allocator.Config, sizes, rising bool, workspace int64,
) (PeakSpread, error) {
	var reserved, allocated [len(perturbedSizes) + 2]int64
	n := len(reserved)
	if workspace == 0 || !slices.ContainsFunc(p.Sites, isConvolution) {
		n--
	}
	all, ctx := errgroup.WithContext(ctx)
	events, most := memoryEvents(p, n == len(reserved))
	for i := range n {
		memory, r := allocator.NewMemory(unlimitedBytes, 0), perturbedReplay{events: events, scale: 1}
		memory.Rising = rising == (i != len(perturbedSizes))
		switch {
		case i > len(perturbedSizes):
			r.workspace = workspace
		case i < len(perturbedSizes):
			r.chance = rand.NewPCG(uint64(i), 0)
			if sizes {
				r.scale = perturbedSizes[i]
			}
		}
		all.Go(func() error {
			heap, err := allocator.New(memory, config)
			if err != nil {
				return err
			}
			defer heap.Release()
			heap.CountBytesOnly()
			r.heap, r.blocks = heap, make([]*allocator.Block, most)
			err = r.run(ctx)
			reserved[i] = heap.Stats().ReservedBytes[allocator.AllPools].Peak
			allocated[i] = heap.Stats().AllocatedBytes[allocator.AllPools].Peak
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return PeakSpread{}, err
	}
	other := len(perturbedSizes)
	return PeakSpread{slices.Min(reserved[:n]), slices.Max(reserved[:n]), allocated[other], allocated[other+1]}, nil
}

// isConvolution reports whether a workspace with this site belongs to a convolution.
func isConvolution(s program.Site) bool { return s.Native == "run_conv_plan" }

// An memoryEvent is an instruction that changes the memory, reduced to the fields that a perturbed replay needs.
type memoryEvent struct {
	kind program.Kind
	// scaled reports whether the size depends on the batch, convolution whether the buffer is a convolution workspace.
	scaled, convolution bool
	stream              program.Stream
	// place is the index of the block until it is freed; indices are reused.
	place uint32
	bytes int64
}

// memoryEvents returns a program's events, with convolution workspaces marked if workspaces is set, and the most
// places.
func memoryEvents(p *program.Program, workspaces bool) (events []memoryEvent, most int) {
	events, places := make([]memoryEvent, 0, len(p.Instructions)), make([]uint32, len(p.Buffers))
	var left []uint32
	for _, in := range p.Instructions {
		switch in.Kind {
		case program.Alloc:
			if len(left) == 0 {
				left = append(left, uint32(most))
				most++
			}
			b, last := &p.Buffers[in.Arg], len(left)-1
			places[in.Arg], left = left[last], left[:last]
			scaled := b.Class == program.Activations || b.Class == program.Batch || b.Class == program.Temporaries
			convolution := workspaces && !scaled && isConvolution(p.Sites[b.Site])
			events = append(events, memoryEvent{program.Alloc, scaled, convolution, b.Stream, places[in.Arg], b.Bytes})
		case program.Free:
			left = append(left, places[in.Arg])
			events = append(events, memoryEvent{kind: program.Free, place: places[in.Arg]})
		case program.EmptyCache:
			events = append(events, memoryEvent{kind: program.EmptyCache})
		}
	}
	return events, most
}

// perturbedReplay is a replay with one perturbation.
type perturbedReplay struct {
	events []memoryEvent
	heap   *allocator.Allocator
	scale  float64
	// workspace is the number of bytes added to convolution workspaces.
	workspace int64
	chance    *rand.PCG          // of late frees; nil for none
	blocks    []*allocator.Block // by place
	// late are the delayed frees. The first one happens before allocation number due; allocations counts the
	// allocations so far.
	late             []lateFree
	due, allocations uint64
}

// A lateFree is the free of a block, delayed until before the allocation with the given number.
type lateFree struct {
	block  *allocator.Block
	before uint64
}

func (r *perturbedReplay) run(ctx context.Context) (err error) {
	for i := range r.events {
		if i%cancelCheckInterval == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch e := &r.events[i]; e.kind {
		case program.Alloc:
			err = r.alloc(e)
		case program.Free:
			r.free(r.blocks[e.place])
		default:
			err = r.heap.EmptyCache()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *perturbedReplay) alloc(e *memoryEvent) (err error) {
	if r.allocations++; len(r.late) > 0 && r.due <= r.allocations {
		r.freeDue()
	}
	bytes := e.bytes
	switch {
	case e.scaled:
		bytes = max(1, int64(float64(bytes)*r.scale))
	case e.convolution:
		bytes += r.workspace
	}
	r.blocks[e.place], err = r.heap.MallocOn(allocator.Stream(e.stream), bytes)
	return err
}

// freeDue performs the frees that were delayed until now, in their order.
func (r *perturbedReplay) freeDue() {
	left := r.late[:0]
	for _, f := range r.late {
		if f.before <= r.allocations {
			r.heap.Free(f.block)
			continue
		}
		if len(left) == 0 || f.before < r.due {
			r.due = f.before
		}
		left = append(left, f)
	}
	r.late = left
}

func (r *perturbedReplay) free(b *allocator.Block) {
	if r.chance != nil {
		if n := r.chance.Uint64(); n%lateFreeShare == 0 {
			before := r.allocations + 2 + n/lateFreeShare%maxLateFree
			if len(r.late) == 0 || before < r.due {
				r.due = before
			}
			r.late = append(r.late, lateFree{b, before})
			return
		}
	}
	r.heap.Free(b)
}

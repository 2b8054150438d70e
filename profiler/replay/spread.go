package replay

import (
	"context"
	"math/rand/v2"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// Spread is the range of the reserved bytes of a program when the order of its frees, and where they are not known
// to the byte its sizes, are perturbed a little, or addresses come in the other order. A real run differs from its
// recording in such details, and the caching allocator may answer a small difference with a whole segment.
type Spread struct {
	Low  int64 `json:"low"`
	High int64 `json:"high"`
	// Other is the peak of allocated bytes where addresses come in the other order, Larger where workspaces of
	// convolutions are larger; zero where their sizes are known.
	Other  int64 `json:"other"`
	Larger int64 `json:"larger,omitempty"`
}

// The perturbations. Sizes that depend on the batch may be scaled, as if samples were a little longer or shorter. One
// free in lateOf comes after up to lateBy further allocations, as where Python or another stream releases a tensor
// late.
const (
	lateOf = 20
	lateBy = 16
)

var perturbedSizes = [...]float64{.985, .99, .995, 1.005, 1.01, 1.015}

// SpreadOf replays a program on memory without a limit whose addresses rise or fall, with the order of its frees
// perturbed, and with its sizes perturbed where a batch's sizes are not known to the byte; once as it is, with
// addresses in the other order; and once with workspaces of convolutions that are larger by so many bytes, if any.
// Equal programs have equal spreads.
func SpreadOf(ctx context.Context, p *program.Program, config allocator.Config, sizes, rising bool, workspace int64) (
	Spread, error,
) {
	var reserved, allocated [len(perturbedSizes) + 2]int64
	n := len(reserved)
	if workspace == 0 || !slices.ContainsFunc(p.Sites, isConvolution) {
		n--
	}
	all, ctx := errgroup.WithContext(ctx)
	for i := range n {
		memory, r := allocator.NewMemory(noLimit, 0), perturbed{program: p, scale: 1}
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
			r.heap, r.blocks = heap, make([]*allocator.Block, len(p.Buffers))
			err = r.run(ctx)
			reserved[i] = heap.Stats().ReservedBytes[allocator.All].Peak
			allocated[i] = heap.Stats().AllocatedBytes[allocator.All].Peak
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return Spread{}, err
	}
	other := len(perturbedSizes)
	return Spread{slices.Min(reserved[:n]), slices.Max(reserved[:n]), allocated[other], allocated[other+1]}, nil
}

// isConvolution reports whether a workspace of the site serves a convolution.
func isConvolution(s program.Site) bool { return s.Native == "run_conv_plan" }

// perturbed is a replay in which something is different.
type perturbed struct {
	program *program.Program
	heap    *allocator.Allocator
	scale   float64
	// workspace is by how many bytes workspaces of convolutions are larger.
	workspace int64
	chance    *rand.PCG          // of late frees; nil for none
	blocks    []*allocator.Block // by buffer
	// late are frees that are put off, and allocations is how many there were.
	late        []lateFree
	allocations uint64
}

// A lateFree is the free of a block that comes before an allocation of that number.
type lateFree struct {
	block  *allocator.Block
	before uint64
}

func (r *perturbed) run(ctx context.Context) (err error) {
	for i, in := range r.program.Instructions {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch in.Kind {
		case program.Alloc:
			err = r.alloc(in.Arg)
		case program.Free:
			r.free(in.Arg)
		case program.EmptyCache:
			err = r.heap.EmptyCache()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *perturbed) alloc(buffer uint32) (err error) {
	r.allocations++
	due := r.late[:0]
	for _, f := range r.late {
		if f.before > r.allocations {
			due = append(due, f)
			continue
		}
		r.heap.Free(f.block)
	}
	r.late = due
	b := &r.program.Buffers[buffer]
	bytes := b.Bytes
	if b.Class == program.Activations || b.Class == program.Batch || b.Class == program.Temporaries {
		bytes = max(1, int64(float64(bytes)*r.scale))
	} else if r.workspace > 0 && isConvolution(r.program.Sites[b.Site]) {
		bytes += r.workspace
	}
	r.blocks[buffer], err = r.heap.MallocOn(allocator.Stream(b.Stream), bytes)
	return err
}

func (r *perturbed) free(buffer uint32) {
	if r.chance != nil {
		if n := r.chance.Uint64(); n%lateOf == 0 {
			r.late = append(r.late, lateFree{r.blocks[buffer], r.allocations + 2 + n/lateOf%lateBy})
			return
		}
	}
	r.heap.Free(r.blocks[buffer])
}

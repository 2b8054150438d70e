package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// Launch records a kernel that reads and writes the given tensors and computes in the type of
// the first one it writes. A tensor that is input and output is listed on both sides. The caller
// may complete the returned op, which is nil if none was recorded.
func (t *Tape) Launch(w program.Work, flops int64, writes, reads []*Tensor) *program.Op {
	if t.autograd.hooks.unwinding || t.ranks.crossing() && t.crossesBoundary(reads) {
		return nil
	}
	if t.onEmptyRead != nil {
		t.fetch(reads)
	}
	p := &t.prog
	from := uint32(len(p.Operands))
	t.touch(reads)
	mid := uint32(len(p.Operands))
	t.touch(writes)
	precision := program.FP32
	if len(writes) > 0 {
		precision = writes[0].dtype.precision()
	}
	t.emit(program.Launch, uint32(len(p.Ops)))
	op := extend(&p.Ops)
	op.Work, op.Precision, op.FLOPs, op.Product, op.Stream, op.Group = w, precision, flops, 0, t.stream, 0
	op.Reads.From, op.Reads.To, op.Writes.From, op.Writes.To = from, mid, mid, uint32(len(p.Operands))
	op.Site = t.site()
	op.ChannelsLast = anyChannelsLast(writes) || anyChannelsLast(reads)
	return op
}

// anyChannelsLast reports whether one of some tensors is laid out with its channels last.
func anyChannelsLast(xs []*Tensor) bool {
	return slices.ContainsFunc(xs, func(x *Tensor) bool { return x != nil && x.channelsLast && !x.rowMajor })
}

// touch adds the operands of a launch.
func (t *Tape) touch(xs []*Tensor) {
	for _, x := range xs {
		if x != nil && !x.store.blank {
			operand := extend(&t.prog.Operands)
			operand.Buffer, operand.Bytes = x.store.buffer, min(x.Bytes(), x.store.bytes)
		}
	}
}

// setProduct makes an op a matrix product; op may be nil. Products of the same sizes follow each
// other closely, so a small hash table avoids adding most of them again.
func (t *Tape) setProduct(op *program.Op, p program.Product) {
	if op == nil {
		return
	}
	recent := &t.products[uint64(p.M+3*p.N+5*p.K+7*p.Batch)%uint64(len(t.products))]
	if *recent == 0 || t.prog.Products[*recent-1] != p {
		push(&t.prog.Products, p)
		*recent = uint32(len(t.prog.Products))
	}
	op.Product = *recent
}

// LaunchElementwise records a kernel that computes out element by element from ins.
func (t *Tape) LaunchElementwise(out *Tensor, flopsPerElement int64, ins ...*Tensor) {
	t.Launch(program.Elementwise, flopsPerElement*out.numel, []*Tensor{out}, ins)
}

// LaunchCopy records a copy, which may be a cast: the op has the precision of the narrower type.
func (t *Tape) LaunchCopy(out, in *Tensor) {
	op := t.Launch(program.Copy, 0, []*Tensor{out}, []*Tensor{in})
	if op != nil && (in.dtype == F16 || in.dtype == BF16) {
		op.Precision = in.dtype.precision()
	}
}

// LaunchFill records a kernel that fills out with numbers.
func (t *Tape) LaunchFill(out *Tensor) {
	t.Launch(program.Copy, 0, []*Tensor{out}, nil)
}

// Touched returns an operand of n elements of x, for a launch that does not process all of it.
func (x *Tensor) Touched(n int64) *Tensor {
	return x.Alias([]int64{min(n, x.numel)}, []int64{1}, x.offset)
}

// The temporary storage of CUB's device-wide algorithms: sizes as in dispatch_radix_sort.cuh and its siblings, tunings
// (tuning_radix_sort.cuh) by Rules.CUB. Offsets have 64 bits, as ATen's wrappers pass them.

// cubBlob returns the size of one allocation that holds several pieces
// (AliasTemporaries): each is aligned, and so can the start be.
func cubBlob(pieces ...int64) int64 {
	const align = 256
	return align - 1 + lists.Sum(pieces, func(p int64) int64 { return ceil.Multiple(p, align) })
}

// cubTile returns how many elements a block handles that is tuned to the given threads and items of four bytes
// (RegBoundScaling): wider elements get fewer items, and no more threads than 48 KiB of shared memory hold.
func cubTile(threads, items, width int64) int64 {
	items = max(1, items*4/max(4, width))
	return min(threads, ceil.Div(48<<10/(width*items), 32)*32) * items
}

// radixSort is the parameters that determine the storage of a radix sort.
type radixSort struct {
	n          int64
	key, value int64 // bytes; no value if 0
	bits       int   // of the key that are compared
}

const (
	radixBits   = 8 // per pass
	radixDigits = 1 << radixBits
)

// radixStorage returns the temporary storage of DeviceRadixSort.
func (b GPU) radixStorage(cub *CUB, s radixSort) int64 {
	width := max(s.key, s.value)
	if s.n <= cubTile(256, 19, width) {
		return 1 // one block does it all
	}
	passes := ceil.Div(int64(s.bits), radixBits)
	copies := int64(1) // the buffers that passes alternate with
	if passes <= 1 {
		copies = 0
	}
	keys, values := copies*s.n*s.key, copies*s.n*s.value
	threads, items := cub.radix(b, s)
	if items == 0 {
		return cubBlob(b.radixSpine(s)*8, s.n*s.key, s.n*s.value)
	}
	tile := cubTile(threads, items, width)
	portion := (1<<28 - 1) / tile * tile
	portions := ceil.Div(s.n, portion)
	blocks := ceil.Div(min(s.n, portion), tile)
	return cubBlob(portions*passes*radixDigits*8, blocks*radixDigits*4, keys, values, portions*passes*4)
}

// radixSpine returns the number of digit counts of a sort that sweeps its input up and down, on GPUs before Hopper for
// keys of less than four bytes: a row of digits for every block, five blocks for each that fits the GPU.
func (b GPU) radixSpine(s radixSort) int64 {
	const threads, subscription, scanTile = 512, 5, 512 * 23 / 2
	digits := int64(128)
	if s.key == 1 {
		digits = 32
	}
	blocks := int64(b.SMs) * (int64(b.ThreadsPerSM) / threads) * subscription
	return blocks*digits + scanTile
}

// reduceByCUB records a sum of 32-bit integers (DeviceReduce). One block sums a single tile;
// otherwise each of several times as many blocks as fit the GPU writes a partial sum.
func (t *Tape) reduceByCUB(sum, x *Tensor) {
	const threads, items, subscription = 256, 16, 5
	bytes := int64(1)
	if x.numel > threads*items {
		bytes = OnGPU(t, func(b GPU) int64 {
			return cubBlob(int64(b.SMs) * (int64(b.ThreadsPerSM) / threads) * subscription * sum.dtype.Size())
		})
	}
	t.scratchFor(bytes, x.numel, []*Tensor{sum}, []*Tensor{x})
}

// selectByCUB records the indices of the true elements of x (DeviceSelect), with the tiles tuned
// for flags and 64-bit integers.
func (t *Tape) selectByCUB(places, x, count *Tensor) { t.scanByCUB(places, x, 1280, count) }

// scanByCUB records a scan of x by tiles, each of which publishes its state.
func (t *Tape) scanByCUB(out, x *Tensor, tile int64, also ...*Tensor) {
	storage := cubBlob(tileState * (ceil.Div(x.numel, tile) + tilePadding))
	t.scratchFor(storage, x.numel, []*Tensor{out}, append([]*Tensor{x}, also...))
}

// scratchFor holds CUB's temporary storage while the kernels run that fill outs from ins.
func (t *Tape) scratchFor(bytes, n int64, outs, ins []*Tensor) {
	c := t.Begin(t.native)
	c.Let(t.scratch(bytes))
	t.Launch(program.Index, n, outs, ins)
	c.Finish()
}

// RadixSort sorts keys, by the given number of low bits, and values with them, nil for none.
func (t *Tape) RadixSort(sortedKeys, sortedValues, keys, values *Tensor, bits int) {
	s := radixSort{n: keys.numel, key: keys.dtype.Size(), bits: bits}
	if values != nil {
		s.value = values.dtype.Size()
	}
	passes := ceil.Div(int64(bits), radixBits)
	t.scratchFor(OnGPU(t, func(b GPU) int64 {
		return b.radixStorage(&t.rules.CUB, s)
	}), passes*s.n, []*Tensor{sortedKeys, sortedValues}, []*Tensor{keys, values})
}

// uniqueByKey records the starts of runs of equal sorted 64-bit keys, and their number. The keys
// themselves are not needed but are written.
func (t *Tape) uniqueByKey(keys, starts, count *Tensor) {
	c := t.Begin(t.native)
	unwanted := c.Let(t.Alloc(keys.dtype, keys.numel))
	tile := OnGPU(t, t.rules.CUB.UniqueTile.On)
	t.scratchFor(scanStorage(ceil.Div(keys.numel, tile)), keys.numel, []*Tensor{unwanted, starts, count},
		[]*Tensor{keys})
	c.Finish()
}

// scan records a prefix sum with the tuning for 64-bit integers.
func (t *Tape) scan(in, out *Tensor) {
	tile := OnGPU(t, t.rules.CUB.ScanTile.On)
	t.scratchFor(scanStorage(ceil.Div(in.numel, tile)), in.numel, []*Tensor{out}, []*Tensor{in})
}

// A tile of a scan publishes its state in words of this many bytes; there are as many more as a warp has lanes.
const tileState, tilePadding = 16, 32

// scanStorage returns the temporary storage of a scan over 64-bit integers.
func scanStorage(tiles int64) int64 { return cubBlob(cubBlob(tileState * (tiles + tilePadding))) }

// inclusiveSumByKey records a prefix sum of 32-bit integers, in place, that restarts at every key.
func (t *Tape) inclusiveSumByKey(x *Tensor) {
	tiles := ceil.Div(x.numel, 256*9)
	t.scratchFor(cubBlob(tileState*(tiles+tilePadding), 4*(tiles+1)), x.numel, []*Tensor{x}, []*Tensor{x})
}

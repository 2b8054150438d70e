package trace

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// The temporary storage of CUB's device-wide algorithms. Sizes are as in dispatch_radix_sort.cuh and similar files,
// tunings (tuning_radix_sort.cuh) as in Rules.CUB. Offsets have 64 bits, as ATen's wrappers pass them.

// cubBlob returns the size of one allocation for several buffers (AliasTemporaries), with padding to align each and the
// start.
func cubBlob(pieces ...int64) int64 {
	const align = 256
	return align - 1 + lists.Sum(pieces, func(p int64) int64 { return ceil.Multiple(p, align) })
}

// cubTile returns the number of elements of a block that is tuned to the given threads and items of four bytes
// (RegBoundScaling). Wider elements get fewer items, and threads are limited to 48 KiB of shared memory.
func cubTile(threads, items, width int64) int64 {
	items = max(1, items*4/max(4, width))
	return min(threads, ceil.Div(48<<10/(width*items), 32)*32) * items
}

// radixSort holds the parameters that determine the temporary storage of a radix sort.
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
func (gpu GPU) radixStorage(cub *CUB, s radixSort) int64 {
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
	threads, items := cub.radix(gpu, s)
	if items == 0 {
		return cubBlob(gpu.radixSpine(s)*8, s.n*s.key, s.n*s.value)
	}
	tile := cubTile(threads, items, width)
	portion := (1<<28 - 1) / tile * tile
	portions := ceil.Div(s.n, portion)
	blocks := ceil.Div(min(s.n, portion), tile)
	return cubBlob(portions*passes*radixDigits*8, blocks*radixDigits*4, keys, values, portions*passes*4)
}

// radixSpine returns the number of digit counters of a radix sort in several passes (GPUs before Hopper, keys of less
// than four bytes). Each block has a row of digits, and there are five times as many blocks as fit the GPU at a time.
func (gpu GPU) radixSpine(s radixSort) int64 {
	const threads, subscription, scanTile = 512, 5, 512 * 23 / 2
	digits := int64(128)
	if s.key == 1 {
		digits = 32
	}
	blocks := int64(gpu.SMs) * (int64(gpu.ThreadsPerSM) / threads) * subscription
	return blocks*digits + scanTile
}

// reduceByCUB records a sum of 32-bit integers (DeviceReduce). One block sums a single tile. For more tiles, several
// times as many blocks as fit the GPU each write a partial sum.
func (t *Tape) reduceByCUB(sum, x *Tensor) {
	const threads, items, subscription = 256, 16, 5
	bytes := int64(1)
	if x.numel > threads*items {
		bytes = GPUProperty(t, func(gpu GPU) int64 {
			return cubBlob(int64(gpu.SMs) * (int64(gpu.ThreadsPerSM) / threads) * subscription * sum.dtype.Size())
		})
	}
	t.scratchFor(bytes, x.numel, []*Tensor{sum}, []*Tensor{x})
}

// scanByCUB records a prefix scan of x by tiles, each of which publishes its state.
func (t *Tape) scanByCUB(out, x *Tensor, tile int64, also ...*Tensor) {
	storage := cubBlob(tileState * (ceil.Div(x.numel, tile) + tilePadding))
	t.scratchFor(storage, x.numel, []*Tensor{out}, append([]*Tensor{x}, also...))
}

// scratchFor allocates CUB's temporary storage while the kernels run that compute outs from ins.
func (t *Tape) scratchFor(bytes, n int64, outs, ins []*Tensor) {
	c := t.Begin(t.native)
	c.Bind(t.scratch(bytes))
	t.Launch(program.Index, n, outs, ins)
	c.Finish()
}

// RadixSort records a sort of keys by their lowest bits, which also reorders values (nil for none).
func (t *Tape) RadixSort(sortedKeys, sortedValues, keys, values *Tensor, bits int) {
	s := radixSort{n: keys.numel, key: keys.dtype.Size(), bits: bits}
	if values != nil {
		s.value = values.dtype.Size()
	}
	passes := ceil.Div(int64(bits), radixBits)
	t.scratchFor(GPUProperty(t, func(gpu GPU) int64 {
		return gpu.radixStorage(&t.rules.CUB, s)
	}), passes*s.n, []*Tensor{sortedKeys, sortedValues}, []*Tensor{keys, values})
}

// uniqueByKey records the starts of runs of equal sorted 64-bit keys, and their number. The kernel also writes the
// keys, which are not used.
func (t *Tape) uniqueByKey(keys, starts, count *Tensor) {
	c := t.Begin(t.native)
	unwanted := c.Bind(t.Alloc(keys.dtype, keys.numel))
	tile := GPUProperty(t, t.rules.CUB.UniqueTile.ForGPU)
	t.scratchFor(scanStorage(ceil.Div(keys.numel, tile)), keys.numel, []*Tensor{unwanted, starts, count},
		[]*Tensor{keys})
	c.Finish()
}

// scan records a prefix sum with the tuning for 64-bit integers.
func (t *Tape) scan(in, out *Tensor) {
	tile := GPUProperty(t, t.rules.CUB.ScanTile.ForGPU)
	t.scratchFor(scanStorage(ceil.Div(in.numel, tile)), in.numel, []*Tensor{out}, []*Tensor{in})
}

// tileState is the number of bytes in which a tile of a scan publishes its state, tilePadding the number of additional
// states (one for each lane of a warp).
const tileState, tilePadding = 16, 32

// scanStorage returns the temporary storage of a scan over 64-bit integers.
func scanStorage(tiles int64) int64 { return cubBlob(cubBlob(tileState * (tiles + tilePadding))) }

// inclusiveSumByKey records a prefix sum of 32-bit integers, in place, that restarts at every key.
func (t *Tape) inclusiveSumByKey(x *Tensor) {
	tiles := ceil.Div(x.numel, 256*9)
	t.scratchFor(cubBlob(tileState*(tiles+tilePadding), 4*(tiles+1)), x.numel, []*Tensor{x}, []*Tensor{x})
}

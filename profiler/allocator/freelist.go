package allocator

import "math/bits"

// A freeList is the set of free blocks of one pool and stream, ordered by size and then rank. It finds the best fit in
// constant time.
//
// Blocks are in bins by size: one bin for each multiple of 512 bytes up to 32 KiB, then 32 bins for each power of two.
// A bitmap marks the bins that are not empty. The entries of a bin are sorted in descending order, so the best fit is
// the last entry, and removing it moves nothing. Bins hold few blocks in practice, since free neighbors merge.
type freeList struct {
	filled [numBins / 64]uint64
	bins   [numBins]freeBin
}

// A bin holds its number of entries outside of the slice. Changing it writes no pointer, which would cost a write
// barrier of Go's garbage collector.
type freeBin struct {
	entries []freeEntry // the first count are in use
	count   int
}

func (b *freeBin) inUse() []freeEntry { return b.entries[:b.count] }

// freeEntry contains the sort key of its block, so a search does not read the block.
type freeEntry struct {
	size  int64
	rank  uint64
	block blockID
}

const (
	// binBits is the base-two logarithm of the number of bins for each power of two.
	binBits = 5
	// numBins is enough for blocks up to 32 TiB. Larger blocks share the last bin.
	numBins = 1024
)

// binOf returns the bin of a size. A larger size never has a lower bin.
func binOf(size int64) int {
	units := uint64(size) / minBlockSize
	shift := bits.Len64(units) - 1 - binBits
	if shift <= 0 {
		return int(units)
	}
	return min(shift<<binBits+int(units>>shift), numBins-1)
}

// reset empties the list and keeps its memory.
func (f *freeList) reset() {
	for at, ok := f.firstFrom(0); ok; at, ok = f.firstFrom(at.bin + 1) {
		f.bins[at.bin].count = 0
	}
	clear(f.filled[:])
}

// entryIndex is a position in a free list.
type entryIndex struct{ bin, index int }

func (f *freeList) insert(b *Block) {
	n := binOf(b.size)
	bin := &f.bins[n]
	i := position(bin.inUse(), b.size, b.rank)
	if bin.count == len(bin.entries) {
		bin.entries = append(bin.entries, freeEntry{})
		bin.entries = bin.entries[:cap(bin.entries)]
	}
	if i < bin.count {
		copy(bin.entries[i+1:bin.count+1], bin.entries[i:bin.count])
	}
	bin.entries[i] = freeEntry{b.size, b.rank, b.id}
	bin.count++
	f.filled[n/64] |= 1 << (n % 64)
}

func (f *freeList) remove(b *Block) {
	n := binOf(b.size)
	f.removeAt(entryIndex{n, position(f.bins[n].inUse(), b.size, b.rank) - 1})
}

func (f *freeList) removeAt(at entryIndex) {
	bin := &f.bins[at.bin]
	bin.count--
	if at.index < bin.count {
		copy(bin.entries[at.index:bin.count], bin.entries[at.index+1:])
	}
	if bin.count == 0 {
		f.filled[at.bin/64] &^= 1 << (at.bin % 64)
	}
}

// position returns the index of the first entry whose key is below (size, rank). An entry with this key is inserted
// there; if the list already contains one, that one is directly before.
func position(entries []freeEntry, size int64, rank uint64) int {
	lo, hi := 0, len(entries)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if e := &entries[mid]; e.size > size || e.size == size && e.rank >= rank {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// bestFit finds the smallest block of at least size bytes; among equal sizes, the one of the lowest rank.
func (f *freeList) bestFit(size int64) (at entryIndex, ok bool) {
	n := binOf(size)
	if i := position(f.bins[n].inUse(), size, 0); i > 0 {
		return entryIndex{n, i - 1}, true
	}
	return f.firstFrom(n + 1)
}

// next returns the position of the next block in the order of the list.
func (f *freeList) next(at entryIndex) (entryIndex, bool) {
	if at.index > 0 {
		return entryIndex{at.bin, at.index - 1}, true
	}
	return f.firstFrom(at.bin + 1)
}

// last returns the position of the largest block.
func (f *freeList) last() (at entryIndex, ok bool) {
	for word := len(f.filled) - 1; word >= 0; word-- {
		if w := f.filled[word]; w != 0 {
			return entryIndex{word*64 + bits.Len64(w) - 1, 0}, true
		}
	}
	return entryIndex{}, false
}

func (f *freeList) firstFrom(n int) (at entryIndex, ok bool) {
	if n >= numBins {
		return entryIndex{}, false
	}
	word := n / 64
	w := f.filled[word] >> (n % 64) << (n % 64)
	for w == 0 {
		if word++; word == len(f.filled) {
			return entryIndex{}, false
		}
		w = f.filled[word]
	}
	n = word*64 + bits.TrailingZeros64(w)
	return entryIndex{n, f.bins[n].count - 1}, true
}

func (f *freeList) blockAt(at entryIndex) blockID { return f.bins[at.bin].entries[at.index].block }

// forEach yields the blocks of the list in order. The list must not change meanwhile.
func (f *freeList) forEach(yield func(blockID) bool) {
	for at, ok := f.firstFrom(0); ok; at, ok = f.next(at) {
		if !yield(f.blockAt(at)) {
			return
		}
	}
}

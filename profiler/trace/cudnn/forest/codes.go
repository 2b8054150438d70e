package forest

import (
	_ "embed"
	"encoding/binary"
	"sync"
)

// A code identifies the prefix codes (as in Huffman coding) for one kind of symbol. Each context of the symbol has its
// own prefix code.
type code int

const (
	// questionCode encodes the feature of a comparison and its shape. The context is the parent's feature.
	questionCode code = iota
	// positionCode encodes with which cut a feature is compared, by the feature and the number of possible cuts.
	positionCode
	// rankCode encodes how recently a leaf's class was used. The context is the previous ranks.
	rankCode
	// stepCode encodes the cuts, in the contexts of [cutModel].
	stepCode
	// nameCode encodes the bytes of names. The context is the previous byte.
	nameCode
	// jumpCode encodes the number of bits of the length of a long branch.
	jumpCode
	numCodes
)

const (
	positions = 16
	rooms     = positions + 16
	ranks     = 32
	recent    = 9
	ascii     = 128
	longest   = 15 // bits of a symbol
)

// codeSizes are, for each code, the numbers of contexts and symbols, the number of different prefix codes that contexts
// share, and the number of bits up to which codes are looked up in a table.
var codeSizes = [numCodes]struct{ contexts, symbols, books, fast int }{
	questionCode: {2 * (Features + 1), Features * numShapes, 64, 9},
	positionCode: {Features * rooms, positions, 96, 6},
	rankCode:     {8 * 2 * recent * recent, ranks, 64, 7},
	stepCode:     {units * gapLengths, stepSymbols, 64, 8},
	nameCode:     {ascii, ascii, 16, 6},
	jumpCode:     {1, 32, 1, 5},
}

// book is the canonical prefix code of one context.
type book struct {
	count  [longest + 1]uint16 // symbols by their number of bits
	sorted []uint16            // symbols by their number of bits, then ascending
	fast   []uint16            // by the next bits: a symbol and, in the low four bits, the length of its code
	shift  int                 // of a word, to its index in fast
}

// tables has, for each code, the prefix code of each context (one byte each), and the number of bits of each symbol in
// each prefix code (four bits each). TestShippedTreesAreWrittenAsTheyAreRead learns them from all trees with the flag
// -learn.
//
//go:embed codes
var tables []byte

// codeBooks are the prefix codes of each code, and the index of each context's prefix code.
type codeBooks [numCodes]struct {
	contexts []byte
	books    []book
}

var shippedBooks = sync.OnceValue(func() *codeBooks { return newBooks(tables) })

func newBooks(tables []byte) *codeBooks {
	c := &codeBooks{}
	for i, size := range codeSizes {
		of := &c[i]
		of.contexts, tables = tables[:size.contexts], tables[size.contexts:]
		of.books = make([]book, size.books)
		lengths := make([]byte, size.symbols)
		at := 0
		for b := range of.books {
			for s := range lengths {
				lengths[s] = tables[at/2] >> (at % 2 * 4) & 15
				at++
			}
			of.books[b] = newBook(lengths, size.fast)
		}
		tables = tables[(at+1)/2:]
	}
	return c
}

func (c *codeBooks) book(of code, context int) *book { return &c[of].books[c[of].contexts[context]] }

// newBook makes a canonical prefix code from the number of bits of each symbol.
func newBook(lengths []byte, fast int) book {
	b := book{sorted: make([]uint16, len(lengths)), fast: make([]uint16, 1<<fast), shift: 64 - fast}
	for _, n := range lengths {
		b.count[n]++
	}
	var next [longest + 1]uint16
	for n := range longest {
		next[n+1] = next[n] + b.count[n]
	}
	for s, n := range lengths {
		b.sorted[next[n]] = uint16(s)
		next[n]++
	}
	at, filled := 0, 0
	for n := 1; n <= fast; n++ {
		for range b.count[n] {
			for range 1 << (fast - n) {
				b.fast[filled] = b.sorted[at]<<4 | uint16(n)
				filled++
			}
			at++
		}
	}
	return b
}

// reader reads bits, highest first. After the last bit it returns zeros.
type reader struct {
	b     []byte
	at    int
	books *codeBooks
}

func newReader(b []byte) *reader { return &reader{b: b, books: shippedBooks()} }

// fail marks the data as damaged; failed then returns true.
func (r *reader) fail() { r.at = 8*len(r.b) + 1 }

// failed reports whether more bits were read than there are.
func (r *reader) failed() bool { return r.at > 8*len(r.b) }

// peek returns at least the next 57 bits, as the highest bits of a word.
func (r *reader) peek() uint64 {
	from := min(r.at/8, len(r.b))
	if len(r.b)-from >= 8 {
		return binary.BigEndian.Uint64(r.b[from:]) << (r.at % 8)
	}
	var last [8]byte
	copy(last[:], r.b[from:])
	return binary.BigEndian.Uint64(last[:]) << (r.at % 8)
}

// bits reads a number of up to 57 bits.
func (r *reader) bits(n int) uint64 {
	v := r.peek() >> (64 - n)
	r.at += n
	return v
}

func (r *reader) symbol(c code, context int) int {
	b := r.books.book(c, context)
	word := r.peek()
	if e := b.fast[word>>b.shift]; e != 0 {
		r.at += int(e & 15)
		return int(e >> 4)
	}
	at, index := uint64(0), uint64(0)
	for n := 1; n <= longest; n++ {
		at = at<<1 | word>>63
		word <<= 1
		count := uint64(b.count[n])
		if at < count {
			r.at += n
			return int(b.sorted[index+at])
		}
		at -= count
		index += count
	}
	r.fail()
	return 0
}

// below reads a number below limit, written by [writer.below].
func (r *reader) below(limit int) int {
	long, short := widths(limit)
	v := int(r.bits(long - 1))
	if v >= short {
		v = v<<1 | int(r.bits(1)) - short
	}
	return v
}

// name reads a name up to its final zero byte.
func (r *reader) name() string {
	var name []byte
	for before := 0; !r.failed(); {
		if before = r.symbol(nameCode, before); before == 0 {
			break
		}
		name = append(name, byte(before))
	}
	return string(name)
}

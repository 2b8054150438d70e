package forest

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Branch is a node of an uncompressed decision tree. A node without Less and Other is a leaf.
type Branch struct {
	// Feature is the index of the feature to compare with Threshold: Less is the branch for smaller values, else Other.
	Feature     int
	Threshold   float32
	Less, Other *Branch
	// Class is the class that a leaf votes for.
	Class int
}

// TrainedForest is a forest to encode: trees over at most 65536 classes with ASCII names.
type TrainedForest struct {
	Classes []string
	Trees   []*Branch
}

// Leaf reports whether b is a leaf.
func (b *Branch) Leaf() bool { return b.Less == nil }

// thresholds appends the threshold of b and of each branch below to the list of the branch's feature. It skips NaN:
// every value is below it, so no comparison is needed.
func (b *Branch) thresholds(of *[Features][]float32) {
	if b.Leaf() {
		return
	}
	if b.Threshold == b.Threshold {
		of[b.Feature] = append(of[b.Feature], b.Threshold)
	}
	b.Less.thresholds(of)
	b.Other.thresholds(of)
}

// Append encodes forests that share their thresholds (cuts), as [DecodeCuts] and [Cuts.Decode] decode them, and appends
// them to b: the number of cuts and their bits; then for each forest the numbers of classes and trees, the names, and
// each tree. Numbers are varints. Names and trees are preceded by their length in bytes.
func Append(b []byte, forests ...TrainedForest) []byte {
	c := cutsOf(forests)
	w := newWriter()
	c.write(w)
	b = appendPart(binary.AppendUvarint(b, uint64(len(c.values))), w)
	for _, f := range forests {
		b = binary.AppendUvarint(b, uint64(len(f.Classes)))
		b = binary.AppendUvarint(b, uint64(len(f.Trees)))
		w := newWriter()
		f.writeNames(w)
		b = appendPart(b, w)
		for i := range f.Trees {
			w := newWriter()
			f.writeTree(w, i, c)
			b = appendPart(b, w)
		}
	}
	return b
}

func appendPart(b []byte, w *writer) []byte {
	return append(binary.AppendUvarint(b, uint64(len(w.b))), w.b...)
}

func (f *TrainedForest) writeNames(w *writer) {
	for _, name := range f.Classes {
		w.name(name)
	}
}

func (f *TrainedForest) writeTree(w *writer, i int, c *Cuts) {
	p := treeWriter{writer: w, classModel: newClassModel(len(f.Classes)), cuts: c, rooms: c.rooms(), first: i == 0}
	p.reset()
	p.root(f.Trees[i])
}

// treeWriter encodes a tree.
type treeWriter struct {
	*writer
	classModel
	cuts  *Cuts
	rooms cutRanges
	first bool
}

func (p *treeWriter) root(b *Branch) {
	if b = p.neededBranch(b); b.Leaf() {
		p.bits(0, 1)
		p.class(b, false)
		return
	}
	p.bits(1, 1)
	p.question(b, Features)
}

// neededBranch returns the first branch at or below b whose comparison is not already decided by the path to it.
func (p *treeWriter) neededBranch(b *Branch) *Branch {
	for !b.Leaf() {
		r := p.rooms[b.Feature]
		switch cut := p.cuts.find(b.Feature, b.Threshold); {
		case b.Threshold != b.Threshold || cut < r.low:
			b = b.Other
		case cut >= r.high:
			b = b.Less
		default:
			return b
		}
	}
	return b
}

// in returns the needed branch at or below b if the feature is restricted to a range of cuts.
func (p *treeWriter) in(feature int, r cutRange, b *Branch) *Branch {
	kept := p.rooms[feature]
	p.rooms[feature] = r
	b = p.neededBranch(b)
	p.rooms[feature] = kept
	return b
}

func (p *treeWriter) question(b *Branch, parent int) {
	r := p.rooms[b.Feature]
	cut := p.cuts.find(b.Feature, b.Threshold)
	below, above := cutRange{r.low, cut}, cutRange{cut + 1, r.high}
	less, other := p.in(b.Feature, below, b.Less), p.in(b.Feature, above, b.Other)
	shape := noLeaf
	switch {
	case less.Leaf() && other.Leaf():
		shape = bothLeaves
	case less.Leaf():
		shape = lessIsLeaf
	case other.Leaf():
		shape = otherIsLeaf
	}
	to, before := p.writer, p.classModel
	if shape == noLeaf {
		before = p.clone()
		p.writer = &writer{books: to.books, count: to.count}
		p.branch(b.Feature, below, less)
		if p.size > longBits {
			shape = longBranch
		}
	}
	first := p.writer
	p.writer = to
	p.symbol(questionCode, questionContext(parent, p.first), b.Feature*numShapes+shape)
	if r.high-r.low > 1 {
		position := r.position(cut)
		p.symbol(positionCode, r.context(b.Feature), position)
		r = r.rangeAt(position)
	}
	p.below(int(cut-r.low), int(r.high-r.low))
	switch shape {
	case bothLeaves:
		p.class(less, false)
		p.class(other, true)
	case lessIsLeaf:
		p.class(less, false)
		p.branch(b.Feature, above, other)
	case otherIsLeaf:
		p.class(other, false)
		p.branch(b.Feature, below, less)
	default:
		if shape == longBranch {
			p.jump(first.size)
			p.classModel = before
		}
		p.add(first)
		p.branch(b.Feature, above, other)
	}
}

// branch encodes the subtree after a comparison of a feature. r is the range of that feature's cuts that remains
// possible.
func (p *treeWriter) branch(feature int, r cutRange, b *Branch) {
	kept := p.rooms[feature]
	p.rooms[feature] = r
	p.question(b, feature)
	p.rooms[feature] = kept
}

func (p *treeWriter) class(b *Branch, sibling bool) {
	rank := slices.Index(p.order, uint16(b.Class))
	p.symbol(rankCode, p.context(sibling), min(rank, ranks-1))
	if rank >= ranks-1 {
		p.bits(uint64(rank), p.width())
	}
	p.use(rank)
}

// writer writes bits, highest first.
type writer struct {
	b     []byte
	size  int
	books *codeBooks
	count func(c code, context, symbol int) // nil or what sees each symbol
}

func newWriter() *writer { return &writer{books: shippedBooks()} }

// add appends the bits of another writer.
func (w *writer) add(o *writer) {
	for i := 0; i < o.size; i += 8 {
		n := min(8, o.size-i)
		w.bits(uint64(o.b[i/8]>>(8-n)), n)
	}
}

func (w *writer) bits(v uint64, n int) {
	for n--; n >= 0; n-- {
		if w.size%8 == 0 {
			w.b = append(w.b, 0)
		}
		w.b[w.size/8] |= byte(v>>n&1) << (7 - w.size%8)
		w.size++
	}
}

// jump writes the length in bits of a long branch.
func (w *writer) jump(size int) {
	digits := bits.Len(uint(size)) - 1
	w.symbol(jumpCode, 0, digits)
	w.bits(uint64(size)&(1<<digits-1), digits)
}

// name writes a name, followed by a zero byte.
func (w *writer) name(name string) {
	before := 0
	for _, c := range append([]byte(name), 0) {
		w.symbol(nameCode, before, int(c))
		before = int(c)
	}
}

// below writes a number below limit with the fewest bits that equal probabilities allow.
func (w *writer) below(v, limit int) {
	long, short := widths(limit)
	if v < short {
		w.bits(uint64(v), long-1)
		return
	}
	w.bits(uint64(v+short), long)
}

func (w *writer) symbol(c code, context, symbol int) {
	if w.count != nil {
		w.count(c, context, symbol)
	}
	b := w.books.book(c, context)
	v, index := 0, 0
	for n := 1; n <= longest; n++ {
		v <<= 1
		count := int(b.count[n])
		if at := slices.Index(b.sorted[index:index+count], uint16(symbol)); at >= 0 {
			w.bits(uint64(v+at), n)
			return
		}
		v += count
		index += count
	}
	panic("forest: symbol without a code")
}

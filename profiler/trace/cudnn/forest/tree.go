package forest

import (
	"math/bits"
	"slices"
	"sync"
)

// A shape tells which branches of a comparison are leaves. A leaf is encoded first, else the branch of lower values.
const (
	bothLeaves = iota
	lessIsLeaf
	otherIsLeaf
	noLeaf
	// longBranch is noLeaf with the length of the first branch in bits before it, so that readers can skip the branch.
	longBranch
	numShapes
)

// longBits is the number of bits above which a branch is long.
const longBits = 2048

// widths returns the bits of a number below a limit: numbers below short take one bit less than long bits.
func widths(limit int) (long, short int) {
	long = bits.Len(uint(limit))
	return long, 1<<long - limit
}

// cutRange is the range of cuts with which a comparison may compare a feature, after the comparisons on the path to it.
type cutRange struct{ low, high int32 }

func (r cutRange) context(feature int) int {
	n := int(r.high - r.low)
	if n < positions {
		return feature*rooms + n
	}
	return feature*rooms + positions - 1 + min(bits.Len(uint(n/positions)), rooms-positions)
}

func (r cutRange) position(cut int32) int {
	if n := int(r.high - r.low); n >= positions {
		return int(cut-r.low) * positions / n
	}
	return int(cut - r.low)
}

func (r cutRange) rangeAt(position int) cutRange {
	n := int(r.high - r.low)
	if n < positions {
		return cutRange{r.low + int32(position), r.low + int32(position) + 1}
	}
	edge := func(i int) int32 { return r.low + int32((i*n+positions-1)/positions) }
	return cutRange{edge(position), edge(position + 1)}
}

// cutRanges has the range of cuts of each feature that the next comparison may use.
type cutRanges [Features]cutRange

func (c *Cuts) rooms() (r cutRanges) {
	for f := range r {
		r[f] = cutRange{c.of[f], c.of[f+1]}
	}
	return r
}

// questionContext returns the context of a comparison whose parent compares a feature, or of the root ([Features]).
// Trees after the first use only about half of the features.
func questionContext(parent int, first bool) int {
	if first {
		return parent
	}
	return Features + 1 + parent
}

// classModel predicts the classes of leaves.
type classModel struct {
	order       []uint16 // of classes, the last used first
	last, other int      // ranks of the last two leaves
}

func newClassModel(classes int) classModel { return classModel{order: make([]uint16, classes)} }

func (m *classModel) clone() classModel { return classModel{slices.Clone(m.order), m.last, m.other} }

func (m *classModel) reset() {
	for c := range m.order {
		m.order[c] = uint16(c)
	}
	m.last, m.other = 0, 0
}

// context returns the context of the next leaf's rank. sibling reports whether it follows its parent's other leaf.
func (m *classModel) context(sibling bool) int {
	c := min(m.width(), 7) * 2
	if sibling {
		c++
	}
	return (c*recent+min(m.last, recent-1))*recent + min(m.other, recent-1)
}

// width returns the number of bits of a rank.
func (m *classModel) width() int { return bits.Len(uint(len(m.order))) }

// use returns the class at a rank and moves it to the front.
func (m *classModel) use(rank int) int {
	c := m.order[rank]
	copy(m.order[1:rank+1], m.order[:rank])
	m.order[0] = c
	m.last, m.other = rank, m.last
	return int(c)
}

// walker follows a path through a tree.
type walker struct {
	reader
	classModel
	cuts  *Cuts
	rooms cutRanges
	first bool
}

// begin starts to read a tree and reports whether it is a single leaf.
func (w *walker) begin(tree []byte, first bool) (leaf bool) {
	w.reader, w.rooms, w.first = *newReader(tree), w.cuts.rooms(), first
	w.reset()
	return w.bits(1) == 0
}

// walk returns the class that tree i chooses for x. If the tree is damaged, the class is arbitrary.
func (f *Forest) walk(w *walker, i int, x []float32) int {
	if w.begin(f.trees[i].packed, i == 0) {
		return w.class(false)
	}
	for parent := Features; ; {
		feature, shape, cut := w.question(parent)
		if w.failed() {
			return 0
		}
		less := x[feature] < w.cuts.values[cut]
		r := &w.rooms[feature]
		class := 0
		switch shape {
		case noLeaf:
			if !less {
				f.trees[i].skip(w, feature, cutRange{r.low, cut})
			}
		case longBranch:
			if length := w.jump(); !less {
				w.at += length
			}
		default:
			class = w.class(false)
		}
		switch {
		case shape == bothLeaves && !less:
			return w.class(true)
		case shape == bothLeaves, shape == lessIsLeaf && less, shape == otherIsLeaf && !less:
			return class
		case less:
			r.high = cut
		default:
			r.low = cut + 1
		}
		parent = feature
	}
}

// tree is an encoded tree, with the positions after branches that were skipped earlier.
type tree struct {
	packed []byte
	mutex  sync.RWMutex
	ends   map[int]branchEnd // by the place of the branch
}

// branchEnd is the position after a branch, with the state of classModel there.
type branchEnd struct {
	at int
	classModel
}

// skip moves w past the subtree after a comparison of a feature. left is the range of the feature's cuts that remains
// possible.
func (t *tree) skip(w *walker, parent int, left cutRange) {
	from := w.at
	t.mutex.RLock()
	e, known := t.ends[from]
	t.mutex.RUnlock()
	if known {
		w.at, w.last, w.other = e.at, e.last, e.other
		copy(w.order, e.order)
		return
	}
	w.branch(parent, left)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.ends == nil {
		t.ends = map[int]branchEnd{}
	}
	t.ends[from] = branchEnd{w.at, w.clone()}
}

// branch reads the subtree after a comparison of a feature. left is the range of the feature's cuts that remains
// possible.
func (w *walker) branch(parent int, left cutRange) {
	kept := w.rooms[parent]
	w.rooms[parent] = left
	feature, shape, cut := w.question(parent)
	if w.failed() {
		return
	}
	r := w.rooms[feature]
	less, other := cutRange{r.low, cut}, cutRange{cut + 1, r.high}
	switch shape {
	case bothLeaves:
		w.class(false)
		w.class(true)
	case lessIsLeaf:
		w.class(false)
		w.branch(feature, other)
	case otherIsLeaf:
		w.class(false)
		w.branch(feature, less)
	case longBranch:
		w.fail() // a branch that is skipped is not long
	case noLeaf:
		w.branch(feature, less)
		w.branch(feature, other)
	}
	w.rooms[parent] = kept
}

func (w *walker) question(parent int) (feature, shape int, cut int32) {
	s := w.symbol(questionCode, questionContext(parent, w.first))
	feature, shape = s/numShapes, s%numShapes
	r := w.rooms[feature]
	if r.high-r.low > 1 {
		r = r.rangeAt(w.symbol(positionCode, r.context(feature)))
	}
	if r.low >= min(r.high, w.rooms[feature].high) {
		w.fail()
		return 0, 0, 0
	}
	return feature, shape, r.low + int32(w.below(int(r.high-r.low)))
}

// jump reads the length of a long branch in bits.
func (w *walker) jump() int {
	digits := w.symbol(jumpCode, 0)
	return 1<<digits | int(w.bits(digits))
}

func (w *walker) class(sibling bool) int {
	rank := w.symbol(rankCode, w.context(sibling))
	if rank == ranks-1 {
		rank = int(w.bits(w.width()))
	}
	if rank >= len(w.order) {
		w.fail()
		return 0
	}
	return w.use(rank)
}

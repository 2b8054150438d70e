package forest

import (
	"math/bits"
	"slices"
	"sync"
)

// A shape tells which branches of a question are leaves. A leaf comes first, else the branch of lesser values.
const (
	bothLeaves = iota
	lessIsLeaf
	otherIsLeaf
	noLeaf
	// longBranch is noLeaf, and the number of bits of the first branch precedes it, so that it can be skipped unread.
	longBranch
	numShapes
)

// longBits is the number of bits above which a branch is long.
const longBits = 2048

// widths returns the bits of a number below a limit: numbers below short take one bit less than long.
func widths(limit int) (long, short int) {
	long = bits.Len(uint(limit))
	return long, 1<<long - limit
}

// cutRange is the cuts that a question may compare a feature with, after the questions on the path to it.
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

// part returns the cuts at a position.
func (r cutRange) part(position int) cutRange {
	n := int(r.high - r.low)
	if n < positions {
		return cutRange{r.low + int32(position), r.low + int32(position) + 1}
	}
	edge := func(i int) int32 { return r.low + int32((i*n+positions-1)/positions) }
	return cutRange{edge(position), edge(position + 1)}
}

// roomsOf are the cuts that the next question may compare each feature with.
type roomsOf [Features]cutRange

func (c *Cuts) rooms() (r roomsOf) {
	for f := range r {
		r[f] = cutRange{c.of[f], c.of[f+1]}
	}
	return r
}

// questionContext returns the context of a question whose parent asks about a feature, or of the root ([Features]).
// Trees after the first use about half of the features.
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

// context returns the context of the next leaf's rank; a sibling follows the other leaf of its parent.
func (m *classModel) context(sibling bool) int {
	c := min(m.width(), 7) * 2
	if sibling {
		c++
	}
	return (c*recent+min(m.last, recent-1))*recent + min(m.other, recent-1)
}

// width returns the number of bits of a rank.
func (m *classModel) width() int { return bits.Len(uint(len(m.order))) }

// use moves the class of a rank to the front, and returns it.
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
	rooms roomsOf
	first bool
}

// begin starts reading a tree, and reports whether it is a leaf.
func (w *walker) begin(tree []byte, first bool) (leaf bool) {
	w.reader, w.rooms, w.first = *newReader(tree), w.cuts.rooms(), first
	w.reset()
	return w.bits(1) == 0
}

// walk returns the class of tree i for x, any if the tree is damaged.
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

// tree is an encoded tree, with the positions after branches that were skipped before.
type tree struct {
	packed []byte
	mutex  sync.RWMutex
	ends   map[int]end // by the place of the branch
}

// end is the place after a branch, and the prediction of classes there.
type end struct {
	at int
	classModel
}

// skip moves w past a subtree below a question about a feature; left is the range of cuts of the feature that remains.
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
		t.ends = map[int]end{}
	}
	t.ends[from] = end{w.at, w.clone()}
}

// branch reads a subtree below a question about a feature; left is the range of cuts of the feature that remains.
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

// question reads a question.
func (w *walker) question(parent int) (feature, shape int, cut int32) {
	s := w.symbol(questionCode, questionContext(parent, w.first))
	feature, shape = s/numShapes, s%numShapes
	r := w.rooms[feature]
	if r.high-r.low > 1 {
		r = r.part(w.symbol(positionCode, r.context(feature)))
	}
	if r.low >= min(r.high, w.rooms[feature].high) {
		w.fail()
		return 0, 0, 0
	}
	return feature, shape, r.low + int32(w.below(int(r.high-r.low)))
}

// jump reads the number of bits of a long branch.
func (w *walker) jump() int {
	digits := w.symbol(jumpCode, 0)
	return 1<<digits | int(w.bits(digits))
}

// class reads a leaf.
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

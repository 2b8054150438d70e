package forest

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"
)

// Branch is a node of a tree that is built; without Less and Other it is a leaf.
type Branch struct {
	// Feature is compared with Threshold: Less if it is less, else Other.
	Feature     int
	Threshold   float32
	Less, Other *Branch
	// Class is a leaf's answer.
	Class int
}

// Leaf says whether b is a leaf.
func (b *Branch) Leaf() bool { return b.Less == nil }

// Leaves counts the leaves below b.
func (b *Branch) Leaves() int {
	if b.Leaf() {
		return 1
	}
	return b.Less.Leaves() + b.Other.Leaves()
}

// Merge renumbers the classes of the leaves below b, and joins neighbors whose
// classes become one.
func (b *Branch) Merge(classes []int) *Branch {
	if b.Leaf() {
		return &Branch{Class: classes[b.Class]}
	}
	less, other := b.Less.Merge(classes), b.Other.Merge(classes)
	if less.Leaf() && other.Leaf() && less.Class == other.Class {
		return less
	}
	return &Branch{Feature: b.Feature, Threshold: b.Threshold, Less: less, Other: other}
}

// thresholds adds those below b to the ones of each feature.
func (b *Branch) thresholds(cuts [][]float32) [][]float32 {
	if b.Leaf() {
		return cuts
	}
	for len(cuts) <= b.Feature {
		cuts = append(cuts, nil)
	}
	cuts[b.Feature] = append(cuts[b.Feature], b.Threshold)
	return b.Other.thresholds(b.Less.thresholds(cuts))
}

// New makes a forest of trees over classes, of which there are at most 65536.
func New(classes []string, trees ...*Branch) *Forest {
	f := &Forest{Classes: classes}
	var cuts [][]float32
	for _, b := range trees {
		cuts = b.thresholds(cuts)
	}
	for feature, c := range cuts {
		slices.Sort(c)
		for _, v := range slices.Compact(c) {
			f.cuts = append(f.cuts, byte(feature))
			f.cuts = binary.LittleEndian.AppendUint32(f.cuts, math.Float32bits(v))
		}
	}
	for _, b := range trees {
		f.trees = append(f.trees, f.flatten(b))
	}
	return f
}

// flatten lays a tree out level by level.
func (f *Forest) flatten(root *Branch) (t tree) {
	nodes := []*Branch{root}
	var questions, classes []int
	for i := 0; i < len(nodes); i++ {
		if i%blockNodes == 0 {
			t.blocks = binary.LittleEndian.AppendUint32(t.blocks, uint32(len(questions)))
			t.blocks = append(t.blocks, make([]byte, blockNodes/8)...)
		}
		b := nodes[i]
		if b.Leaf() {
			classes = append(classes, b.Class)
			continue
		}
		t.blocks[i/blockNodes*blockSize+4+i%blockNodes/8] |= 1 << (i % 8)
		questions = append(questions, f.find(b.Feature, b.Threshold))
		nodes = append(nodes, b.Less, b.Other)
	}
	cut, class := f.widths()
	t.questions, t.classes, t.count = pack(questions, cut), pack(classes, class), len(questions)
	return t
}

// find returns the number of a feature's cut.
func (f *Forest) find(feature int, threshold float32) int {
	return sort.Search(len(f.cuts)/cutSize, func(at int) bool {
		of, cut := f.cut(at)
		return of > feature || of == feature && !(cut < threshold)
	})
}

// numbers is a list of unsigned numbers that lie in bits one after the other, all equally wide.
type numbers struct {
	packed []byte // see packedSize
	width  int    // bits of a number, at most mostBits
}

// A number is read with the four bytes that it begins in, of which up to seven bits are those of the
// number before it.
const mostBits = 32 - 7

// packedSize returns how many bytes n numbers of that width take, so that four can be read at each.
func packedSize(n, width int) int { return n*width/8 + 4 }

// pack makes a list of values below 1<<width.
func pack(values []int, width int) numbers {
	p := numbers{make([]byte, packedSize(len(values), width)), width}
	for i, v := range values {
		at := p.packed[i*width/8:]
		binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)|uint32(v)<<(i*width%8))
	}
	return p
}

// at is number i.
func (p numbers) at(i int) int {
	bit := i * p.width
	return int(binary.LittleEndian.Uint32(p.packed[bit/8:])>>(bit%8)) & (1<<p.width - 1)
}

// Package forest holds decision trees that vote on one of a few classes, in a
// form that can be used as it lies in a file.
package forest

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// MostTrees is the most trees of a forest.
const MostTrees = 9

// Forest is a few decision trees that vote.
type Forest struct {
	// Classes are the names of the classes.
	Classes []string
	cuts    []byte // cutSize bytes each, ascending by feature, then by threshold
	trees   []tree
}

// tree is a binary tree, level by level. As every question has two branches, those
// of question j, counted from zero in this order, are the nodes 2j+1 (less) and
// 2j+2; so all that must be known of a node is whether it is a question, and
// which.
type tree struct {
	blocks    []byte  // of blockNodes nodes, see blockSize
	questions numbers // the cut that each question compares its feature with
	classes   numbers // of leaves
	count     int     // of questions
}

const (
	// A block has one bit for each of its nodes, set for questions, and before
	// them the number of questions in all blocks before, in 4 bytes.
	blockNodes = 64
	blockSize  = 4 + blockNodes/8
	// A cut is a feature, in one byte, and a threshold, in four.
	cutSize = 1 + 4
)

// node tells of node i whether it is a question, and how many questions come
// before it.
func (t *tree) node(i int) (question bool, before int) {
	block := t.blocks[i/blockNodes*blockSize:][:blockSize]
	word := binary.LittleEndian.Uint64(block[4:])
	bit := i % blockNodes
	before = int(binary.LittleEndian.Uint32(block)) + bits.OnesCount64(word&(1<<bit-1))
	return word>>bit&1 == 1, before
}

// leaf walks tree t down to a leaf, whose class it gives.
func (f *Forest) leaf(t *tree, x []float32) int {
	for i := 0; ; {
		question, j := t.node(i)
		if !question {
			return t.classes.at(i - j)
		}
		feature, threshold := f.cut(t.questions.at(j))
		i = 2*j + 1
		if x[feature] >= threshold {
			i++
		}
	}
}

func (f *Forest) cut(at int) (feature int, threshold float32) {
	c := f.cuts[at*cutSize:][:cutSize]
	return int(c[0]), math.Float32frombits(binary.LittleEndian.Uint32(c[1:]))
}

// widths returns the bits that name a cut and a class.
func (f *Forest) widths() (cut, class int) {
	return bits.Len(uint(max(len(f.cuts)/cutSize-1, 0))), bits.Len(uint(max(len(f.Classes)-1, 0)))
}

// Vote returns the class that most trees choose for x, of equals what the
// earliest tree does. Trees after a majority are not asked.
func (f *Forest) Vote(x []float32) int {
	var classes [MostTrees]int
	var votes [MostTrees]int
	best := 0
	for i := range f.trees {
		c := f.leaf(&f.trees[i], x)
		classes[i] = c
		at := slices.Index(classes[:], c)
		if votes[at]++; votes[at] > votes[best] || votes[at] == votes[best] && at < best {
			best = at
		}
		if 2*votes[best] > len(f.trees) {
			break
		}
	}
	return classes[best]
}

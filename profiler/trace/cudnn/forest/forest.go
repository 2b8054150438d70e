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
	cuts    [][]byte // by feature, ascending: 4 bytes each
	trees   []tree
}

// tree is a binary tree, level by level. As every question has two branches, those
// of question j, counted from zero in this order, are the nodes 2j+1 (less) and
// 2j+2; so all that must be known of a node is whether it is a question, and
// which.
type tree struct {
	blocks    []byte // of blockNodes nodes, see blockSize
	questions []byte // questionSize each
	classes   []byte // of leaves, classSize each
}

const (
	// A block has one bit for each of its nodes, set for questions, and before
	// them the number of questions in all blocks before, in 4 bytes.
	blockNodes = 64
	blockSize  = 4 + blockNodes/8
	// A question is a feature, in one byte, and which of that feature's cuts it
	// is compared with, in two.
	questionSize = 3
	// A leaf names a class in two bytes.
	classSize = 2
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

// question is question j: a feature and the number of a cut.
func (t *tree) question(j int) (feature, cut int) {
	q := t.questions[j*questionSize:][:questionSize]
	return int(q[0]), int(binary.LittleEndian.Uint16(q[1:]))
}

// class is that of leaf j.
func (t *tree) class(j int) uint16 {
	return binary.LittleEndian.Uint16(t.classes[j*classSize:])
}

// leaf walks tree t down.
func (f *Forest) leaf(t *tree, x []float32) uint16 {
	for i := 0; ; {
		question, j := t.node(i)
		if !question {
			return t.class(i - j)
		}
		feature, at := t.question(j)
		i = 2*j + 1
		if x[feature] >= f.cut(feature, at) {
			i++
		}
	}
}

// cut is a threshold of a feature.
func (f *Forest) cut(feature, at int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(f.cuts[feature][4*at:]))
}

// Trees is the number of trees.
func (f *Forest) Trees() int { return len(f.trees) }

// Vote returns the class that most trees choose for x, of equals what the
// earliest tree does. Trees after a majority are not asked.
func (f *Forest) Vote(x []float32) int {
	var classes [MostTrees]uint16
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
	return int(classes[best])
}

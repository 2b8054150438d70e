// Package forest implements decision trees that vote on one of a few classes. Trees stay compressed in memory: a vote
// follows one path of each tree and skips the rest.
package forest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	// Features is the number of features of a case; the prefix codes were learned for these features.
	Features = 65
	// MostTrees is the largest number of trees in a forest.
	MostTrees = 9
)

// Forest is a few decision trees that vote.
type Forest struct {
	// Classes are the names of the classes.
	Classes []string
	cuts    *Cuts
	trees   []tree
}

// Decode decodes the next forest that [Append] encoded with these cuts, and returns the remaining bytes. The forest
// refers to b.
func (c *Cuts) Decode(b []byte) (*Forest, []byte, error) {
	d := decoder{b: b}
	f := &Forest{Classes: make([]string, d.count("classes", math.MaxUint16+1)), cuts: c}
	f.trees = make([]tree, d.count("trees", MostTrees))
	names := newReader(d.readPart("names"))
	for i := range f.Classes {
		f.Classes[i] = names.name()
	}
	for i := range f.trees {
		f.trees[i].packed = d.readPart("tree")
	}
	switch {
	case d.err != nil:
	case len(f.trees) == 0:
		d.err = errors.New("the forest has no trees")
	case len(f.Classes) == 0:
		d.err = errors.New("the forest has no classes")
	case names.failed():
		d.err = errors.New("names of classes are missing")
	}
	if d.err != nil {
		return nil, nil, fmt.Errorf("forest: %w", d.err)
	}
	return f, d.b, nil
}

// decoder reads counts and byte sequences until it finds an error; afterwards it returns empty values.
type decoder struct {
	b   []byte
	err error
}

// count reads a number of things, which is at most most, and at most eight for each remaining byte.
func (d *decoder) count(things string, most int) int {
	n, size := binary.Uvarint(d.b)
	switch {
	case d.err != nil:
		return 0
	case size <= 0:
		d.err = fmt.Errorf("the number of %s is missing", things)
		return 0
	}
	d.b = d.b[size:]
	if most = min(most, 8*len(d.b)); n > uint64(most) {
		d.err = fmt.Errorf("%d %s: need at most %d", n, things, most)
		return 0
	}
	return int(n)
}

// readPart reads a length and that number of bytes.
func (d *decoder) readPart(name string) []byte {
	n, size := binary.Uvarint(d.b)
	switch have := len(d.b) - max(size, 0); {
	case d.err != nil:
	case size <= 0:
		d.err = fmt.Errorf("the length of the %s is missing", name)
	case n > uint64(have):
		d.err = fmt.Errorf("the data of %s end after %d bytes of %d", name, have, n)
	default:
		p := d.b[size:][:n:n]
		d.b = d.b[size+int(n):]
		return p
	}
	return nil
}

// Vote returns the class that most trees choose for the features x. In a tie, the choice of the earliest tree wins. It
// stops once a majority is reached.
func (f *Forest) Vote(x []float32) int {
	var classes, votes [MostTrees]int
	best := 0
	w := walker{cuts: f.cuts, classModel: newClassModel(len(f.Classes))}
	for i := range f.trees {
		c := f.walk(&w, i, x)
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

package forest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/vprof/vprof/internal/ceil"
)

// Append appends f to b, in the form that Decode takes: the classes, the cuts of
// each feature, and the parts of each tree, each part with its length before it.
func (f *Forest) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(f.Classes)))
	for _, c := range f.Classes {
		b = appendPart(b, []byte(c))
	}
	b = binary.AppendUvarint(b, uint64(len(f.cuts)))
	for _, c := range f.cuts {
		b = appendPart(b, c)
	}
	b = binary.AppendUvarint(b, uint64(len(f.trees)))
	for _, t := range f.trees {
		b = appendPart(b, t.blocks)
		b = appendPart(b, t.questions)
		b = appendPart(b, t.classes)
	}
	return b
}

func appendPart(b, part []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

// Decode makes a forest of what Append wrote, and returns what follows it. The
// forest goes on using b. The trees may ask about that many features.
func Decode(b []byte, features int) (*Forest, []byte, error) {
	d := decoder{b: b}
	f := &Forest{Classes: make([]string, d.count("classes", math.MaxUint16+1))}
	for i := range f.Classes {
		f.Classes[i] = string(d.part("name", 1))
	}
	f.cuts = make([][]byte, d.count("features", features))
	for i := range f.cuts {
		f.cuts[i] = d.part("cuts", 4)
	}
	f.trees = make([]tree, d.count("trees", MostTrees))
	for i := range f.trees {
		f.trees[i] = tree{d.part("blocks", blockSize), d.part("questions", questionSize), d.part("classes", classSize)}
	}
	if d.err == nil && len(f.trees) == 0 {
		d.err = errors.New("no tree")
	}
	for i := 0; i < len(f.trees) && d.err == nil; i++ {
		if err := f.check(&f.trees[i]); err != nil {
			d.err = fmt.Errorf("tree %d: %w", i, err)
		}
	}
	if d.err != nil {
		return nil, nil, fmt.Errorf("forest: %w", d.err)
	}
	return f, d.b, nil
}

// check tells why a tree cannot be walked, if it cannot.
func (f *Forest) check(t *tree) error {
	questions, leaves := len(t.questions)/questionSize, len(t.classes)/classSize
	nodes := questions + leaves
	if leaves != questions+1 || len(t.blocks) != ceil.Div(nodes, blockNodes)*blockSize {
		return fmt.Errorf("%d blocks for %d questions and %d leaves", len(t.blocks)/blockSize, questions, leaves)
	}
	before := 0
	for i := 0; i < nodes; i += blockNodes {
		if _, j := t.node(i); j != before {
			return fmt.Errorf("block at node %d: %d questions before it, not %d", i, j, before)
		}
		end := min(i+blockNodes, nodes)
		if end > 2*before { // else all hang on questions before the block
			for k := i; k < end; k++ {
				if _, j := t.node(k); k > 2*j {
					return fmt.Errorf("node %d hangs on none", k)
				}
			}
		}
		question, j := t.node(end - 1)
		if before = j; question {
			before++
		}
	}
	if before != questions {
		return fmt.Errorf("%d questions, not %d", before, questions)
	}
	for j := range questions {
		feature, at := t.question(j)
		if feature >= len(f.cuts) || at >= len(f.cuts[feature])/4 {
			return fmt.Errorf("question %d: no cut %d of feature %d", j, at, feature)
		}
	}
	for j := range leaves {
		if c := t.class(j); int(c) >= len(f.Classes) {
			return fmt.Errorf("leaf %d: class %d of %d", j, c, len(f.Classes))
		}
	}
	return nil
}

// decoder reads parts until something is wrong; then all are empty.
type decoder struct {
	b   []byte
	err error
}

// count reads how many things follow. Each takes a byte or more.
func (d *decoder) count(things string, most int) int {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.fail("the number of %s is missing", things)
		return 0
	}
	d.b = d.b[size:]
	if n > uint64(min(most, len(d.b))) {
		d.fail("%d %s, at most %d", n, things, min(most, len(d.b)))
		return 0
	}
	return int(n)
}

// part reads a part of things of that size, which has its length before it.
func (d *decoder) part(things string, size int) []byte {
	n := d.count("bytes of "+things, math.MaxInt)
	if n%size != 0 {
		d.fail("%d bytes of %s, each %d", n, things, size)
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.b = nil
}

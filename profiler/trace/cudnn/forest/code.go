package forest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/vprof/vprof/internal/ceil"
)

// Append appends f to b, in the form that Decode takes: the classes, the cuts, and of each
// tree the number of questions, from which follows how long its parts are.
func (f *Forest) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(f.Classes)))
	for _, c := range f.Classes {
		b = append(binary.AppendUvarint(b, uint64(len(c))), c...)
	}
	b = append(binary.AppendUvarint(b, uint64(len(f.cuts)/cutSize)), f.cuts...)
	b = binary.AppendUvarint(b, uint64(len(f.trees)))
	for _, t := range f.trees {
		b = binary.AppendUvarint(b, uint64(t.count))
		b = slices.Concat(b, t.blocks, t.questions.packed, t.classes.packed)
	}
	return b
}

// Decode makes a forest of what Append wrote, and returns what follows it. The
// forest goes on using b. The trees may ask about that many features.
func Decode(b []byte, features int) (*Forest, []byte, error) {
	d := decoder{b: b}
	f := &Forest{Classes: make([]string, d.count("classes", math.MaxUint16+1))}
	for i := range f.Classes {
		f.Classes[i] = string(d.take(d.count("bytes of name", math.MaxInt)))
	}
	f.cuts = d.take(d.count("cuts", 1<<mostBits) * cutSize)
	f.trees = make([]tree, d.count("trees", MostTrees))
	cut, class := f.widths()
	for i := range f.trees {
		n := d.count("questions", math.MaxInt)
		f.trees[i] = tree{
			blocks:    d.take(ceil.Div(2*n+1, blockNodes) * blockSize),
			questions: numbers{d.take(packedSize(n, cut)), cut},
			classes:   numbers{d.take(packedSize(n+1, class)), class},
			count:     n,
		}
	}
	if d.err == nil {
		d.err = f.check(features)
	}
	if d.err != nil {
		return nil, nil, fmt.Errorf("forest: %w", d.err)
	}
	return f, d.b, nil
}

// check tells why the forest cannot vote, if it cannot.
func (f *Forest) check(features int) error {
	if len(f.trees) == 0 {
		return errors.New("no tree")
	}
	for at := range len(f.cuts) / cutSize {
		if feature, _ := f.cut(at); feature >= features {
			return fmt.Errorf("cut %d: feature %d of %d", at, feature, features)
		}
	}
	for i := range f.trees {
		if err := f.checkTree(&f.trees[i]); err != nil {
			return fmt.Errorf("tree %d: %w", i, err)
		}
	}
	return nil
}

// checkTree tells why a tree cannot be walked, if it cannot.
func (f *Forest) checkTree(t *tree) error {
	before, nodes := 0, 2*t.count+1
	for i := 0; i < nodes; i += blockNodes {
		if _, j := t.node(i); j != before {
			return fmt.Errorf("block at node %d: %d questions before it, not %d", i, j, before)
		}
		end := min(i+blockNodes, nodes)
		if end > 2*before { // else all depend on questions before the block
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
	if before != t.count {
		return fmt.Errorf("%d questions, not %d", before, t.count)
	}
	for j := range t.count {
		if at := t.questions.at(j); at >= len(f.cuts)/cutSize {
			return fmt.Errorf("question %d: cut %d of %d", j, at, len(f.cuts)/cutSize)
		}
	}
	for j := range t.count + 1 {
		if c := t.classes.at(j); c >= len(f.Classes) {
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

// count reads how many things follow. Several may share a byte.
func (d *decoder) count(things string, most int) int {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.fail("the number of %s is missing", things)
		return 0
	}
	d.b = d.b[size:]
	if most = min(most, 8*len(d.b)); n > uint64(most) {
		d.fail("%d %s, at most %d", n, things, most)
		return 0
	}
	return int(n)
}

func (d *decoder) take(n int) []byte {
	if d.err == nil && n > len(d.b) {
		d.fail("%d bytes are missing", n-len(d.b))
	}
	if d.err != nil {
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

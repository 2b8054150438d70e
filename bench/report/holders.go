package report

import (
	"cmp"
	"regexp"
	"slices"
)

// Holder is the number of bytes at the peak that a line allocated in a phase.
type Holder struct {
	// Line is file:line:function, empty if unknown; Phase is "forward", "backward", ... of any step.
	Line  string `json:"line"`
	Phase string `json:"phase"`
	// Bytes are requested bytes.
	Bytes int64 `json:"bytes"`
}

// LineChange is a line whose bytes at the peak differ between two runs.
type LineChange struct {
	// Line is the line in the run in which it holds more bytes.
	Line  string `json:"line"`
	Phase string `json:"phase"`
	A     int64  `json:"a_bytes"`
	B     int64  `json:"b_bytes"`
}

// lineNumber matches the number of a line, which differs between releases of a file.
var lineNumber = regexp.MustCompile(`:\d+:`)

// LineChanges returns the functions whose bytes differ between two runs, the largest difference first. Lines of one
// function are summed, since line numbers change between releases.
func LineChanges(a, b []Holder) []LineChange {
	type key struct{ function, phase string }
	sums, most := map[key]*LineChange{}, map[key]int64{}
	for side, holders := range [][]Holder{a, b} {
		for _, h := range holders {
			k := key{lineNumber.ReplaceAllString(h.Line, ":"), h.Phase}
			c := sums[k]
			if c == nil {
				c = &LineChange{Phase: h.Phase}
				sums[k] = c
			}
			if side == 0 {
				c.A += h.Bytes
			} else {
				c.B += h.Bytes
			}
			if h.Bytes > most[k] {
				most[k], c.Line = h.Bytes, h.Line
			}
		}
	}
	all := []LineChange{}
	for _, c := range sums {
		if c.A != c.B {
			all = append(all, *c)
		}
	}
	size := func(c LineChange) int64 { return max(c.A-c.B, c.B-c.A) }
	slices.SortFunc(all, func(x, y LineChange) int {
		return cmp.Or(cmp.Compare(size(y), size(x)), cmp.Compare(x.Line, y.Line), cmp.Compare(x.Phase, y.Phase))
	})
	return all
}

// changesSheet returns the table of the lines that differ, at most n of them.
func changesSheet(title, a, b string, changes []LineChange, n int) Sheet {
	largestOf := largest(changes, func(c LineChange) int64 { return max(c.A, c.B) })
	s := sheetIn(title, "line | allocated in | > | > | difference>", largestOf)
	s.Columns[2].Head, s.Columns[3].Head = s.unit.head(a), s.unit.head(b)
	for _, c := range changes[:min(n, len(changes))] {
		s.Row(cmp.Or(c.Line, "(no line)"), c.Phase, c.A, c.B, signedBytes(c.B-c.A))
	}
	return s
}

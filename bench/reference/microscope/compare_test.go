// Package microscope compares two event lists of recorded training steps, phase by phase: how many allocations of the
// reference appear in ours, in order and in size, and where the first differences are.
package microscope_test

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

// Count is a number of matching items among a total.
type Count struct{ Matched, Of int }

// Share returns the part that matches, 1 for none of none.
func (c Count) Share() float64 {
	if c.Of == 0 {
		return 1
	}
	return float64(c.Matched) / float64(c.Of)
}

func (c *Count) add(d Count) {
	c.Matched += d.Matched
	c.Of += d.Of
}

// Phase is the comparison of one phase.
type Phase struct {
	Name string
	// Allocations counts allocations alone, Events allocations and frees, as shares of the longer list.
	Allocations, Events Count
	Differences         []Difference
}

// Difference is a stretch of events in which the two lists disagree.
type Difference struct {
	// Reference and Ours are the tokens "a BYTES" and "f BYTES".
	Reference, Ours []string
	// Where is the site of the reference's events.
	Where string
}

// Comparison is the result of [Compare].
type Comparison struct {
	Phases              []Phase
	Allocations, Events Count
	// PeakReference and PeakOurs are the largest sums of requested bytes.
	PeakReference, PeakOurs int64
}

// list is one of the two event lists: its events as tokens, and their labels, by phase.
type list struct {
	names  []string
	tokens [][]string
	labels [][]string
	peak   int64
}

func split(events []event) list {
	var l list
	var tokens, labels []string
	sizes := map[int]int64{}
	var now int64
	for _, e := range events {
		switch e.Kind {
		case allocated:
			sizes[e.ID] = e.Bytes
			now += e.Bytes
			l.peak = max(l.peak, now)
			token := fmt.Sprintf("a %d", e.Bytes)
			if e.Stream != 0 {
				token += fmt.Sprintf(" on stream %d", e.Stream)
			}
			tokens = append(tokens, token)
			labels = append(labels, fmt.Sprintf("%s %s %s %s", e.Site.Op, e.Site.Native, e.Site.Node, e.Site.Where))
		case freed:
			now -= sizes[e.ID]
			tokens = append(tokens, fmt.Sprintf("f %d", sizes[e.ID]))
			labels = append(labels, "")
		case marked:
			l.names = append(l.names, fmt.Sprintf("%d:%s", e.Phase.Step, e.Phase.Name))
			l.tokens, l.labels = append(l.tokens, tokens), append(l.labels, labels)
			tokens, labels = nil, nil
		}
	}
	return l
}

// Compare aligns our events with the reference's: as many as can be matched in order.
func Compare(reference, ours []event) (*Comparison, error) {
	ref, our := split(reference), split(ours)
	if fmt.Sprint(ref.names) != fmt.Sprint(our.names) {
		return nil, fmt.Errorf("phases differ: reference %v, ours %v", ref.names, our.names)
	}
	c := &Comparison{PeakReference: ref.peak, PeakOurs: our.peak}
	for i, name := range ref.names {
		p := comparePhase(name, ref.tokens[i], our.tokens[i], ref.labels[i])
		c.Allocations.add(p.Allocations)
		c.Events.add(p.Events)
		c.Phases = append(c.Phases, p)
	}
	return c, nil
}

func comparePhase(name string, ref, our, labels []string) Phase {
	p := Phase{Name: name}
	p.Allocations.Of = max(allocations(ref), allocations(our))
	p.Events.Of = max(len(ref), len(our))
	alphabet := alphabet{}
	match := diffmatchpatch.New()
	match.DiffTimeout = 0 // no heuristics
	var d Difference
	i, j := 0, 0
	for _, run := range match.DiffMainRunes(alphabet.spell(ref), alphabet.spell(our), false) {
		n := utf8.RuneCountInString(run.Text)
		switch run.Type {
		case diffmatchpatch.DiffEqual:
			p.note(d)
			d = Difference{}
			p.Events.Matched += n
			p.Allocations.Matched += allocations(ref[i : i+n])
			i, j = i+n, j+n
			continue
		case diffmatchpatch.DiffDelete:
			d.Reference = ref[i : i+n]
			d.Where = labels[i]
			i += n
		case diffmatchpatch.DiffInsert:
			d.Ours = our[j : j+n]
			if d.Where == "" && i < len(labels) {
				d.Where = labels[i]
			}
			j += n
		}
	}
	p.note(d)
	return p
}

// note adds a difference, if it is one.
func (p *Phase) note(d Difference) {
	if d.Reference != nil || d.Ours != nil {
		p.Differences = append(p.Differences, d)
	}
}

// alphabet maps every token to a rune of its own, beyond the surrogates.
type alphabet map[string]rune

func (a alphabet) spell(tokens []string) []rune {
	text := make([]rune, len(tokens))
	for i, t := range tokens {
		letter, known := a[t]
		if !known {
			letter = rune(0x10000 + len(a))
			a[t] = letter
		}
		text[i] = letter
	}
	return text
}

func allocations(tokens []string) int {
	n := 0
	for _, t := range tokens {
		if t[0] == 'a' {
			n++
		}
	}
	return n
}

// Print writes the comparison for people, with at most show differences.
func (c *Comparison) Print(w io.Writer, show int) {
	for _, p := range c.Phases {
		fmt.Fprintf(w, "%-16s allocations %d/%d  events %d/%d\n", p.Name, p.Allocations.Matched, p.Allocations.Of,
			p.Events.Matched, p.Events.Of)
		for _, d := range p.Differences[:min(show, len(p.Differences))] {
			fmt.Fprintf(w, "   reference %v (%s)  ours %v\n", first(d.Reference), d.Where, first(d.Ours))
			show--
		}
	}
	fmt.Fprintf(w, "all: allocations %.2f %%, events %.2f %%, requested peak %d against %d (%+.2f %%)\n",
		100*c.Allocations.Share(), 100*c.Events.Share(), c.PeakReference, c.PeakOurs,
		100*(float64(c.PeakOurs)/float64(max(c.PeakReference, 1))-1))
}

// first cuts a long stretch of tokens.
func first(tokens []string) []string { return tokens[:min(len(tokens), 6)] }

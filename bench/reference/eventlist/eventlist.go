// Package eventlist writes and reads event lists: every allocation and free
// of some training steps, one a line, in the format of the lists recorded from
// PyTorch. It makes two recordings comparable line by line.
//
//	m STEP:PHASE                      the phase that ends here; step -1 is set-up
//	a ID BYTES OP NATIVE NODE WHERE   an allocation, in bytes as requested; stream=N
//	                                  follows where it is not the default stream
//	f ID                              a free
//
// IDs count allocations from 1. A dash stands for what is not known or does
// not apply: no autograd node in forward, no native function below the op.
package eventlist

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// Write writes the allocations, frees and phases of p.
func Write(w io.Writer, p *program.Program) error {
	out := bufio.NewWriter(w)
	ids := make([]int, len(p.Buffers))
	last := 0
	for _, in := range p.Instructions {
		switch in.Kind {
		case program.Alloc:
			last++
			ids[in.Arg] = last
			b := p.Buffers[in.Arg]
			s := p.Sites[b.Site]
			fmt.Fprintf(out, "a %d %d %s %s %s %s", last, b.Bytes, word(s.Op), word(s.Native), word(s.Node),
				word(s.Where))
			if b.Stream != 0 {
				fmt.Fprintf(out, " %s%d", streamField, b.Stream)
			}
			fmt.Fprintln(out)
		case program.Free:
			fmt.Fprintf(out, "f %d\n", ids[in.Arg])
		case program.Mark:
			ph := p.Phases[in.Arg]
			fmt.Fprintf(out, "m %d:%s\n", ph.Step, word(ph.Name))
		}
	}
	return out.Flush() // a bufio.Writer keeps its first error
}

// streamField begins the field of an allocation's stream.
const streamField = "stream="

// word makes s one field of a line.
func word(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Join(strings.Fields(s), "_")
}

// Kind is the kind of an event.
type Kind byte

// The kinds, as they stand in the first column.
const (
	Mark  Kind = 'm'
	Alloc Kind = 'a'
	Free  Kind = 'f'
)

// Event is one line of a list.
type Event struct {
	Kind Kind
	// ID of the allocation; of Alloc and Free.
	ID int
	// Bytes as requested; of Alloc.
	Bytes int64
	// Site is where, of Alloc; "" where the list has a dash.
	Site program.Site
	// Stream that an Alloc was made on.
	Stream program.Stream
	// Phase that ends; of Mark.
	Phase program.Phase
}

// Read reads an event list. An error names the line. IDs are checked: each is
// allocated once, and freed at most once and only after.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	live := map[int]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		e, err := parse(fields)
		if err == nil {
			err = trackLife(live, e)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}

// trackLife notes in live what e allocates or frees. An ID is in live from its
// allocation on, with false once freed.
func trackLife(live map[int]bool, e Event) error {
	alive, known := live[e.ID]
	switch {
	case e.Kind == Mark:
	case e.Kind == Alloc && known:
		return fmt.Errorf("buffer %d is allocated twice", e.ID)
	case e.Kind == Free && !alive:
		return fmt.Errorf("buffer %d is freed but does not live", e.ID)
	default:
		live[e.ID] = e.Kind == Alloc
	}
	return nil
}

func parse(f []string) (Event, error) {
	switch {
	case f[0] == "m" && len(f) == 2:
		step, name, ok := strings.Cut(f[1], ":")
		n, err := strconv.Atoi(step)
		if !ok || err != nil || n < -1 || name == "" {
			return Event{}, fmt.Errorf("%q is not STEP:PHASE", f[1])
		}
		return Event{Kind: Mark, Phase: program.Phase{Step: n, Name: name}}, nil
	case f[0] == "a" && (len(f) == 7 || len(f) == 8):
		id, err := strconv.Atoi(f[1])
		if err != nil {
			return Event{}, fmt.Errorf("%q is not an ID", f[1])
		}
		bytes, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || bytes < 0 {
			return Event{}, fmt.Errorf("%q is not a number of bytes", f[2])
		}
		site := program.Site{Op: blank(f[3]), Native: blank(f[4]), Node: blank(f[5]), Where: blank(f[6])}
		e := Event{Kind: Alloc, ID: id, Bytes: bytes, Site: site}
		if len(f) == 8 {
			text, ok := strings.CutPrefix(f[7], streamField)
			n, err := strconv.ParseUint(text, 10, 8)
			if !ok || err != nil {
				return Event{}, fmt.Errorf("%q is not %sN", f[7], streamField)
			}
			e.Stream = program.Stream(n)
		}
		return e, nil
	case f[0] == "f" && len(f) == 2:
		id, err := strconv.Atoi(f[1])
		if err != nil {
			return Event{}, fmt.Errorf("%q is not an ID", f[1])
		}
		return Event{Kind: Free, ID: id}, nil
	}
	return Event{}, fmt.Errorf("%q with %d fields is not an event", f[0], len(f))
}

// blank reads a field that word wrote.
func blank(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

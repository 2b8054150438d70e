package recorded

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// section is the first line of a recording: its conditions, and the tables that instructions refer to.
type section struct {
	*Recording
	Classes  []string          `json:"classes"`
	Streams  []string          `json:"streams,omitempty"`
	Sites    []program.Site    `json:"sites"`
	Products []program.Product `json:"products,omitempty"`
}

// Write writes a file. The error is an error of [program.Program.Validate], of a header, or of writing.
func (f *File) Write(to io.Writer) error {
	f.Schema = Schema
	if key, err := f.Header.check(); err != nil {
		return fmt.Errorf("%s: %s: %w", f.Name, key, err)
	}
	compressed := gzip.NewWriter(to)
	buffered := bufio.NewWriter(compressed)
	lines := json.NewEncoder(buffered)
	if err := lines.Encode(f.Header); err != nil {
		return err
	}
	for _, r := range f.Recordings {
		p := r.Program
		if err := p.Validate(); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if err := lines.Encode(section{r, classNames(), p.Streams, p.Sites, p.Products}); err != nil {
			return err
		}
		w := &writer{
			Writer: buffered, p: p, numbers: make([]uint32, len(p.Buffers)), events: make([]uint32, len(p.Events)),
		}
		notes := r.Notes
		for i, in := range p.Instructions {
			for ; len(notes) > 0 && notes[0].At == i; notes = notes[1:] {
				w.note(notes[0])
			}
			w.instruction(in)
		}
		for _, n := range notes {
			w.note(n)
		}
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return compressed.Close()
}

// writer writes instructions. Errors come out with Flush.
type writer struct {
	*bufio.Writer
	p *program.Program
	// numbers and events are the numbers that buffers and events have in the file, where they are
	// counted as they come.
	numbers, events         []uint32
	allocations, recordings uint32
}

func (w *writer) instruction(in program.Instruction) {
	switch in.Kind {
	case program.Alloc:
		b := w.p.Buffers[in.Arg]
		fmt.Fprintf(w, "a %d %d %d %d\n", b.Bytes, b.Class, b.Stream, b.Site)
		w.numbers[in.Arg] = w.allocations
		w.allocations++
	case program.Free:
		fmt.Fprintf(w, "f %d\n", w.numbers[in.Arg])
	case program.Launch:
		w.launch(&w.p.Ops[in.Arg])
	case program.Mark:
		phase := w.p.Phases[in.Arg]
		fmt.Fprintf(w, "p %d %s\n", phase.Step, phase.Name)
	case program.EmptyCache:
		fmt.Fprintln(w, "c")
	case program.Record:
		fmt.Fprintf(w, "r %d\n", w.p.Events[in.Arg].Stream)
		w.events[in.Arg] = w.recordings
		w.recordings++
	case program.Await:
		wait := w.p.Waits[in.Arg]
		fmt.Fprintf(w, "w %d %d\n", wait.Stream, w.events[wait.Event])
	}
}

// note writes a note. Only programs that were read have some, whose buffers are numbered as they come.
func (w *writer) note(n Note) {
	buffer := "-"
	if n.Buffer >= 0 {
		buffer = strconv.Itoa(n.Buffer)
	}
	fmt.Fprintf(w, "n %s %s %d %s\n", n.Kind, buffer, n.Offset, n.Text)
}

func (w *writer) launch(op *program.Op) {
	fmt.Fprintf(w, "l %v %v %d %d %d %d %d %s %s\n", op.Work, op.Precision, op.Stream, op.Site, op.FLOPs, op.Product,
		op.Group, w.operands(op.Reads), w.operands(op.Writes))
}

func (w *writer) operands(span program.Span) string {
	var words []string
	for _, o := range w.p.Operands[span.From:span.To] {
		words = append(words, strconv.Itoa(int(w.numbers[o.Buffer]))+":"+strconv.FormatInt(o.Bytes, 10))
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ",")
}

// maxStreams is how many streams a [program.Stream] can number.
const maxStreams = 1 << 8

func classNames() []string {
	names := make([]string, program.NumClasses)
	for c := range names {
		names[c] = program.Class(c).String()
	}
	return names
}

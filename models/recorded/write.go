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

// Write writes a program as a file. Of the header it takes where the program comes from, and
// fills in the rest. The error is that of [program.Program.Validate], or of writing.
func Write(to io.Writer, h Header, p *program.Program) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	h.Schema, h.Classes = Schema, classNames()
	h.Streams, h.Sites, h.Products = p.Streams, p.Sites, p.Products
	if key, err := h.check(); err != nil {
		return fmt.Errorf("%s: %s: %w", h.Name, key, err)
	}
	first, err := json.Marshal(h)
	if err != nil {
		return err
	}
	compressed := gzip.NewWriter(to)
	w := &writer{
		Writer: bufio.NewWriter(compressed), p: p, numbers: make([]uint32, len(p.Buffers)),
		events: make([]uint32, len(p.Events)),
	}
	fmt.Fprintf(w, "%s\n", first)
	for _, in := range p.Instructions {
		w.instruction(in)
	}
	if err := w.Flush(); err != nil {
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

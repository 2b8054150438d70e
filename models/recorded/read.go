package recorded

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/profiler/program"
)

// Bounds of what is read, far above any real run: a step of a large model has some
// hundred thousand instructions.
const (
	maxHeader       = 64 << 20
	maxLine         = 1 << 20
	maxInstructions = 1 << 24
	maxOperands     = 1 << 24
)

// Read reads what [Write] has written, from a file of this name. The error is an
// [*input.FormatError], or that of reading.
func Read(from io.Reader, name string) (Header, *program.Program, error) {
	bad := func(line int, key, reason string) (Header, *program.Program, error) {
		return Header{}, nil, &input.FormatError{File: name, Line: line, Key: key, Reason: reason}
	}
	expanded, err := gzip.NewReader(from)
	if err != nil {
		return bad(0, "", "is no recorded program, which is compressed by gzip")
	}
	lines := bufio.NewScanner(expanded)
	lines.Buffer(nil, maxHeader)
	lines.Scan()
	var h Header
	if err := json.Unmarshal(lines.Bytes(), &h); err != nil || h.Schema != Schema {
		return bad(1, "schema", "is not "+Schema+", the format that vprof run writes and this vprof reads")
	}
	if key, err := h.check(); err != nil {
		return bad(1, key, err.Error())
	}
	r, err := newReader(&h)
	if err != nil {
		return bad(1, "classes", err.Error())
	}
	number := 1
	for lines.Scan() {
		number++
		if err := r.line(lines.Bytes()); err != nil {
			return bad(number, "", err.Error())
		}
	}
	if err := lines.Err(); err != nil {
		return bad(number+1, "", "the file ends too early, or a line is too long: "+err.Error())
	}
	if err := r.p.Validate(); err != nil {
		return bad(0, "", err.Error())
	}
	if len(r.p.Phases) == 0 {
		return bad(0, "", "has no phase (a line \"p STEP NAME\"), so that nothing can be said of its steps")
	}
	return h, r.p, nil
}

// reader makes a program of lines.
type reader struct {
	p       *program.Program
	classes []program.Class
	works   map[string]program.Work
	types   map[string]program.Precision
}

func newReader(h *Header) (*reader, error) {
	r := &reader{
		p:     &program.Program{Streams: h.Streams, Sites: h.Sites, Products: h.Products},
		works: named[program.Work](), types: named[program.Precision](),
	}
	known := classNames()
	for _, name := range h.Classes {
		c := slices.Index(known, name)
		if c < 0 {
			return nil, fmt.Errorf("there is no class %q; all: %s", name, strings.Join(known, ", "))
		}
		r.classes = append(r.classes, program.Class(c))
	}
	return r, nil
}

// named returns the values of a kind of constants by their words.
func named[T interface {
	~uint8
	fmt.Stringer
}]() map[string]T {
	all := map[string]T{}
	for v := T(0); v.String() != "unknown"; v++ {
		all[v.String()] = v
	}
	return all
}

// line adds the instruction of a line.
func (r *reader) line(text []byte) error {
	if len(r.p.Instructions) == maxInstructions {
		return fmt.Errorf("more than %d instructions", maxInstructions)
	}
	if len(text) > maxLine {
		return fmt.Errorf("a line of %d bytes; the longest has %d", len(text), maxLine)
	}
	kind, rest, _ := bytes.Cut(text, []byte(" "))
	f := &fields{rest: string(rest)}
	switch string(kind) {
	case "a":
		r.allocate(f)
	case "f":
		r.add(program.Free, f.number())
	case "l":
		r.launch(f)
	case "p":
		r.p.Phases = append(r.p.Phases, program.Phase{Step: f.step(), Name: f.remainder()})
		r.add(program.Mark, uint32(len(r.p.Phases)-1))
	case "c":
		r.add(program.EmptyCache, 0)
	case "r":
		r.p.Events = append(r.p.Events, program.Event{Stream: f.stream()})
		r.add(program.Record, uint32(len(r.p.Events)-1))
	case "w":
		r.p.Waits = append(r.p.Waits, program.Wait{Stream: f.stream(), Event: f.number()})
		r.add(program.Await, uint32(len(r.p.Waits)-1))
	default:
		return fmt.Errorf("there is no instruction %q; it is one of a, f, l, p, c, r, w", kind)
	}
	return f.end()
}

func (r *reader) add(kind program.Kind, arg uint32) {
	r.p.Instructions = append(r.p.Instructions, program.Instruction{Kind: kind, Arg: arg})
}

func (r *reader) allocate(f *fields) {
	b := program.Buffer{Bytes: f.integer()}
	if class := f.number(); int(class) < len(r.classes) {
		b.Class = r.classes[class]
	} else {
		f.wrong("there is no class %d", class)
	}
	b.Stream, b.Site = f.stream(), f.number()
	r.p.Buffers = append(r.p.Buffers, b)
	r.add(program.Alloc, uint32(len(r.p.Buffers)-1))
}

func (r *reader) launch(f *fields) {
	op := program.Op{Work: word(f, r.works), Precision: word(f, r.types), Stream: f.stream(), Site: f.number()}
	op.FLOPs, op.Product, op.Group = f.integer(), f.number(), f.number()
	op.Reads, op.Writes = r.operands(f), r.operands(f)
	r.p.Ops = append(r.p.Ops, op)
	r.add(program.Launch, uint32(len(r.p.Ops)-1))
}

// operands reads "BUFFER:BYTES,...", or "-" for none.
func (r *reader) operands(f *fields) program.Span {
	from := uint32(len(r.p.Operands))
	list := f.next()
	if list == "-" {
		return program.Span{From: from, To: from}
	}
	for item := range strings.SplitSeq(list, ",") {
		buffer, size, _ := strings.Cut(item, ":")
		of := &fields{rest: buffer + " " + size}
		r.p.Operands = append(r.p.Operands, program.Operand{Buffer: of.number(), Bytes: of.integer()})
		if err := of.end(); err != nil || len(r.p.Operands) > maxOperands {
			f.wrong("operand %q: want BUFFER:BYTES, and at most %d in all", item, maxOperands)
			break
		}
	}
	return program.Span{From: from, To: uint32(len(r.p.Operands))}
}

// fields are the words of a line, and what was wrong with the first that was.
type fields struct {
	rest string
	done bool
	err  error
}

func (f *fields) wrong(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

func (f *fields) next() string {
	if f.done {
		f.wrong("the line has too few words")
		return ""
	}
	word, rest, more := strings.Cut(f.rest, " ")
	f.rest, f.done = rest, !more
	return word
}

// remainder returns the rest of the line, which must not be empty.
func (f *fields) remainder() string {
	if f.rest == "" {
		f.wrong("the line has too few words")
	}
	f.done = true
	return f.rest
}

func (f *fields) parse(text string, bits int) int64 {
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		f.wrong("%q is not such a number", text)
	}
	return n
}

func (f *fields) integer() int64 {
	n := f.parse(f.next(), 64)
	if n < 0 {
		f.wrong("%d is below 0", n)
	}
	return n
}

func (f *fields) number() uint32 {
	n := f.integer()
	if n > 1<<31 {
		f.wrong("%d is too large", n)
	}
	return uint32(n)
}

// maxStep bounds the numbers of steps, so that they can be added to.
const maxStep = 1 << 30

func (f *fields) step() int {
	n := f.parse(f.next(), 32)
	if n < -1 || n > maxStep {
		f.wrong("step %d; set-up is -1, then 0, 1, ...", n)
	}
	return int(n)
}

func (f *fields) stream() program.Stream {
	n := f.number()
	if n >= maxStreams {
		f.wrong("there is no stream %d", n)
	}
	return program.Stream(n)
}

func word[T any](f *fields, table map[string]T) T {
	name := f.next()
	v, ok := table[name]
	if !ok {
		f.wrong("%q is not known", name)
	}
	return v
}

// end returns what was wrong with the line.
func (f *fields) end() error {
	if f.err == nil && !f.done && f.rest != "" {
		return errors.New("the line has too many words")
	}
	return f.err
}

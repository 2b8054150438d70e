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
	"sync/atomic"

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

// Read reads a file of this name. The error is an [*input.FormatError], or an error of reading.
func Read(from io.Reader, name string) (*File, error) {
	expanded, err := gzip.NewReader(from)
	if err != nil {
		return nil, &input.FormatError{File: name, Reason: "is no recorded program, which is compressed by gzip"}
	}
	r := newReader(expanded, name)
	f := &File{last: new(atomic.Pointer[planned])}
	if text, ok := r.next(); !ok || json.Unmarshal(text, &f.Header) != nil {
		f.Schema = ""
	}
	if key, err := f.Header.check(); err != nil {
		return nil, r.bad(key, err)
	}
	for text, ok := r.next(); ok; text, ok = r.next() {
		if err := r.line(text); err != nil {
			return nil, r.bad("", err)
		}
	}
	if f.Recordings, err = r.end(); err != nil {
		return nil, err
	}
	if key, err := f.check(); err != nil {
		return nil, &input.FormatError{File: name, Key: key, Reason: err.Error()}
	}
	return f, nil
}

// ReadRecording reads a recording as the hook writes it: not compressed, and without a header.
func ReadRecording(from io.Reader, name string) (*Recording, error) {
	r := newReader(from, name)
	for text, ok := r.next(); ok; text, ok = r.next() {
		if err := r.line(text); err != nil {
			return nil, r.bad("", err)
		}
	}
	all, err := r.end()
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, &input.FormatError{File: name, Reason: "is not one recording"}
	}
	return all[0], nil
}

// A reader makes recordings of lines.
type reader struct {
	lines      *bufio.Scanner
	name       string
	number     int // of the line
	all        []*Recording
	*Recording // the one that is read

	classes []program.Class
	works   map[string]program.Work
	types   map[string]program.Precision
}

func newReader(from io.Reader, name string) *reader {
	r := &reader{
		lines: bufio.NewScanner(from), name: name, works: named[program.Work](), types: named[program.Precision](),
	}
	r.lines.Buffer(nil, maxHeader)
	return r
}

// next returns the next line; false at the end.
func (r *reader) next() (text []byte, ok bool) {
	r.number++
	ok = r.lines.Scan()
	return r.lines.Bytes(), ok
}

// bad returns the error of a line.
func (r *reader) bad(key string, err error) error {
	return &input.FormatError{File: r.name, Line: r.number, Key: key, Reason: err.Error()}
}

// end returns the recordings, which must be valid.
func (r *reader) end() ([]*Recording, error) {
	if err := r.lines.Err(); err != nil {
		return nil, r.bad("", fmt.Errorf("the file ends too early, or a line is too long: %w", err))
	}
	for _, one := range r.all {
		if err := one.Program.Validate(); err != nil {
			return nil, &input.FormatError{File: r.name, Reason: err.Error()}
		}
		for _, n := range one.Notes {
			if n.Buffer > len(one.Program.Buffers)-1 {
				return nil, &input.FormatError{File: r.name, Reason: fmt.Sprintf("a note about unknown buffer %d", n.Buffer)}
			}
		}
	}
	return r.all, nil
}

// begin begins a recording with its conditions and tables.
func (r *reader) begin(text []byte) error {
	t := &section{Recording: new(Recording)}
	if err := json.Unmarshal(text, t); err != nil {
		return err
	}
	if len(t.Streams) > maxStreams {
		return fmt.Errorf("%d streams; at most %d are read", len(t.Streams), maxStreams)
	}
	known := classNames()
	r.classes = nil
	for _, name := range t.Classes {
		c := slices.Index(known, name)
		if c < 0 {
			return fmt.Errorf("there is no class %q; all: %s", name, strings.Join(known, ", "))
		}
		r.classes = append(r.classes, program.Class(c))
	}
	t.Program = &program.Program{Streams: t.Streams, Sites: t.Sites, Products: t.Products}
	r.Recording = t.Recording
	r.all = append(r.all, t.Recording)
	return nil
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

// line begins a recording, or adds the instruction or note of a line.
func (r *reader) line(text []byte) error {
	if bytes.HasPrefix(text, []byte("{")) {
		return r.begin(text)
	}
	switch {
	case r.Recording == nil:
		return errors.New("an instruction comes before the line of its recording")
	case len(r.Program.Instructions)+len(r.Notes) == maxInstructions:
		return fmt.Errorf("more than %d instructions", maxInstructions)
	case len(text) > maxLine:
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
		r.Program.Phases = append(r.Program.Phases, program.Phase{Step: f.step(), Name: f.remainder()})
		r.add(program.Mark, uint32(len(r.Program.Phases)-1))
	case "c":
		r.add(program.EmptyCache, 0)
	case "r":
		r.Program.Events = append(r.Program.Events, program.Event{Stream: f.stream()})
		r.add(program.Record, uint32(len(r.Program.Events)-1))
	case "w":
		r.Program.Waits = append(r.Program.Waits, program.Wait{Stream: f.stream(), Event: f.number()})
		r.add(program.Await, uint32(len(r.Program.Waits)-1))
	case "n":
		n := Note{At: len(r.Program.Instructions), Kind: f.next(), Buffer: f.buffer(), Offset: f.integer()}
		n.Text, f.done = f.rest, true
		r.Notes = append(r.Notes, n)
	default:
		return fmt.Errorf("there is no instruction %q; it is one of a, f, l, p, c, r, w, n", kind)
	}
	return f.end()
}

func (r *reader) add(kind program.Kind, arg uint32) {
	r.Program.Instructions = append(r.Program.Instructions, program.Instruction{Kind: kind, Arg: arg})
}

func (r *reader) allocate(f *fields) {
	b := program.Buffer{Bytes: f.integer()}
	if class := f.number(); int(class) < len(r.classes) {
		b.Class = r.classes[class]
	} else {
		f.wrong("there is no class %d", class)
	}
	b.Stream, b.Site = f.stream(), f.number()
	r.Program.Buffers = append(r.Program.Buffers, b)
	r.add(program.Alloc, uint32(len(r.Program.Buffers)-1))
}

func (r *reader) launch(f *fields) {
	op := program.Op{Work: word(f, r.works), Precision: word(f, r.types), Stream: f.stream(), Site: f.number()}
	op.FLOPs, op.Product, op.Group = f.integer(), f.number(), f.number()
	op.Reads, op.Writes = r.operands(f), r.operands(f)
	r.Program.Ops = append(r.Program.Ops, op)
	r.add(program.Launch, uint32(len(r.Program.Ops)-1))
}

// operands reads "BUFFER:BYTES,...", or "-" for none.
func (r *reader) operands(f *fields) program.Span {
	from := uint32(len(r.Program.Operands))
	list := f.next()
	if list == "-" {
		return program.Span{From: from, To: from}
	}
	for item := range strings.SplitSeq(list, ",") {
		buffer, size, _ := strings.Cut(item, ":")
		of := &fields{rest: buffer + " " + size}
		r.Program.Operands = append(r.Program.Operands, program.Operand{Buffer: of.number(), Bytes: of.integer()})
		if err := of.end(); err != nil || len(r.Program.Operands) > maxOperands {
			f.wrong("operand %q: want BUFFER:BYTES, and at most %d in all", item, maxOperands)
			break
		}
	}
	return program.Span{From: from, To: uint32(len(r.Program.Operands))}
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

// buffer returns the number of a buffer, -1 for "-".
func (f *fields) buffer() int {
	if rest, none := strings.CutPrefix(f.rest, "- "); none {
		f.rest = rest
		return -1
	}
	return int(f.number())
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

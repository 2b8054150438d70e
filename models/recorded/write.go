package recorded

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
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

// Schema is the format of files.
const Schema = "vprof.program/v1"

// Header is the first line of a file: where a program comes from, and its tables.
type Header struct {
	// Schema is [Schema]; [Write] fills it in.
	Schema string `json:"schema"`
	// Name says what ran: "train.py".
	Name string `json:"name"`
	// GPU is the GPU that the program was recorded for, by its name in the catalog: "rtx-3090".
	GPU string `json:"gpu"`
	// Torch is the release of PyTorch that ran: "2.15".
	Torch string `json:"torch"`
	// AllocConf is the PYTORCH_CUDA_ALLOC_CONF of the run; empty for the defaults.
	AllocConf string `json:"alloc_conf,omitempty"`
	// Batch is the number of samples of a micro-batch, zero if unknown.
	Batch int `json:"batch,omitempty"`
	// Parameters and Trainable count the elements of the model; zero if unknown.
	Parameters int64 `json:"parameters,omitempty"`
	Trainable  int64 `json:"trainable,omitempty"`
	// Allocated and Reserved are the peaks that PyTorch counted in the run, in bytes; zero if it
	// was not asked.
	Allocated int64 `json:"allocated_bytes,omitempty"`
	Reserved  int64 `json:"reserved_bytes,omitempty"`

	// Classes, Streams, Sites and Products are the tables that instructions refer to. [Write]
	// fills them in from the program.
	Classes  []string          `json:"classes"`
	Streams  []string          `json:"streams,omitempty"`
	Sites    []program.Site    `json:"sites"`
	Products []program.Product `json:"products,omitempty"`
}

func (h *Header) check() (key string, err error) {
	switch {
	case h.Name == "":
		return "name", errors.New("is empty; it says what ran")
	case h.Batch != 0 && models.CheckBatch(h.Batch) != nil:
		return "batch", models.CheckBatch(h.Batch)
	case h.Parameters < 0 || h.Trainable < 0 || h.Trainable > h.Parameters:
		return "trainable", fmt.Errorf("%d of %d parameters", h.Trainable, h.Parameters)
	case h.Allocated < 0 || h.Reserved < h.Allocated:
		return "reserved_bytes", fmt.Errorf("%d, with %d allocated", h.Reserved, h.Allocated)
	case len(h.Streams) > maxStreams:
		return "streams", fmt.Errorf("%d of them; at most %d are read", len(h.Streams), maxStreams)
	}
	release, err := stack.Lookup(h.Torch)
	if err != nil {
		return "torch", err
	}
	_, err = release.Allocator().Parse(h.AllocConf)
	return "alloc_conf", err
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

package script

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// A moment is something that happened to memory: an entry of PyTorch's trace of its
// allocator, a label of what a block is for, or the border of a phase.
type moment struct {
	kind    string
	at      int64 // microseconds
	address uint64
	bytes   int64
	stream  uint64
	site    uint32
	class   string
	phase   program.Phase
}

// A recording is what the hook has written of one process.
type recording struct {
	sites   []program.Site
	moments []moment
}

// readRecording reads the file that the hook writes: a JSON array a line.
func readRecording(r io.Reader) (*recording, error) {
	rec := new(recording)
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for n := 1; s.Scan(); n++ {
		if err := rec.line(s.Bytes()); err != nil {
			return nil, fmt.Errorf("the recording of allocations: line %d: %w", n, err)
		}
	}
	return rec, s.Err()
}

// line reads ["site", where], ["label", at, address, class] or [action, at, address, bytes, stream, site]. Behind
// where, a site of compiled code has a tab and names of its graph's nodes.
func (rec *recording) line(text []byte) error {
	var fields []json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	m := moment{}
	var where string
	targets := map[int][]any{
		2: {&m.kind, &where},
		4: {&m.kind, &m.at, &m.address, &m.class},
		6: {&m.kind, &m.at, &m.address, &m.bytes, &m.stream, &m.site},
	}[len(fields)]
	if targets == nil {
		return fmt.Errorf("it has %d fields", len(fields))
	}
	for i, field := range fields {
		if err := json.Unmarshal(field, targets[i]); err != nil {
			return err
		}
	}
	if m.kind == "site" {
		line, names, _ := strings.Cut(where, "\t")
		rec.sites = append(rec.sites, program.Site{Op: names, Where: line})
		return nil
	}
	rec.moments = append(rec.moments, m)
	return nil
}

// borders adds beginnings of phases, of the kind "turn", or their ends, "mark".
func (rec *recording) borders(kind string, events []Event) {
	for _, e := range events {
		rec.moments = append(rec.moments,
			moment{kind: kind, at: e.At, phase: program.Phase{Step: e.Step, Name: e.Phase}})
	}
}

// classes by the hook's labels. Of two labels of a block the one further up holds: the
// state of an optimizer may be a parameter of a module, too.
var classes = []struct {
	label string
	class program.Class
}{
	{"graph pool", program.GraphPools},
	{"weights", program.Weights},
	{"optimizer state", program.OptimizerState},
	{"gradients", program.Gradients},
	{"buffers", program.Buffers},
	{"batch", program.Batch},
	{"activations", program.Activations},
	{"", program.Temporaries},
}

func rank(label string) int {
	for i, c := range classes {
		if c.label == label {
			return i
		}
	}
	return len(classes)
}

// An assembly makes a program of a recording.
type assembly struct {
	p      *program.Program
	live   map[uint64]uint32 // buffers by address
	labels []string          // by buffer
	stream map[uint64]program.Stream
	phase  program.Phase // the one that goes on
	oom    *Failure
}

// program returns the recording as a program, with the last allocation that failed.
func (rec *recording) program() (*program.Program, *Failure) {
	slices.SortStableFunc(rec.moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	a := &assembly{
		p:    &program.Program{Sites: rec.sites},
		live: map[uint64]uint32{}, stream: map[uint64]program.Stream{0: 0},
		phase: program.Phase{Step: -1, Name: "set-up"},
	}
	for _, m := range rec.moments {
		a.add(m)
	}
	for i, label := range a.labels {
		if k := rank(label); k < len(classes) {
			a.p.Buffers[i].Class = classes[k].class
		}
	}
	if len(a.stream) > 1 {
		a.p.Streams = make([]string, len(a.stream))
		for _, s := range a.stream {
			a.p.Streams[s] = fmt.Sprintf("stream %d", s)
		}
	}
	return a.p, a.oom
}

func (a *assembly) add(m moment) {
	switch m.kind {
	case "alloc":
		a.alloc(m)
	case "free_completed":
		if b, ok := a.live[m.address]; ok {
			delete(a.live, m.address)
			a.emit(program.Free, b)
		}
	case "label":
		a.label(m)
	case "mark":
		a.p.Phases = append(a.p.Phases, m.phase)
		a.emit(program.Mark, uint32(len(a.p.Phases)-1))
	case "turn":
		a.phase = m.phase
		if m.phase.Name == "backward" {
			a.keepForBackward()
		}
	case "oom":
		a.oom = &Failure{Want: m.bytes, Free: int64(m.address), Where: a.p.Sites[m.site].Where, Phase: a.phase}
	}
}

func (a *assembly) emit(kind program.Kind, arg uint32) {
	a.p.Instructions = append(a.p.Instructions, program.Instruction{Kind: kind, Arg: arg})
}

func (a *assembly) alloc(m moment) {
	s, known := a.stream[m.stream]
	if !known {
		s = program.Stream(len(a.stream))
		a.stream[m.stream] = s
	}
	b := uint32(len(a.p.Buffers))
	a.p.Buffers = append(a.p.Buffers, program.Buffer{Bytes: m.bytes, Stream: s, Site: m.site})
	a.labels = append(a.labels, "")
	a.live[m.address] = b
	a.emit(program.Alloc, b)
}

// label says what the block at an address is for, and what the script empties the cache.
func (a *assembly) label(m moment) {
	if m.class == "empty_cache" {
		a.emit(program.EmptyCache, 0)
		return
	}
	if b, ok := a.live[m.address]; ok && rank(m.class) < rank(a.labels[b]) {
		a.labels[b] = m.class
	}
}

// keepForBackward calls activations what lives when backward begins and is nothing else.
func (a *assembly) keepForBackward() {
	for _, b := range a.live {
		if a.labels[b] == "" {
			a.labels[b] = "activations"
		}
	}
}

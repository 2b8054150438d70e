// Package snapshot reads the memory snapshots of PyTorch, the pickles that
// torch.cuda.memory._dump_snapshot writes, and says what is in them. Nothing of
// a file is ever run: see the unpickler.
package snapshot

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// maxFile is the largest snapshot read, in bytes; maxItems how many blocks,
// frames and events one may have, counting shared ones as often as they are
// referred to.
const (
	maxFile  = 1 << 30
	maxItems = 50_000_000
)

// maxBytes is more memory than any board has.
const maxBytes = 1 << 46

// Snapshot is the state of the caching allocator of every device.
type Snapshot struct {
	Segments []Segment
	// Traces are the events of each device, in order; empty unless recording
	// was on.
	Traces [][]Event
	// AllocConf is the PYTORCH_CUDA_ALLOC_CONF of the process.
	AllocConf string
	// SimulatedBy is the program that wrote the snapshot of a simulation; PyTorch
	// writes none.
	SimulatedBy string
}

// Segment is a piece of memory that the allocator got from the driver.
type Segment struct {
	Device     int
	Address    int64
	Total      int64
	Stream     int64
	Type       string // "small" or "large"
	Expandable bool
	Blocks     []Block
}

// Block is a part of a segment.
type Block struct {
	Address, Size int64
	// Requested is meaningful only while the block is in use.
	Requested int64
	State     string
	Frames    []Frame
}

// InUse tells whether a tensor has the block.
func (b Block) InUse() bool { return b.State == "active_allocated" }

// Free tells whether the block could be given to a tensor.
func (b Block) Free() bool { return b.State == "inactive" }

// Frame is a line of the stack at which a block was allocated.
type Frame struct {
	File string
	Line int64
	Name string
}

// Event is something that happened in the allocator.
type Event struct {
	Action  string
	Address int64
	Size    int64
	// Micros is when, in microseconds; zero is unknown.
	Micros int64
}

// A FormatError says what is wrong with a file.
type FormatError struct{ File, Reason string }

func (e *FormatError) Error() string { return e.File + ": " + e.Reason }

// Open reads the snapshot at path.
func Open(path string) (*Snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path)
}

// Is tells whether a file that begins with head is a pickle of protocol 2 or
// newer, as snapshots are.
func Is(head []byte) bool { return len(head) > 1 && head[0] == 0x80 && head[1] <= 5 }

// Read reads a snapshot; name is used in messages. The error is a
// [*FormatError] unless reading itself failed.
func Read(r io.Reader, name string) (*Snapshot, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxFile {
		return nil, &FormatError{name, fmt.Sprintf("longer than %d bytes; record fewer events (max_entries)", maxFile)}
	}
	if !Is(data) {
		return nil, &FormatError{name, "not a pickle; torch.cuda.memory._dump_snapshot writes one"}
	}
	v, err := unpickle(data)
	if err != nil {
		return nil, &FormatError{name, "not a memory snapshot: " + err.Error()}
	}
	d := &decoder{}
	s := d.snapshot(v)
	if d.err != nil {
		return nil, &FormatError{name, "not a memory snapshot: " + d.err.Error()}
	}
	return s, nil
}

// decoder turns plain values into a snapshot. The first thing that is wrong
// stays in err.
type decoder struct {
	err   error
	items int
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *decoder) dict(v any, where string) *dict {
	if m, ok := v.(*dict); ok {
		return m
	}
	d.fail("%s: want a dict", where)
	return &dict{}
}

// list is a list that may be absent.
func (d *decoder) list(m *dict, key, where string) []any {
	v, ok := m.items[key]
	if !ok || v == nil {
		return nil
	}
	l, ok := v.(*list)
	if !ok {
		d.fail("%s.%s: want a list", where, key)
		return nil
	}
	if d.items += len(l.items); d.items > maxItems {
		d.fail("more than %d blocks, frames and events", maxItems)
	}
	if d.err != nil {
		return nil
	}
	return l.items
}

func (d *decoder) integer(m *dict, key, where string) int64 {
	switch v := m.items[key].(type) {
	case nil:
		return 0
	case int64:
		return v
	case bool:
		return 0
	}
	d.fail("%s.%s: want an integer", where, key)
	return 0
}

func (d *decoder) bytes(m *dict, key, where string) int64 {
	n := d.integer(m, key, where)
	if n < 0 || n > maxBytes {
		d.fail("%s.%s: %d bytes are none", where, key, n)
		return 0
	}
	return n
}

func text(m *dict, key string) string {
	s, _ := m.items[key].(string)
	return s
}

func (d *decoder) snapshot(v any) *Snapshot {
	root := d.dict(v, "snapshot")
	if _, ok := root.items["segments"]; !ok {
		d.fail("there are no segments in it")
	}
	s := &Snapshot{SimulatedBy: text(root, "simulated_by")}
	for i, v := range d.list(root, "segments", "snapshot") {
		s.Segments = append(s.Segments, d.segment(v, fmt.Sprintf("segments[%d]", i)))
	}
	for i, v := range d.list(root, "device_traces", "snapshot") {
		where := fmt.Sprintf("device_traces[%d]", i)
		s.Traces = append(s.Traces, d.trace(v, where))
	}
	if settings, ok := root.items["allocator_settings"].(*dict); ok {
		s.AllocConf = text(settings, "PYTORCH_CUDA_ALLOC_CONF")
	}
	return s
}

func (d *decoder) segment(v any, where string) Segment {
	m := d.dict(v, where)
	s := Segment{
		Device: int(d.bytes(m, "device", where)), Address: d.integer(m, "address", where), Total: d.bytes(m, "total_size", where),
		Stream: d.integer(m, "stream", where), Type: text(m, "segment_type"),
	}
	s.Expandable, _ = m.items["is_expandable"].(bool)
	var sum int64
	address := s.Address
	for i, v := range d.list(m, "blocks", where) {
		b := d.block(v, fmt.Sprintf("%s.blocks[%d]", where, i))
		b.Address = address // older PyTorch does not say
		address += b.Size
		sum += b.Size
		s.Blocks = append(s.Blocks, b)
	}
	if d.err == nil && sum > s.Total {
		d.fail("%s: blocks of %d bytes in %d", where, sum, s.Total)
	}
	return s
}

func (d *decoder) block(v any, where string) Block {
	m := d.dict(v, where)
	b := Block{Size: d.bytes(m, "size", where), Requested: d.bytes(m, "requested_size", where), State: text(m, "state")}
	for i, v := range d.list(m, "frames", where) {
		f := d.dict(v, fmt.Sprintf("%s.frames[%d]", where, i))
		b.Frames = append(b.Frames, Frame{text(f, "filename"), d.integer(f, "line", where), text(f, "name")})
	}
	return b
}

func (d *decoder) trace(v any, where string) []Event {
	l, ok := v.(*list)
	if !ok {
		d.fail("%s: want a list", where)
		return nil
	}
	if d.items += len(l.items); d.items > maxItems {
		d.fail("more than %d blocks, frames and events", maxItems)
		return nil
	}
	var events []Event
	for i, v := range l.items {
		at := fmt.Sprintf("%s[%d]", where, i)
		m := d.dict(v, at)
		events = append(events, Event{text(m, "action"), d.integer(m, "addr", at), d.bytes(m, "size", at), d.integer(m, "time_us", at)})
		if d.err != nil {
			return nil
		}
	}
	return events
}

// Devices are the devices that have segments, ascending.
func (s *Snapshot) Devices() []int {
	var devices []int
	for _, g := range s.Segments {
		devices = append(devices, g.Device)
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

// String is where a block was allocated: the innermost frame outside PyTorch,
// or the innermost there is; empty if none was recorded.
func (b Block) String() string {
	for _, f := range b.Frames {
		if f.File != "" && !strings.Contains(f.File, "/torch/") && !strings.HasPrefix(f.File, "??") {
			return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Name)
		}
	}
	if len(b.Frames) > 0 {
		return b.Frames[0].Name
	}
	return ""
}

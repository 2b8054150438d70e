package snapshot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/internal/pickle"
)

const (
	// maxDevices is the largest number of GPUs in a PyTorch process (C10_COMPILE_TIME_MAX_GPUS in
	// c10/cuda/CUDAMacros.h).
	maxDevices = 120
	// maxBytes is above the memory of any GPU, maxAddress above any address space.
	maxBytes   = 1 << 46
	maxAddress = 1 << 57
	// maxTurnover limits the bytes of all events together, so that their sums fit an int64.
	maxTurnover = 1 << 62
)

// knownKeys are the keys of a snapshot that the decoder reads.
var knownKeys = func() map[string]bool {
	keys := map[string]bool{}
	for _, key := range []string{
		"segments", "device_traces", "allocator_settings", "PYTORCH_CUDA_ALLOC_CONF", "simulated_by",
		"device", "address", "total_size", "stream", "is_expandable", "blocks",
		"size", "requested_size", "state", "frames", "filename", "line", "name",
		"action", "addr", "device_free",
	} {
		keys[key] = true
	}
	return keys
}()

// Sizes of decoded values in bytes, counted in the memory budget.
const (
	segmentCost = 112
	blockCost   = 64
	frameCost   = 40
	eventCost   = 40
)

// decoder converts an unpickled value to a snapshot. err is the first error. Stacks and frames that several blocks
// share are decoded once. Blocks, segments and events that occur twice in a file are an error.
type decoder struct {
	err      error
	budget   *pickle.Budget
	stacks   map[*pickle.List][]Frame
	turnover int64
	// device is the device whose events are being read; failures are its failed allocations.
	device   int
	failures []Failure
}

// maxFailures is the number of failed allocations that are stored.
const maxFailures = 1024

// A keyPath is a position in a snapshot, for messages: an element of the value at the path above.
type keyPath struct {
	parent *keyPath
	name   string
	index  int // -1: not an item of a list
}

func (p *keyPath) child(name string, index int) *keyPath { return &keyPath{p, name, index} }

func (p *keyPath) String() string {
	text := p.name + phrase.If(p.index >= 0, "[%d]", p.index)
	if p.parent != nil {
		return p.parent.String() + "." + text
	}
	return text
}

func (d *decoder) fail(where *keyPath, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%v: %w", where, fmt.Errorf(format, args...))
	}
}

func (d *decoder) spendBudget(bytes int) {
	if err := d.budget.Spend(int64(bytes)); err != nil && d.err == nil {
		d.err = err
	}
}

func (d *decoder) dict(v any, where *keyPath) *pickle.Dict {
	if m, ok := v.(*pickle.Dict); ok {
		return m
	}
	d.fail(where, "want a dict")
	return &pickle.Dict{}
}

// decodeOnce returns an error if a dict occurs a second time: blocks, segments and events must be distinct.
func (d *decoder) decodeOnce(v any, where *keyPath) *pickle.Dict {
	m := d.dict(v, where)
	if m.Decoded {
		d.fail(where, "stands in the snapshot twice")
	}
	m.Decoded = true
	return m
}

// list returns a list, which may be absent.
func (d *decoder) list(v any, where *keyPath) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case *pickle.List:
		return v.Items
	}
	d.fail(where, "want a list")
	return nil
}

// decodeEach decodes the elements of a list until an error occurs. cost is the size of a decoded element in bytes.
func decodeEach[T any](d *decoder, v any, above *keyPath, name string, cost int, decode func(any, *keyPath) T) []T {
	items := d.list(v, above.child(name, -1))
	d.spendBudget(cost * len(items))
	if d.err != nil || len(items) == 0 {
		return nil
	}
	out := make([]T, len(items))
	for i := range items {
		if out[i] = decode(items[i], above.child(name, i)); d.err != nil {
			return nil
		}
		items[i] = nil // is not needed again: leave it to the garbage collector
	}
	return out
}

func (d *decoder) integer(m *pickle.Dict, key string, where *keyPath, least, most int64) int64 {
	switch v := m.Get(key).(type) {
	case nil:
		return 0
	case int64:
		if v < least || v > most {
			d.fail(where.child(key, -1), "%d is not from %d to %d", v, least, most)
			return 0
		}
		return v
	case bool:
		return 0
	}
	d.fail(where.child(key, -1), "want an integer")
	return 0
}

func (d *decoder) bytes(m *pickle.Dict, key string, where *keyPath) int64 {
	return d.integer(m, key, where, 0, maxBytes)
}

func text(m *pickle.Dict, key string) string {
	s, _ := m.Get(key).(string)
	return s
}

func (d *decoder) snapshot(v any) *Snapshot {
	root := &keyPath{name: "snapshot", index: -1}
	m := d.dict(v, root)
	if m.Get("segments") == nil {
		d.fail(root, "there are no segments in it")
	}
	s := &Snapshot{SimulatedBy: text(m, "simulated_by")}
	s.Segments = decodeEach(d, m.Get("segments"), nil, "segments", segmentCost, d.segment)
	d.checkOverlap(s.Segments)
	traces := d.list(m.Get("device_traces"), root.child("device_traces", -1))
	if len(traces) > maxDevices {
		d.fail(root.child("device_traces", -1), "%d devices; PyTorch has at most %d", len(traces), maxDevices)
		traces = nil
	}
	for i, v := range traces {
		d.device = i
		events := decodeEach(d, v, nil, fmt.Sprintf("device_traces[%d]", i), eventCost, d.event)
		s.Traces = append(s.Traces, events)
	}
	s.Failures = d.failures
	if settings, ok := m.Get("allocator_settings").(*pickle.Dict); ok {
		s.AllocConf = text(settings, "PYTORCH_CUDA_ALLOC_CONF")
	}
	return s
}

// checkOverlap returns an error if two segments of a device overlap.
func (d *decoder) checkOverlap(segments []Segment) {
	order := lists.Ascending(len(segments))
	slices.SortFunc(order, func(a, b int) int {
		x, y := &segments[a], &segments[b]
		return cmp.Or(cmp.Compare(x.Device, y.Device), cmp.Compare(x.Address, y.Address), cmp.Compare(a, b))
	})
	for i := 1; i < len(order); i++ {
		a, b := &segments[order[i-1]], &segments[order[i]]
		if a.Device == b.Device && a.Address+a.Total > b.Address {
			d.fail((*keyPath)(nil).child("segments", order[i]), "overlaps segments[%d]", order[i-1])
			return
		}
	}
}

func (d *decoder) segment(v any, where *keyPath) Segment {
	m := d.decodeOnce(v, where)
	s := Segment{
		Device: int(d.integer(m, "device", where, 0, maxDevices-1)), Total: d.bytes(m, "total_size", where),
		Address: d.integer(m, "address", where, 0, maxAddress),
		Stream:  d.integer(m, "stream", where, -maxAddress, maxAddress),
	}
	s.Expandable, _ = m.Get("is_expandable").(bool)
	s.Blocks = decodeEach(d, m.Get("blocks"), where, "blocks", blockCost, d.block)
	address := s.Address
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.Address = address // older PyTorch does not say
		if address += b.Size; address > s.Address+s.Total {
			d.fail(where, "has blocks of more than its %d bytes", s.Total)
			break
		}
	}
	return s
}

func (d *decoder) block(v any, where *keyPath) Block {
	m := d.decodeOnce(v, where)
	return Block{
		Size: d.bytes(m, "size", where), Requested: d.bytes(m, "requested_size", where), State: text(m, "state"),
		Frames: d.stack(m, where),
	}
}

// stack returns the stack of a block or event. A frame's text counts once for each reference: each is searched.
func (d *decoder) stack(m *pickle.Dict, where *keyPath) []Frame {
	l, ok := m.Get("frames").(*pickle.List)
	if !ok || len(l.Items) == 0 {
		d.list(m.Get("frames"), where.child("frames", -1))
		return nil
	}
	if frames, ok := d.stacks[l]; ok {
		return frames
	}
	d.spendBudget(pickle.ItemCost + frameCost*len(l.Items))
	var frames []Frame
	for i := 0; i < len(l.Items) && d.err == nil; i++ {
		at := where.child("frames", i)
		f := d.dict(l.Items[i], at)
		frame := Frame{text(f, "filename"), d.integer(f, "line", at, -1, 1<<31), text(f, "name")}
		d.spendBudget(len(frame.File) + len(frame.Name))
		frames = append(frames, frame)
	}
	d.stacks[l] = frames
	return frames
}

func (d *decoder) event(v any, where *keyPath) Event {
	m := d.decodeOnce(v, where)
	e := Event{text(m, "action"), d.integer(m, "addr", where, 0, maxAddress), d.bytes(m, "size", where)}
	if e.Action == "oom" && len(d.failures) < maxFailures {
		d.failures = append(d.failures, Failure{d.device, e.Size, d.bytes(m, "device_free", where), d.stack(m, where)})
	}
	if d.turnover += e.Size; d.turnover > maxTurnover {
		d.fail(where, "the events add up to more than %d bytes", int64(maxTurnover))
	}
	return e
}

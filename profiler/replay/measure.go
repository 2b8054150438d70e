package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// Conditions are the settings of a measurement.
type Conditions struct {
	// Config holds the allocator settings; nil is [allocator.DefaultConfig].
	Config *allocator.Config
	// WarmUp is the number of untimed replays after the one that measures memory. Repeat is the number of timed
	// replays, at least one. A simulated device, whose times never vary, has one timed replay without warm-up.
	WarmUp, Repeat int
	// Verify tests the memory in an additional first replay. Every buffer is filled with a pattern when it is
	// allocated, and compared with it when it is freed. The device must be a [device.Verifier].
	Verify bool
}

// A Measurement is the result of several replays of a program on a device, with a kernel launch for every op.
type Measurement struct {
	// Run is the first replay, whose memory is measured but not its time. It also uses buffers that no op uses, such as
	// workspaces. The other replays had the same peaks unless MemoryVaried. If one of them ran out of memory, Run is
	// that one.
	*Run
	// MemoryVaried reports whether a later replay used another amount of memory.
	MemoryVaried bool
	// Baseline is the memory in use before the first replay; zero if unknown.
	Baseline device.Baseline
	// Device is the peak of the GPU's used memory in bytes, read after each new segment, including other processes.
	Device int64
	// Granularity is the number of bytes that the driver added to the segments at that peak.
	Granularity int64
	// Process is the peak of this process's GPU memory in bytes, as reported by NVML; -1 if unknown. It is read after
	// Device has increased: before memory is released, and at the ends of phases.
	Process int64
	// Neighbors are other processes seen on the GPU.
	Neighbors []device.Neighbor
	// Times holds the device times of each of Run.Phases for every timed replay; empty if the program did not fit.
	Times [][]time.Duration
	// Clocks are the lowest clocks after the timed replays, with all reasons for lower clocks; zero if unknown.
	Clocks device.Clocks
	// Verified is the number of buffers whose pattern was unchanged.
	Verified int
}

// StepTimes returns the time of the last step in each timed replay. Its caches are warm, as in all further steps.
func (m *Measurement) StepTimes() []time.Duration {
	last := -1
	for _, p := range m.Phases {
		last = max(last, p.Step)
	}
	var steps []time.Duration
	for _, times := range m.Times {
		var sum time.Duration
		for i, t := range times {
			if m.Phases[i].Step == last {
				sum += t
			}
		}
		steps = append(steps, sum)
	}
	return steps
}

// Measure replays a program on a device, with a kernel for every op. Like [Replay], it releases all memory, and running
// out of memory is a result.
func Measure(ctx context.Context, d device.Device, p *program.Program, c Conditions) (*Measurement, error) {
	m := &Measurement{Process: -1}
	w := &measurer{measurement: m, device: d, program: p, config: c.Config}
	if o, ok := d.(device.Observer); ok {
		w.observer = o
		m.Baseline = o.Baseline()
	}
	_, driven := d.(device.DriverReporter)
	w.computed = d.Simulated() && !driven
	if c.Verify {
		if err := w.verify(ctx); err != nil {
			return m, err
		}
	}
	if err := w.measureMemory(ctx); err != nil || m.OOM != nil {
		return m, err
	}
	if w.computed {
		return m, nil
	}
	for i := range c.WarmUp + max(c.Repeat, 1) {
		if err := w.measureTime(ctx, i >= c.WarmUp); err != nil || m.OOM != nil {
			return m, err
		}
	}
	return m, nil
}

// A measurer is the state of a measurement.
type measurer struct {
	measurement *Measurement
	device      device.Device
	observer    device.Observer // nil if the device is none
	// computed reports whether times and bytes are computed and never vary, unlike a simulated driver's.
	computed bool
	program  *program.Program
	config   *allocator.Config

	// hasUnseenBytes reports whether the GPU's used memory has increased since the process's memory was last read.
	hasUnseenBytes bool

	marks  []device.Event // the start of a replay, and the end of every phase
	events []device.Event // of streams that run side by side, by their numbers
	kernel device.Kernel  // its slices are used for one launch after the other
}

// measureMemory replays once and checks the memory: the GPU's used bytes, the bytes that NVML reports, that no memory
// is allocated twice, and that all of it can be written and read. Checks that take time are only made on a real device.
func (w *measurer) measureMemory(ctx context.Context) error {
	l := &addressLedger{program: w.program}
	if !w.computed {
		l.use = newTouching(w.device, w.program)
	}
	o := Options{Config: w.config, Source: &measuredSource{
		PagedSource: w.device, of: w, used: w.measurement.Baseline.Total(),
		added: map[uint64]int64{},
	}, Hooks: Hooks{
		Launch: w.launch, Record: w.record, Await: w.await,
		Mark: func(p program.Phase) error {
			w.observeMemory()
			w.noteNeighbors()
			if err := l.mark(p); err != nil {
				return err
			}
			return w.mark()
		},
		Trace: l.trace,
		End: func() error {
			w.observeMemory()
			return l.end()
		},
	}}
	run, err := w.replay(ctx, o, w.computed)
	w.measurement.Run = run
	return err
}

// measureTime replays with kernel launches only. If counts is set, it stores the times of the phases.
func (w *measurer) measureTime(ctx context.Context, counts bool) error {
	run, err := w.replay(ctx, Options{Config: w.config, Source: w.device, Hooks: Hooks{
		Launch: w.launch, Record: w.record, Await: w.await,
		Mark: func(program.Phase) error { return w.mark() },
	}}, counts)
	if err != nil {
		return err
	}
	m := w.measurement
	if c, ok := w.device.(device.ClockReporter); ok && counts {
		if now, ok := c.Clocks(); ok {
			m.Clocks = lowerClocks(m.Clocks, now)
		}
	}
	if run.Max != m.Max || run.OOM != nil {
		m.MemoryVaried = true
	}
	if run.OOM != nil {
		m.Run, m.Times = run, nil
	}
	return nil
}

// lowerClocks returns the minimum of two clock readings, with the reasons of both; a may be empty.
func lowerClocks(a, b device.Clocks) device.Clocks {
	if a.SM == 0 {
		return b
	}
	out := device.Clocks{SM: min(a.SM, b.SM), Memory: min(a.Memory, b.Memory)}
	out.Slowdowns = slices.Concat(a.Slowdowns, b.Slowdowns)
	slices.Sort(out.Slowdowns)
	out.Slowdowns = slices.Compact(out.Slowdowns)
	return out
}

func (w *measurer) replay(ctx context.Context, o Options, counts bool) (run *Run, err error) {
	defer func() { err = errors.Join(err, w.closeMarks()) }()
	if err := w.mark(); err != nil {
		return nil, err
	}
	before := w.minimumTime()
	run, err = Replay(ctx, w.program, o)
	if err != nil || !counts || run.OOM != nil {
		return run, err
	}
	times := make([]time.Duration, len(w.marks)-1)
	for i := range times {
		if times[i], err = w.marks[i+1].Since(w.marks[i]); err != nil {
			return run, err
		}
	}
	w.measurement.Times = append(w.measurement.Times, times)
	return run, w.checkPossible(times, w.minimumTime()-before)
}

// minimumTime returns the least possible time of the device's work so far; zero if unknown.
func (w *measurer) minimumTime() time.Duration {
	if t, ok := w.device.(device.TimeFloor); ok {
		return t.Floor()
	}
	return 0
}

// checkPossible returns an error for times that are too short for any GPU. Simulated times are never called measured,
// so they are not checked.
func (w *measurer) checkPossible(times []time.Duration, floor time.Duration) error {
	var took time.Duration
	for _, t := range times {
		took += t
	}
	if took >= floor || w.device.Simulated() {
		return nil
	}
	return &ImpossibleError{Device: w.device.Name(), Product: w.device.GPU().Product, Measured: took, Minimum: floor}
}

// An ImpossibleError reports that a replay took less time than the GPU needs for its work: kernels did not run, or the
// device's clock is wrong.
type ImpossibleError struct {
	Device, Product   string
	Measured, Minimum time.Duration
}

func (e *ImpossibleError) Error() string {
	return fmt.Sprintf("%s: a replay took %v by the device's clock, and no %s can do its work in less than %v; its "+
		"times are not to be trusted",
		e.Device, e.Measured.Round(time.Microsecond), e.Product, e.Minimum.Round(time.Microsecond))
}

func (w *measurer) mark() error {
	e, err := w.device.Record()
	if err == nil {
		w.marks = append(w.marks, e)
	}
	return err
}

func (w *measurer) closeMarks() error {
	errs := lists.Map(w.marks, func(e device.Event) error { return e.Close() })
	w.marks = w.marks[:0]
	for _, e := range w.events {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	w.events = nil
	return errors.Join(errs...)
}

// record records an event of the program on a stream of the device.
func (w *measurer) record(event uint32) error {
	s, ok := w.device.(device.Streamer)
	if !ok {
		return nil
	}
	if w.events == nil {
		w.events = make([]device.Event, len(w.program.Events))
	}
	e, err := s.RecordOn(w.program.Events[event].Stream)
	w.events[event] = e
	return err
}

// await makes a stream of the device wait for an event.
func (w *measurer) await(wait program.Wait) error {
	s, ok := w.device.(device.Streamer)
	switch {
	case !ok:
		return nil
	case int(wait.Event) >= len(w.events) || w.events[wait.Event] == nil:
		return fmt.Errorf("wait for event %d, which is not recorded yet", wait.Event)
	}
	return s.Await(wait.Stream, w.events[wait.Event])
}

// noteNeighbors adds the other processes on the GPU to the result.
func (w *measurer) noteNeighbors() {
	if w.observer != nil {
		w.measurement.Neighbors = mergeNeighbors(w.measurement.Neighbors, w.observer.Neighbors())
	}
}

// mergeNeighbors merges two lists of processes. Each process has the largest memory that was seen.
func mergeNeighbors(known, seen []device.Neighbor) []device.Neighbor {
	for _, n := range seen {
		at := -1
		for i, k := range known {
			if k.PID == n.PID {
				at = i
			}
		}
		if at < 0 {
			known = append(known, n)
		} else {
			known[at].Used = max(known[at].Used, n.Used)
		}
	}
	return known
}

// launch launches a kernel with the work of an op.
func (w *measurer) launch(op *program.Op, address func(uint32) uint64) error {
	k := &w.kernel
	k.Work, k.Precision, k.FLOPs = op.Work, op.Precision, op.FLOPs
	k.Stream, k.Sent = op.Stream, w.program.SentBytes(op)
	x := w.program.ProductOf(op)
	k.M, k.N, k.K, k.Batch, k.Window = x.M, x.N, x.K, x.Batch, x.Window
	k.Reads = w.ranges(k.Reads[:0], op.Reads, address)
	k.Writes = w.ranges(k.Writes[:0], op.Writes, address)
	return w.device.Launch(*k)
}

func (w *measurer) ranges(to []device.Range, s program.Span, address func(uint32) uint64) []device.Range {
	for _, o := range w.program.Operands[s.From:s.To] {
		to = append(to, device.Range{Addr: address(o.Buffer), Bytes: o.Bytes})
	}
	return to
}

// verify replays without kernels, with a pattern in every buffer.
func (w *measurer) verify(ctx context.Context) error {
	v, ok := w.device.(device.Verifier)
	if !ok {
		return fmt.Errorf("%s is simulated and has no memory to verify", w.device.Name())
	}
	patterns, err := v.Patterns()
	if err != nil {
		return err
	}
	use := &bufferVerifier{patterns: patterns}
	l := &addressLedger{program: w.program, use: use}
	_, err = Replay(ctx, w.program,
		Options{Config: w.config, Source: w.device, Hooks: Hooks{Trace: l.trace, Mark: l.mark, End: l.end}})
	w.measurement.Verified = use.verified
	return errors.Join(err, patterns.Close())
}

// A measuredSource is a device's memory. It reads the GPU's used memory and this process's after each new segment.
type measuredSource struct {
	allocator.PagedSource
	of *measurer
	// used is the memory in use after the last call, and added the driver's overhead of each segment or page by its
	// address, both in bytes.
	used  int64
	added map[uint64]int64
}

// maxAddedBytes limits the driver's overhead of a segment, in bytes. A larger increase belongs to another process.
const maxAddedBytes = 64 << 20

// Get allocates a segment of device memory, for [allocator.Source].
func (g *measuredSource) Get(size int64) (uint64, error) {
	addr, err := g.PagedSource.Get(size)
	if err != nil {
		return 0, err
	}
	if err := g.read(addr, size); err != nil {
		return 0, errors.Join(err, g.Put(addr, size))
	}
	return addr, nil
}

// Map maps memory into a reserved range, for [allocator.PagedSource].
func (g *measuredSource) Map(addr uint64, size int64) error {
	if err := g.PagedSource.Map(addr, size); err != nil {
		return err
	}
	if err := g.read(addr, size); err != nil {
		return errors.Join(err, g.Unmap(addr, size))
	}
	return nil
}

func (g *measuredSource) read(addr uint64, size int64) error {
	free, err := g.of.device.AvailableBytes()
	if err != nil {
		return err
	}
	m := g.of.measurement
	used := g.Total() - free
	if more := used - g.used - size; g.used > 0 && more > 0 && more < maxAddedBytes {
		g.added[addr] = more
	}
	g.used = used
	if used > m.Device {
		m.Device, g.of.hasUnseenBytes, m.Granularity = used, true, 0
		for _, bytes := range g.added {
			m.Granularity += bytes
		}
	}
	return nil
}

// noteFree records that the memory at an address was released.
func (g *measuredSource) noteFree(addr uint64, size int64) {
	g.used -= size + g.added[addr]
	delete(g.added, addr)
}

// Put frees a segment, for [allocator.Source].
func (g *measuredSource) Put(addr uint64, size int64) error {
	g.of.observeMemory()
	g.noteFree(addr, size)
	return g.PagedSource.Put(addr, size)
}

// Unmap unmaps memory of a reserved range, for [allocator.PagedSource].
func (g *measuredSource) Unmap(addr uint64, size int64) error {
	g.of.observeMemory()
	g.noteFree(addr, size)
	return g.PagedSource.Unmap(addr, size)
}

// observeMemory reads this process's memory in NVML if the GPU's used memory has increased: before memory is released,
// and at the ends of phases. Reading it at each segment would take longer than allocating the segments.
func (w *measurer) observeMemory() {
	if !w.hasUnseenBytes || w.observer == nil {
		return
	}
	w.hasUnseenBytes = false
	if bytes, ok := w.observer.ProcessMemory(); ok {
		w.measurement.Process = max(w.measurement.Process, bytes)
	}
}

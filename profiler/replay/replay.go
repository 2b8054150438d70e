package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// Options are the settings of a replay. The zero value has default allocator settings on a GPU without a memory limit.
type Options struct {
	// Config holds the allocator settings; nil is [allocator.DefaultConfig].
	Config *allocator.Config
	// Source is the memory from which the allocator allocates segments. All of it is released at the end of the replay.
	// Nil is simulated memory of the next two sizes.
	Source allocator.Source
	// Total is the size of the GPU's memory; zero is no limit.
	Total int64
	// Available is the part of Total that the allocator may use: without the CUDA context, libraries and other
	// processes. Zero is all of it.
	Available int64
	// Rising sets [allocator.SimulatedMemory.Rising] if Source is nil.
	Rising bool
	// Timeline reports whether Run.Timeline is recorded.
	Timeline bool
	// Hooks are called during the replay.
	Hooks Hooks
}

// Hooks let a device run the ops of a program. Nil hooks are skipped; an error of a hook ends the replay.
type Hooks struct {
	// Launch runs an op. address returns the device address of a live buffer.
	Launch func(op *program.Op, address func(buffer uint32) uint64) error
	// Record records an event on its stream. Await makes a stream wait for an event.
	Record func(event uint32) error
	Await  func(program.Wait) error
	// Mark is called when a phase ends, before the peaks are reset.
	Mark func(phase program.Phase) error
	// End is called after the last instruction, or after one that does not fit, before the live buffers are freed.
	End func() error
	// Trace is called for every event of the allocator, with the index of the instruction that caused it.
	Trace func(instruction int, event allocator.TraceEvent)
}

// unlimitedBytes is the memory size of a GPU without a limit. Address ranges may be an eighth larger.
const unlimitedBytes = 1 << 46

// source returns the memory from which the allocator allocates segments.
func (o *Options) source() (allocator.Source, error) {
	if o.Source != nil {
		if o.Total != 0 || o.Available != 0 {
			return nil, errors.New("replay: Source defines the memory; leave Total and Available zero")
		}
		return o.Source, nil
	}
	total := o.Total
	total = cmp.Or(total, unlimitedBytes)
	available := o.Available
	available = cmp.Or(available, total)
	if total < 0 || available < 0 || available > total {
		return nil, fmt.Errorf("replay: Available (%d bytes) must be from 0 to Total (%d bytes)", available, total)
	}
	memory := allocator.NewMemory(total, total-available)
	memory.Rising = o.Rising
	return memory, nil
}

// cancelCheckInterval is the number of instructions between two checks of the context.
const cancelCheckInterval = 1024

// Replay executes a program. If the context is canceled, a hook or the device fails, or the program frees unallocated
// memory, it returns the run so far with the error. An allocation that does not fit also ends the replay, but is not an
// error: see Run.OOM.
func Replay(ctx context.Context, p *program.Program, o Options) (*Run, error) {
	r, err := newReplayer(p, o)
	if err != nil {
		return nil, err
	}
	err = r.run(ctx)
	if err == nil && o.Hooks.End != nil {
		err = o.Hooks.End()
	}
	r.finish()
	if o.Source != nil {
		err = errors.Join(err, r.releaseAll())
	}
	r.heap.Release()
	kept := r.replayTables // without the replay that had them
	tablePool.Put(&kept)
	return r.result, err
}

// SnapshotAt replays a program in simulated memory up to and including an instruction, and returns the layout of the
// heap after it. The instruction of Run.Peak gives the layout at the peak. Hooks are not called. An instruction that
// does not fit is left out.
func SnapshotAt(ctx context.Context, p *program.Program, o Options, instruction int) (*Layout, error) {
	o.Source, o.Hooks, o.Timeline = nil, Hooks{}, false
	if instruction < 0 || instruction >= len(p.Instructions) {
		return nil, fmt.Errorf("replay: the program has no instruction %d", instruction)
	}
	short := *p
	short.Instructions = p.Instructions[:instruction+1]
	r, err := newReplayer(&short, o)
	if err != nil {
		return nil, err
	}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	layout := &Layout{Segments: r.heap.Snapshot(), Buffers: make(map[uint64]uint32)}
	for buffer, b := range r.blocks {
		if b != nil {
			layout.Buffers[b.Addr()] = uint32(buffer)
		}
	}
	return layout, nil
}

// Layout describes an allocator's memory: its segments, their blocks, and the buffers in them.
type Layout struct {
	Segments []allocator.SegmentInfo
	// Buffers maps the address of a block to the buffer in it.
	Buffers map[uint64]uint32
}

// A replayer is the state of a replay.
type replayer struct {
	program *program.Program
	heap    *allocator.Allocator
	options Options
	result  *Run

	at int // the instruction under way
	replayTables
	peak peakUsage
}

// replayTables hold the block and the lifetime of each buffer of a program, by its number.
type replayTables struct {
	blocks []*allocator.Block // nil while it does not live
	lives  []bufferLifetime   // kept after the free
}

// tablePool holds tables for reuse in later replays.
var tablePool = sync.Pool{New: func() any { return &replayTables{} }}

// zeroedSlice returns n zero elements, in the memory of a slice if it is large enough.
func zeroedSlice[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// bufferLifetime records a buffer in a replay: the size of its block in bytes, and the one-based indices of the
// instructions that allocated and freed it; zero is not yet.
type bufferLifetime struct {
	size       int64
	born, died uint32
}

// peakUsage is the state at the highest allocated bytes so far. The rest of a [MemoryState] follows from the program.
type peakUsage struct {
	instruction         int
	allocated, reserved int64
}

// allocator makes the caching allocator of a replay.
func (o *Options) allocator() (*allocator.Allocator, error) {
	source, err := o.source()
	if err != nil {
		return nil, err
	}
	config := allocator.DefaultConfig()
	if o.Config != nil {
		config = *o.Config
	}
	heap, err := allocator.New(source, config)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	heap.CountBytesOnly()
	return heap, nil
}

func newReplayer(p *program.Program, o Options) (*replayer, error) {
	heap, err := o.allocator()
	if err != nil {
		return nil, err
	}
	r := &replayer{program: p, heap: heap, options: o, result: &Run{}, peak: peakUsage{instruction: -1}}
	r.replayTables = *tablePool.Get().(*replayTables)
	r.blocks, r.lives = zeroedSlice(r.blocks, len(p.Buffers)), zeroedSlice(r.lives, len(p.Buffers))
	if trace := o.Hooks.Trace; trace != nil {
		heap.SetTrace(func(e allocator.TraceEvent) { trace(r.at, e) })
	}
	return r, nil
}

// run executes the instructions until one fails.
func (r *replayer) run(ctx context.Context) error {
	address := r.address
	idle := r.options.Hooks.Launch == nil
	for i, in := range r.program.Instructions {
		if i%cancelCheckInterval == 0 && ctx.Err() != nil {
			return fmt.Errorf("replay of the step stopped at instruction %d: %w", i, context.Cause(ctx))
		}
		if idle && (in.Kind == program.Launch || in.Kind == program.RecordEvent || in.Kind == program.AwaitEvent) {
			continue
		}
		r.at = i
		var err error
		switch in.Kind {
		case program.Alloc:
			err = r.alloc(in.Arg)
		case program.Free:
			err = r.free(in.Arg)
		case program.Launch:
			err = r.launch(ctx, in.Arg, address)
		case program.MarkPhase:
			err = r.mark(in.Arg)
		case program.EmptyCache:
			err = r.heap.EmptyCache()
		case program.RecordEvent, program.AwaitEvent:
			err = r.runStreamCommand(in)
		default:
			err = fmt.Errorf("there is no kind of instruction %d", in.Kind)
		}
		if err != nil {
			if oom, ok := errors.AsType[*allocator.OOMError](err); ok {
				r.outOfMemory(in.Arg, oom)
				return nil
			}
			return fmt.Errorf("replay of the step stopped at instruction %d: %w", i, err)
		}
		if r.options.Timeline && changesMemory(in.Kind) {
			r.addTimelinePoint(in)
		}
	}
	return nil
}

// changesMemory reports whether instructions of a kind have a point in the timeline.
func changesMemory(k program.Kind) bool {
	return k == program.Alloc || k == program.Free || k == program.EmptyCache
}

// runStreamCommand runs an instruction about an event on the device.
func (r *replayer) runStreamCommand(in program.Instruction) error {
	h := &r.options.Hooks
	switch {
	case in.Kind == program.RecordEvent && int(in.Arg) >= len(r.program.Events):
		return fmt.Errorf("there is no event %d to record", in.Arg)
	case in.Kind == program.RecordEvent && h.Record != nil:
		return h.Record(in.Arg)
	case in.Kind == program.AwaitEvent && int(in.Arg) >= len(r.program.Waits):
		return fmt.Errorf("there is no wait %d", in.Arg)
	case in.Kind == program.AwaitEvent && h.Await != nil:
		return h.Await(r.program.Waits[in.Arg])
	}
	return nil
}

func (r *replayer) alloc(buffer uint32) error {
	if int(buffer) >= len(r.blocks) {
		return fmt.Errorf("there is no buffer %d to allocate", buffer)
	}
	if r.lives[buffer].born != 0 {
		return fmt.Errorf("buffer %d is allocated twice", buffer)
	}
	spec := &r.program.Buffers[buffer]
	if spec.Bytes <= 0 || spec.Class >= program.NumClasses {
		return fmt.Errorf("buffer %d has an invalid size (%d bytes) or class (%d)", buffer, spec.Bytes, spec.Class)
	}
	b, err := r.heap.MallocOn(allocator.Stream(spec.Stream), spec.Bytes)
	if err != nil {
		return err
	}
	r.blocks[buffer] = b
	r.lives[buffer] = bufferLifetime{size: b.Size(), born: uint32(r.at) + 1}
	if now := r.heap.Allocated(); now > r.peak.allocated {
		r.peak = peakUsage{r.at, now, r.heap.Reserved()}
	}
	return nil
}

func (r *replayer) free(buffer uint32) error {
	if int(buffer) >= len(r.blocks) || r.blocks[buffer] == nil {
		return fmt.Errorf("buffer %d is freed but not allocated", buffer)
	}
	r.heap.Free(r.blocks[buffer])
	r.blocks[buffer] = nil
	r.lives[buffer].died = uint32(r.at) + 1
	return nil
}

func (r *replayer) launch(ctx context.Context, op uint32, address func(uint32) uint64) error {
	if err := ctx.Err(); err != nil { // kernels take time
		return context.Cause(ctx)
	}
	if int(op) >= len(r.program.Ops) {
		return fmt.Errorf("there is no operator call %d to run", op)
	}
	o := &r.program.Ops[op]
	for _, span := range [...]program.Span{o.Reads, o.Writes} {
		if span.From > span.To || int(span.To) > len(r.program.Operands) {
			return fmt.Errorf("operator call %d refers to operands that do not exist", op)
		}
		for _, operand := range r.program.Operands[span.From:span.To] {
			if int(operand.Buffer) >= len(r.blocks) || r.blocks[operand.Buffer] == nil {
				return fmt.Errorf("operator call %d uses buffer %d, which is not allocated", op, operand.Buffer)
			}
		}
	}
	if err := r.options.Hooks.Launch(o, address); err != nil {
		return fmt.Errorf("operator call %d: %w", op, err)
	}
	return nil
}

func (r *replayer) address(buffer uint32) uint64 { return r.blocks[buffer].Addr() }

func (r *replayer) mark(phase uint32) error {
	if int(phase) >= len(r.program.Phases) {
		return fmt.Errorf("there is no phase %d to end", phase)
	}
	p := r.program.Phases[phase]
	if r.options.Hooks.Mark != nil {
		if err := r.options.Hooks.Mark(p); err != nil {
			return fmt.Errorf("end of phase %d:%s: %w", p.Step, p.Name, err)
		}
	}
	r.endPhase(p)
	return nil
}

// endPhase adds a phase to the result and resets the peaks.
func (r *replayer) endPhase(p program.Phase) {
	highest := r.maxUsage()
	r.result.Max = r.result.Max.max(highest)
	r.result.Phases = append(r.result.Phases, Phase{Phase: p, End: r.usage(), Max: highest})
	r.heap.ResetPeakStats()
}

func (r *replayer) usage() Usage {
	h := r.heap
	return Usage{h.Requested(), h.Allocated(), h.Active(), h.Reserved()}
}

// maxUsage returns the peaks since the last reset.
func (r *replayer) maxUsage() Usage {
	s := r.heap.Stats()
	return Usage{
		s.RequestedBytes[allocator.AllPools].Peak, s.AllocatedBytes[allocator.AllPools].Peak,
		s.ActiveBytes[allocator.AllPools].Peak, s.ReservedBytes[allocator.AllPools].Peak,
	}
}

func (r *replayer) addTimelinePoint(in program.Instruction) {
	if r.result.Timeline == nil {
		r.result.Timeline = make([]Point, 0, len(r.program.Instructions))
	}
	r.result.Timeline = append(r.result.Timeline, Point{r.at, r.usage()})
}

// outOfMemory completes the result after a request that did not fit.
func (r *replayer) outOfMemory(buffer uint32, cause *allocator.OOMError) {
	b := r.program.Buffers[buffer]
	o := &OOM{
		Instruction: r.at, Buffer: buffer, Class: b.Class, Site: r.site(b),
		Phase: r.phase(r.at), Requested: b.Bytes, Cause: cause,
		At: r.momentAt(r.at-1, cause.Reserved),
	}
	o.At.Phase = o.Phase
	r.result.OOM = o
	r.endPhase(program.Phase{Step: o.Phase.Step, Name: "oom"})
}

// finish completes the result at the end of the program.
func (r *replayer) finish() {
	r.result.Stats = r.heap.Stats()
	r.result.Max = r.result.Max.max(r.maxUsage())
	r.result.Peak = r.momentAt(r.peak.instruction, r.peak.reserved)
}

// releaseAll frees all live buffers and releases every segment.
func (r *replayer) releaseAll() error {
	r.heap.SetTrace(nil)
	for i, b := range r.blocks {
		r.heap.Free(b)
		r.blocks[i] = nil
	}
	if err := r.heap.EmptyCache(); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return nil
}

// momentAt returns the memory state after an instruction.
func (r *replayer) momentAt(instruction int, reserved int64) MemoryState {
	m := MemoryState{Instruction: instruction, Phase: r.phase(instruction)}
	now := uint32(instruction + 1)
	for buffer, l := range r.lives {
		if l.born == 0 || l.born > now || l.died != 0 && l.died <= now {
			continue
		}
		b := r.program.Buffers[buffer]
		h := Holding{uint32(buffer), b.Class, b.Bytes, l.size}
		m.Live = append(m.Live, h)
		m.Requested[b.Class] += h.Requested
		m.Allocated[b.Class] += h.Allocated
	}
	allocated := m.Allocated.Total()
	m.Usage = Usage{m.Requested.Total(), allocated, allocated, reserved}
	return m
}

// site returns the site that allocated a buffer; zero if unknown.
func (r *replayer) site(b program.Buffer) program.Site {
	if int(b.Site) >= len(r.program.Sites) {
		return program.Site{}
	}
	return r.program.Sites[b.Site]
}

// phase returns the phase of an instruction, which the next mark ends. After the last mark, the phase has no name and
// belongs to the last step.
func (r *replayer) phase(instruction int) program.Phase {
	from := max(instruction, 0)
	rest := r.program.Instructions[from:]
	i := slices.IndexFunc(rest, func(in program.Instruction) bool { return in.Kind == program.MarkPhase })
	if i >= 0 && int(rest[i].Arg) < len(r.program.Phases) {
		return r.program.Phases[rest[i].Arg]
	}
	if n := len(r.result.Phases); n > 0 {
		return program.Phase{Step: r.result.Phases[n-1].Step}
	}
	return program.Phase{}
}

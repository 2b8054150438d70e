package program

import "fmt"

// Validate returns an error unless all indices into tables are within bounds, and each buffer is allocated once before
// its first use, freed at most once, and not used afterwards. The error names the first wrong instruction.
func (p *Program) Validate() error {
	v := validator{p: p, state: make([]bufferState, len(p.Buffers)), recorded: make([]bool, len(p.Events))}
	for at, i := range p.Instructions {
		if err := v.instruction(i); err != nil {
			return fmt.Errorf("the recording is damaged at instruction %d: %w; record it again", at, err)
		}
	}
	return nil
}

type bufferState uint8

const (
	unallocated bufferState = iota
	allocated
	freed
)

func (s bufferState) String() string {
	return [...]string{"not allocated yet", "allocated", "freed"}[s]
}

type validator struct {
	p     *Program
	state []bufferState
	// recorded reports for each event whether it was recorded on a stream.
	recorded []bool
}

func (v *validator) instruction(i Instruction) error {
	switch i.Kind {
	case Alloc:
		return v.alloc(i.Arg)
	case Free:
		if err := v.expectState(i.Arg, allocated); err != nil {
			return fmt.Errorf("cannot free: %w", err)
		}
		v.state[i.Arg] = freed
	case Launch:
		return v.launch(i.Arg)
	case MarkPhase:
		if int(i.Arg) >= len(v.p.Phases) {
			return fmt.Errorf("there is no phase %d", i.Arg)
		}
	case EmptyCache:
	case RecordEvent:
		return v.record(i.Arg)
	case AwaitEvent:
		return v.await(i.Arg)
	default:
		return fmt.Errorf("there is no kind of instruction %d", i.Kind)
	}
	return nil
}

func (v *validator) alloc(b uint32) error {
	if err := v.expectState(b, unallocated); err != nil {
		return fmt.Errorf("cannot allocate: %w", err)
	}
	buffer := v.p.Buffers[b]
	switch {
	case buffer.Bytes <= 0:
		return fmt.Errorf("buffer %d has %d bytes: need 1 or more", b, buffer.Bytes)
	case buffer.Class >= NumClasses:
		return fmt.Errorf("buffer %d has the unknown class %d", b, buffer.Class)
	case int(buffer.Site) >= len(v.p.Sites):
		return fmt.Errorf("buffer %d has the unknown line of code (site) %d", b, buffer.Site)
	case !v.isKnownStream(buffer.Stream):
		return fmt.Errorf("buffer %d is on the unknown stream %d", b, buffer.Stream)
	}
	v.state[b] = allocated
	return nil
}

func (v *validator) launch(op uint32) error {
	if int(op) >= len(v.p.Ops) {
		return fmt.Errorf("there is no operator call %d", op)
	}
	o := v.p.Ops[op]
	if o.Work >= numWorks || o.Precision >= numPrecisions || int(o.Site) >= len(v.p.Sites) {
		return fmt.Errorf("operator call %d has an unknown class of work, precision or line of code (site)", op)
	}
	if !v.isKnownStream(o.Stream) {
		return fmt.Errorf("operator call %d is on the unknown stream %d", op, o.Stream)
	}
	if int(o.ProductIndex) > len(v.p.Products) {
		return fmt.Errorf("operator call %d refers to matrix product %d of %d", op, o.ProductIndex, len(v.p.Products))
	}
	for _, span := range []Span{o.Reads, o.Writes} {
		if span.From > span.To || int(span.To) > len(v.p.Operands) {
			return fmt.Errorf("operator call %d refers to operands %d to %d, and there are %d", op, span.From, span.To,
				len(v.p.Operands))
		}
		for _, x := range v.p.Operands[span.From:span.To] {
			if err := v.expectState(x.Buffer, allocated); err != nil {
				return fmt.Errorf("operator call %d: %w", op, err)
			}
			if size := v.p.Buffers[x.Buffer].Bytes; x.Bytes < 0 || x.Bytes > size {
				return fmt.Errorf("operator call %d uses %d bytes of %d of buffer %d", op, x.Bytes, size, x.Buffer)
			}
		}
	}
	return nil
}

func (v *validator) expectState(b uint32, want bufferState) error {
	if int(b) >= len(v.state) {
		return fmt.Errorf("there is no buffer %d", b)
	}
	if v.state[b] != want {
		return fmt.Errorf("buffer %d is %v", b, v.state[b])
	}
	return nil
}

func (v *validator) isKnownStream(s Stream) bool { return int(s) < max(1, len(v.p.Streams)) }

func (v *validator) record(event uint32) error {
	switch {
	case int(event) >= len(v.p.Events):
		return fmt.Errorf("there is no event %d", event)
	case !v.isKnownStream(v.p.Events[event].Stream):
		return fmt.Errorf("event %d is on the unknown stream %d", event, v.p.Events[event].Stream)
	case v.recorded[event]:
		return fmt.Errorf("event %d is recorded twice", event)
	}
	v.recorded[event] = true
	return nil
}

func (v *validator) await(wait uint32) error {
	if int(wait) >= len(v.p.Waits) {
		return fmt.Errorf("there is no wait %d", wait)
	}
	w := v.p.Waits[wait]
	switch {
	case !v.isKnownStream(w.Stream):
		return fmt.Errorf("wait %d is on the unknown stream %d", wait, w.Stream)
	case int(w.Event) >= len(v.recorded) || !v.recorded[w.Event]:
		return fmt.Errorf("event %d is awaited before it is recorded", w.Event)
	}
	return nil
}

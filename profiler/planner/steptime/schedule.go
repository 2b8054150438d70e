package steptime

import (
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// A Schedule is the work of a step in several streams, in the order in which it is
// given to them: kernels, collectives, events and waits.
type Schedule []Entry

// Entry is a part of a schedule: work of a stream up to an event or a wait.
type Entry struct {
	Stream program.Stream `json:",omitempty"`
	// Work are kernels of the stream that follow each other.
	Work Load `json:",omitzero"`
	// Sent is the time that a collective's bytes take on the links, in seconds.
	Sent float64 `json:",omitempty"`
	// Event is one that is recorded after the work, Wait one that the stream awaits
	// before it; both by their numbers plus one, zero is none.
	Event uint32 `json:",omitempty"`
	Wait  uint32 `json:",omitempty"`
}

// add appends an instruction of a program.
func (s *Schedule) add(p *program.Program, in program.Instruction, gpu *device.GPU) {
	switch in.Kind {
	case program.Launch:
		op := &p.Ops[in.Arg]
		if op.Work.Collective() {
			seconds := 0.0
			if gpu.Link > 0 {
				seconds = float64(p.Traffic(op)) / gpu.Link
			}
			*s = append(*s, Entry{Stream: op.Stream, Sent: seconds})
			return
		}
		if n := len(*s); n == 0 || (*s)[n-1].Stream != op.Stream || (*s)[n-1].Event != 0 || (*s)[n-1].Sent > 0 {
			*s = append(*s, Entry{Stream: op.Stream})
		}
		(*s)[len(*s)-1].Work.add(p, op, gpu)
	case program.Record:
		*s = append(*s, Entry{Stream: p.Events[in.Arg].Stream, Event: in.Arg + 1})
	case program.Await:
		w := p.Waits[in.Arg]
		*s = append(*s, Entry{Stream: w.Stream, Wait: w.Event + 1})
	}
}

// seconds is how long the schedule takes if the kernels take what e says and
// collectives run at the full speed of the links, side by side with kernels of other
// streams.
func (s Schedule) seconds(e *Efficiency) float64 {
	clocks := map[program.Stream]float64{}
	events := map[uint32]float64{}
	end := 0.0
	for i := range s {
		x := &s[i]
		now := clocks[x.Stream]
		if x.Wait != 0 { // one of an earlier step is over
			now = max(now, events[x.Wait])
		}
		now += e.kernels(&x.Work) + x.Sent
		clocks[x.Stream] = now
		if x.Event != 0 {
			events[x.Event] = now
		}
		end = max(end, now)
	}
	return end
}

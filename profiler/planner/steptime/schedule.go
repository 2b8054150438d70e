package steptime

import (
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// A schedule is the work of a step in several streams, in the order in which it is
// given to them: kernels, collectives, events and waits.
type schedule []entry

// entry is a part of a schedule: work of a stream up to an event or a wait.
type entry struct {
	stream program.Stream
	// work are kernels of the stream that follow each other.
	work Load
	// sent is the time that a collective's bytes take on the links, in seconds.
	sent float64
	// event is one that is recorded behind the work, wait one that the stream awaits
	// before it; both by their numbers plus one, zero is none.
	event, wait uint32
}

// add appends an instruction of a program.
func (s *schedule) add(p *program.Program, in program.Instruction, gpu *device.GPU) {
	switch in.Kind {
	case program.Launch:
		op := &p.Ops[in.Arg]
		if op.Work.Collective() {
			seconds := 0.0
			if gpu.Link > 0 {
				seconds = float64(p.Traffic(op)) / gpu.Link
			}
			*s = append(*s, entry{stream: op.Stream, sent: seconds})
			return
		}
		if n := len(*s); n == 0 || (*s)[n-1].stream != op.Stream || (*s)[n-1].event != 0 || (*s)[n-1].sent > 0 {
			*s = append(*s, entry{stream: op.Stream})
		}
		(*s)[len(*s)-1].work.add(p, op, gpu)
	case program.Record:
		*s = append(*s, entry{stream: p.Events[in.Arg].Stream, event: in.Arg + 1})
	case program.Await:
		w := p.Waits[in.Arg]
		*s = append(*s, entry{stream: w.Stream, wait: w.Event + 1})
	}
}

// seconds is how long the schedule takes if the kernels take what e says and
// collectives run at the full speed of the links, side by side with kernels of other
// streams.
func (s schedule) seconds(e *Efficiency) float64 {
	clocks := map[program.Stream]float64{}
	events := map[uint32]float64{}
	end := 0.0
	for i := range s {
		x := &s[i]
		now := clocks[x.stream]
		if x.wait != 0 { // one of an earlier step is over
			now = max(now, events[x.wait])
		}
		now += e.kernels(&x.work) + x.sent
		clocks[x.stream] = now
		if x.event != 0 {
			events[x.event] = now
		}
		end = max(end, now)
	}
	return end
}

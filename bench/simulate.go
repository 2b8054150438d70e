package bench

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/program"
)

type simPhase struct {
	program.Phase
	Allocated, PeakAllocated, Reserved, PeakReserved int64
}

type simOOM struct {
	Want, Free int64
	Buffer     program.Buffer
	Site       program.Site
	Phase      program.Phase
}

type simRun struct {
	Requested, Allocated, Reserved, Device, Retries int64
	Classes                                         program.Breakdown
	Peak                                            program.Phase
	Phases                                          []simPhase
	OOM                                             *simOOM
}

func simulate(p *program.Program, gpu device.GPU, conf allocator.Config) (*simRun, error) {
	d, err := sim.New(gpu, 0)
	if err != nil {
		return nil, err
	}
	a, err := allocator.New(d, conf)
	if err != nil {
		return nil, err
	}
	blocks := make([]*allocator.Block, len(p.Buffers))
	var now program.Breakdown
	var r simRun
	next := 0
	phase := func() program.Phase {
		for i := next; i < len(p.Phases); i++ {
			return p.Phases[i]
		}
		return program.Phase{Name: "end"}
	}
	end := func(ph program.Phase) {
		s := a.Stats()
		sp := simPhase{ph, s.AllocatedBytes[0].Current, s.AllocatedBytes[0].Peak, s.ReservedBytes[0].Current, s.ReservedBytes[0].Peak}
		r.Phases = append(r.Phases, sp)
		r.Reserved = max(r.Reserved, sp.PeakReserved)
		r.Requested = max(r.Requested, s.RequestedBytes[0].Peak)
		r.Retries = s.NumAllocRetries
		a.ResetPeakStats()
	}
	for _, in := range p.Instructions {
		switch in.Kind {
		case program.Alloc:
			b := p.Buffers[in.Arg]
			blk, err := a.Malloc(b.Bytes)
			var oom *allocator.OOMError
			if errors.As(err, &oom) {
				r.OOM = &simOOM{Want: b.Bytes, Free: d.Free(), Buffer: b, Site: p.Sites[b.Site], Phase: phase()}
				end(program.Phase{Step: phase().Step, Name: "oom"})
				r.Device = d.Peak()
				return &r, nil
			}
			if err != nil {
				return nil, fmt.Errorf("replay: %w", err)
			}
			blocks[in.Arg] = blk
			now[b.Class] += blk.Size()
			if t := a.Allocated(); t > r.Allocated {
				r.Allocated, r.Classes, r.Peak = t, now, phase()
			}
		case program.Free:
			now[p.Buffers[in.Arg].Class] -= blocks[in.Arg].Size()
			a.Free(blocks[in.Arg])
		case program.Mark:
			end(p.Phases[in.Arg])
			next = int(in.Arg) + 1
		case program.EmptyCache:
			if err := a.EmptyCache(); err != nil {
				return nil, err
			}
		}
	}
	r.Device = d.Peak()
	return &r, nil
}

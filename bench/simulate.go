package bench

import (
	"context"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// simulation is a replay on a simulated board.
type simulation struct {
	*replay.Run
	// device is the most memory of the board that was in use, without that of
	// other processes, bytes.
	device int64
	gpu    device.GPU
}

// simulate replays a program on a simulated board of which other processes
// hold some bytes.
func simulate(ctx context.Context, p *program.Program, gpu device.GPU, conf allocator.Config, others int64) (*simulation, error) {
	board, err := sim.New(gpu, others)
	if err != nil {
		return nil, err
	}
	defer board.Close()
	run, err := replay.Replay(ctx, p, replay.Options{Config: &conf, Source: board})
	if err != nil {
		return nil, err
	}
	return &simulation{run, board.Peak() - others, gpu}, nil
}

// report is the simulation as reports show it.
func (s *simulation) report() *report.Run {
	out := &report.Run{
		Simulated: true, Fits: s.OOM == nil,
		Requested: s.Max.Requested, Allocated: s.Max.Allocated, Reserved: s.Max.Reserved, Device: s.device,
		Retries: s.Stats.NumAllocRetries, PeakPhase: phaseName(s.Peak.Phase),
	}
	for class, bytes := range s.Peak.Allocated {
		out.Classes = append(out.Classes, report.Component{Name: program.Class(class).String(), Bytes: bytes})
	}
	for _, p := range s.Phases {
		out.Phases = append(out.Phases, report.Phase{
			Step: p.Step, Name: p.Name, Allocated: p.End.Allocated, PeakAllocated: p.Max.Allocated,
			Reserved: p.End.Reserved, PeakReserved: p.Max.Reserved,
		})
	}
	if s.OOM != nil {
		out.OOM = s.oom()
	}
	return out
}

func (s *simulation) oom() *report.OOM {
	o := s.OOM
	return &report.OOM{
		Want: o.Requested, Free: s.gpu.Memory - s.gpu.Context - o.Cause.Reserved,
		Class: o.Class.String(), Op: o.Site.Op, Node: o.Site.Node, Module: o.Site.Module, Phase: phaseName(o.Phase),
	}
}

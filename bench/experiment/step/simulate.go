package step

import (
	"context"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// Simulation is a replay on a simulated board.
type Simulation struct {
	*replay.Run
	// Device is the most memory of the board that was in use, without that of
	// other processes, bytes.
	Device int64
}

// Simulate replays a program on a simulated board of which other processes
// hold some bytes.
func Simulate(ctx context.Context, p *program.Program, gpu device.GPU, conf allocator.Config,
	others int64,
) (*Simulation, error) {
	board, err := sim.New(gpu, others)
	if err != nil {
		return nil, err
	}
	defer board.Close()
	run, err := replay.Replay(ctx, p, replay.Options{Config: &conf, Source: board})
	if err != nil {
		return nil, err
	}
	return &Simulation{run, board.Peak() - others}, nil
}

package planner

import (
	"time"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// Roofline is the time below which gpu cannot do a step of the program: the sum
// of the rooflines of its ops, since PyTorch runs one after another. Launch
// latency and imperfect kernels come on top, so a real step takes longer, and
// one of many small ops much longer. It is zero for a board of unknown speed.
func Roofline(p *program.Program, gpu device.GPU, step int) time.Duration {
	var total, pending time.Duration
	for _, in := range p.Instructions {
		switch in.Kind {
		case program.Launch:
			op := &p.Ops[in.Arg]
			pending += gpu.Roofline(op.FLOPs, traffic(p, op), op.Precision)
		case program.Mark: // the phase that ends here is what the ops were for
			if p.Phases[in.Arg].Step == step {
				total += pending
			}
			pending = 0
		}
	}
	return total
}

// traffic is the number of bytes that an op reads and writes.
func traffic(p *program.Program, op *program.Op) int64 {
	var sum int64
	for _, span := range []program.Span{op.Reads, op.Writes} {
		for _, o := range p.Operands[span.From:span.To] {
			sum += o.Bytes
		}
	}
	return sum
}

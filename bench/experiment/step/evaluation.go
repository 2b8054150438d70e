package step

import (
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// EstimateAt returns the memory in use at a moment of a result's run as an estimate: corrected by the
// coefficients, with an interval. The estimate of the peak alone counts managed memory: the driver
// moves it to the host where there is no room.
func (s *Setup) EstimateAt(gpu device.GPU, r *Result, u replay.Usage) (planner.Estimate, error) {
	sample := r.Sample()
	if u != r.Run.Max {
		sample.Classes, sample.Managed = besidePeak(sample.Classes, u.Allocated), 0
	}
	if sample.Reserved != u.Reserved { // the spread holds for the peak
		sample.Reserved, sample.Below, sample.Above = u.Reserved, 0, 0
	}
	return s.Estimate(gpu, sample)
}

// besidePeak returns the breakdown that is assumed for a moment other than the peak, of which only the sum of the
// allocated bytes is known. What torch.compile does not change is taken to be as large as at the peak, and the rest to
// be activations. The interval of a moment then never ends above the interval of a moment that holds more.
func besidePeak(peak program.Breakdown, sum int64) (b program.Breakdown) {
	for class, bytes := range planner.Uncompiled(peak) {
		b[class] = min(bytes, sum)
		sum -= b[class]
	}
	b[program.Activations] = sum
	return b
}

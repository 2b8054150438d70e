package script

import (
	"context"
	"math"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
)

// usualSearchRuns limits a search for the batch: a wrong prediction beyond it is not refined for one more multiple.
const usualSearchRuns = 4

// firstBatch is the batch size of the first run of a search for the largest batch.
const firstBatch = 8

// secondRunShare times the following is the second batch: the batch that would fit if the weights, gradients and
// optimizer states of the first did not grow with the batch and all other bytes did. The second batch is at most
// maxProportionalFactor times the batch that would fit if all bytes grew.
const secondRunShare, maxProportionalFactor = 0.9, 4

// squareError is the relative rounding error up to which bytes count as growing with the square of the batch.
const squareError = 0.02

// A BatchRun is the result of running a command at a batch size.
type BatchRun struct {
	Batch int
	// Reserved is the peak of reserved bytes, with growth in steps that were not run; zero if the run did not fit.
	Reserved int64
	// Peaks are the peaks of allocated bytes by phase. At small batches they may grow while reserved bytes do not.
	Peaks map[string]int64
	// Fixed are the bytes at the peak that are known not to grow with the batch.
	Fixed int64
	// Samples is the number of samples in the data set, which limits batches; zero if unknown.
	Samples int

	program *program.Program
	conf    allocator.Config
}

// BatchRun returns the outcome as a run at a batch size; r is its report.
func (o *Outcome) BatchRun(batch int, r *report.Report) BatchRun {
	sized := BatchRun{Batch: batch, program: o.Program, conf: o.allocator()}
	if r.Script != nil && r.Script.Coverage != nil {
		sized.Samples = r.Script.Coverage.Samples
	}
	if o.Kind() == Fits && len(r.Points) > 0 {
		sized.Reserved, sized.Peaks = r.Points[0].Run.Reserved, map[string]int64{}
		for _, p := range r.Points[0].Run.Phases {
			sized.Peaks[p.Name] = max(sized.Peaks[p.Name], p.PeakAllocated)
		}
		for _, c := range r.Points[0].Run.Classes[:program.OptimizerState+1] {
			sized.Fixed += c.Bytes
		}
	}
	return sized
}

// batchSearch is the state of a search for the largest batch of a command. Each run takes minutes, so allocations at
// other batch sizes are interpolated between two runs and replayed.
type batchSearch struct {
	gpu         device.GPU
	need        func(reserved int64) int64
	limit       int64
	runs        []BatchRun // of known needs, ascending
	fits, fails int        // the largest batch that fits, the smallest that does not; in multiples
	multiple    int
	missed      bool // whether a batch that was predicted to fit did not
}

// LargestBatch finds the largest multiple of a batch size that is safe on a GPU, up to a limit, with few runs.
func LargestBatch(ctx context.Context, gpu device.GPU, b planner.Budget, multiple, most int,
	run func(batch int) (BatchRun, error),
) (found report.Largest, err error) {
	b.Memory, found.Safe = gpu.Memory, true
	s := batchSearch{gpu: gpu, limit: b.Limit(), fails: max(1, most/multiple) + 1, multiple: multiple}
	found.Limit = s.limit
	s.need = func(reserved int64) int64 { return deviceNeed(b, gpu.Context, reserved) }
	for next := max(1, firstBatch/multiple); next > s.fits; {
		next = min(next, s.fails-1)
		predicted := len(s.runs) > 1
		r, err := run(next * multiple)
		if err != nil {
			return found, err
		}
		if r.Samples > 0 && r.Samples < most {
			most, found.Samples = r.Samples, r.Samples
			s.fails = min(s.fails, max(most/multiple, next)+1)
		}
		if r.Reserved > 0 {
			s.runs = append(s.runs, r)
			slices.SortFunc(s.runs, func(a, b BatchRun) int { return a.Batch - b.Batch })
		}
		if s.fits < next && r.Reserved > 0 && s.need(r.Reserved) <= s.limit {
			s.fits = next
		} else {
			s.fails, found.FirstFailing, s.missed = next, next*multiple, s.missed || predicted
		}
		if next, err = s.nextMultiple(ctx, r.Reserved > 0); err != nil {
			return found, err
		}
	}
	if found.Batch = s.fits * multiple; s.fits > 0 && s.fits+1 < s.fails && found.Batch < most && !s.missed {
		found.FirstFailing, found.Interpolated = found.Batch+multiple, true
	}
	return found, nil
}

// nextMultiple returns the multiple to run next: the largest whose predicted need is within the limit. If no multiple
// is left to run, it returns the largest that fits. known reports whether the need of the last run is known.
func (s *batchSearch) nextMultiple(ctx context.Context, known bool) (int, error) {
	low, high := s.fits, s.fails
	switch {
	case high-low <= 1:
		return low, nil
	case len(s.runs) == 0:
		return high / 2, nil
	}
	if len(s.runs) == 1 && !known { // it grows faster than on a line
		return int(math.Ceil(math.Sqrt(float64(low * high)))), nil
	}
	if len(s.runs) == 1 {
		one := s.runs[0]
		need, fixed := s.need(one.Reserved), s.need(one.Fixed)
		whole := float64(one.Batch) * float64(s.limit) / float64(need)
		beside := secondRunShare * float64(one.Batch) * float64(s.limit-fixed) / float64(max(1, need-fixed))
		expected := int(min(max(whole, beside), maxProportionalFactor*whole, float64(high*s.multiple))) / s.multiple
		return max(low+1, expected), nil
	}
	predicted, err := s.predictNeed(ctx)
	if err != nil {
		return 0, err
	}
	for stride := 1; high-low > 1; stride *= 2 {
		middle := low + (high-low)/2
		if high == s.fails { // the edge may be far below
			middle = min(middle, low+stride)
		}
		need, err := predicted(middle * s.multiple)
		if err != nil {
			return 0, err
		}
		if need <= s.limit {
			low = middle
		} else {
			high = middle
		}
	}
	if !known && low > s.fits { // what is predicted was not true above
		low = s.fits + (low-s.fits+1)/2
	}
	if s.missed { // one multiple less spares the run that would show it again, and one more is worth none
		low = max(low-1, s.fits)
		if low == s.fits+1 && len(s.runs) >= usualSearchRuns {
			low = s.fits
		}
	}
	return low, nil
}

// predictNeed returns the memory need as a function of the batch, from two runs: the smallest run that does not fit (or
// the largest if all fit), and the largest run below it that fits. If both are the same run, the second is the largest
// run with at most three quarters of its batch, or the smallest run.
func (s *batchSearch) predictNeed(ctx context.Context) (func(batch int) (int64, error), error) {
	fits, above := s.fits*s.multiple, 1
	for above < len(s.runs)-1 && s.runs[above].Batch <= fits {
		above++
	}
	a, b := s.runs[0], s.runs[above]
	for _, r := range s.runs[:above] {
		if 4*r.Batch <= 3*b.Batch || r.Batch <= fits && fits < b.Batch {
			a = r
		}
	}
	known, err := reservedAt(ctx, s.gpu, a, b, b.Batch)
	return func(batch int) (int64, error) {
		there, err := reservedAt(ctx, s.gpu, a, b, batch)
		return s.need(b.Reserved + there - known), err
	}, err
}

// reservedAt returns the reserved bytes at a batch size from two runs at other sizes: by interpolating and replaying
// their allocations or, if these do not correspond, on a straight line. Beyond the larger run they grow at least as
// much as the peak of allocated bytes.
func reservedAt(ctx context.Context, gpu device.GPU, a, b BatchRun, batch int) (int64, error) {
	p := interpolateProgram(a, b, batch)
	if p == nil {
		reserved := interpolate(batch, a.Batch, b.Batch, a.Reserved, b.Reserved)
		if batch > b.Batch {
			reserved = max(reserved, b.Reserved+peakAt(batch, a, b)-peakAt(b.Batch, a, b))
		}
		return reserved, nil
	}
	run, err := step.Simulate(ctx, p, step.WithUnlimitedMemory(gpu), b.conf, 0)
	if err != nil {
		return 0, err
	}
	return run.Max.Reserved, nil
}

// peakAt returns the highest of the phases' peaks at a batch size, each on the line through its peaks in two runs.
func peakAt(batch int, a, b BatchRun) (highest int64) {
	for name, peak := range b.Peaks {
		if a.Peaks[name] > 0 {
			highest = max(highest, interpolate(batch, a.Batch, b.Batch, a.Peaks[name], peak))
		}
	}
	return highest
}

// interpolateProgram returns the program at a batch size, with allocation sizes interpolated or extrapolated from two
// runs; nil if the runs differ in more than sizes before the third step.
func interpolateProgram(one, other BatchRun, batch int) *program.Program {
	n, end, a, b := 0, 0, one.program, other.program
	if a == nil || b == nil {
		return nil
	}
	for n < min(len(a.Instructions), len(b.Instructions)) && a.Instructions[n] == b.Instructions[n] {
		if in := a.Instructions[n]; in.Kind == program.MarkPhase && a.Phases[in.Arg].Step >= 2 {
			end = n + 1
		}
		n++
	}
	if end == 0 {
		return nil
	}
	p := *a
	p.Instructions = p.Instructions[:end]
	p.Buffers = slices.Clone(a.Buffers)
	for i := range min(len(a.Buffers), len(b.Buffers)) {
		p.Buffers[i].Bytes = interpolate(batch, one.Batch, other.Batch, a.Buffers[i].Bytes, b.Buffers[i].Bytes)
	}
	return &p
}

// interpolate returns the bytes at a batch size, on the straight line through the bytes at two other sizes. Bytes that
// grew with the square of the batch, such as matrices of all pairs of samples, follow a parabola through zero.
func interpolate(batch, from, to int, start, end int64) int64 {
	grown := float64(batch-from) / float64(to-from) * float64(end-start)
	square := func(batch int) float64 { return math.Pow(float64(batch)/float64(from), 2) * float64(start) }
	if math.Abs(float64(end)-square(to)) <= squareError*square(to) {
		grown = square(batch) - float64(start)
	}
	return max(1, start+int64(math.Round(grown)))
}

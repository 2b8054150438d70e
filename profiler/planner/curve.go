package planner

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/vprof/vprof/profiler/planner/host"
	"github.com/vprof/vprof/profiler/program"
)

// Sample is the memory need of a training step at one batch size, in bytes, from a replay without a memory limit.
type Sample struct {
	Batch int
	// Classes are the allocated bytes at their peak, by class.
	Classes program.Breakdown
	// Reserved is the peak of reserved bytes.
	Reserved int64
	// Less and More are the bytes by which allocated memory decreases and increases with other orders of kernels.
	Less, More int64
	// Below and Above are the bytes by which reserved memory falls and rises with other sizes and orders of frees.
	Below, Above int64
	// Segments is the number of segments that the allocator holds at the end.
	Segments int64
	// PeakPhase is the phase of the allocated bytes' peak, as "STEP:PHASE".
	PeakPhase string
	// ManagedBytes is the optimizer state in managed memory, outside of the allocator.
	ManagedBytes int64
	// HasModeledWorkspaces reports whether a convolution's workspace is modeled, without a recorded answer of cuDNN.
	HasModeledWorkspaces bool
	// Host is the step's host memory; zero if unknown.
	Host host.Need
}

// Allocated returns the peak of allocated bytes.
func (s Sample) Allocated() int64 { return s.Classes.Total() }

// Slack returns reserved minus allocated bytes: unused parts of segments and fragments.
func (s Sample) Slack() int64 { return s.Reserved - s.Allocated() }

// Curve interpolates samples, piecewise linearly in the batch size.
type Curve struct {
	samples []Sample // ascending batches
	held    relativeErrors
}

type relativeErrors struct{ allocated, reserved float64 }

// NewCurve replays the given batch sizes, at least one, in any order, and returns the curve through them. It stops at
// the first replay that fails, and returns its error.
func NewCurve(batches []int, replay func(batch int) (Sample, error)) (*Curve, error) {
	if len(batches) == 0 {
		return nil, errors.New("planner: a curve needs at least one batch size")
	}
	batches = slices.Clone(batches)
	slices.Sort(batches)
	c := &Curve{}
	for _, b := range slices.Compact(batches) {
		s, err := replay(b)
		if err != nil {
			return nil, err
		}
		s.Batch = b
		c.samples = append(c.samples, s)
	}
	c.held = c.crossValidationError()
	return c, nil
}

// Interpolate returns the sample at a batch size. exact reports whether it was replayed and not interpolated. Beyond
// its ends, the curve is extrapolated. A curve with a single sample is only known at that batch size.
func (c *Curve) Interpolate(batch int) (s Sample, exact bool, err error) {
	i, exact := slices.BinarySearchFunc(c.samples, batch, func(s Sample, b int) int { return s.Batch - b })
	switch {
	case exact:
		return c.samples[i], true, nil
	case len(c.samples) == 1:
		return Sample{}, false, fmt.Errorf("planner: batch %d: only batch %d was replayed", batch, c.samples[0].Batch)
	}
	i = min(max(i, 1), len(c.samples)-1)
	return interpolateSamples(c.samples[i-1], c.samples[i], batch), false, nil
}

// interpolateSamples interpolates linearly between samples a and b, at a batch size.
func interpolateSamples(a, b Sample, batch int) Sample {
	line := func(y0, y1 int64) int64 {
		slope := float64(y1-y0) / float64(b.Batch-a.Batch)
		return max(0, y0+int64(math.Round(slope*float64(batch-a.Batch))))
	}
	s := Sample{Batch: batch, PeakPhase: a.PeakPhase}
	if b.Batch-batch < batch-a.Batch {
		s.PeakPhase = b.PeakPhase
	}
	for class := range s.Classes {
		s.Classes[class] = line(a.Classes[class], b.Classes[class])
	}
	s.Reserved = s.Allocated() + line(a.Slack(), b.Slack())
	s.Segments = line(a.Segments, b.Segments)
	s.Less, s.More = line(a.Less, b.Less), line(a.More, b.More)
	s.Below, s.Above = line(a.Below, b.Below), line(a.Above, b.Above)
	s.ManagedBytes = line(a.ManagedBytes, b.ManagedBytes)
	s.Host = b.Host // of the larger batch, which needs no less
	return s
}

// crossValidationError returns the largest relative error with which the curve predicts an inner sample from the
// others: an estimate of the interpolation error. It is zero if there is no inner sample.
func (c *Curve) crossValidationError() relativeErrors {
	var worst relativeErrors
	for i := 1; i < len(c.samples)-1; i++ {
		truth := c.samples[i]
		guess := interpolateSamples(c.samples[i-1], c.samples[i+1], truth.Batch)
		worst.allocated = max(worst.allocated, relativeError(guess.Allocated(), truth.Allocated()))
		worst.reserved = max(worst.reserved, relativeError(guess.Reserved, truth.Reserved))
	}
	return worst
}

func relativeError(estimate, truth int64) float64 {
	if truth == 0 {
		return 0
	}
	return math.Abs(float64(estimate-truth)) / float64(truth)
}

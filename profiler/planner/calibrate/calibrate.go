// Package calibrate fits the planner's coefficients to runs.
//
// A run has measured allocated, reserved and device bytes, or some of them. The replay of the same step has the bytes
// that the recording contains. Their differences at each level are a small linear system in the terms of
// [planner.Term]: libraries and tensors add to the allocated bytes, the cache to the reserved bytes, context and driver
// to the device bytes. The systems are solved one after another by least squares, weighted by the known error of the
// replay. Coefficients are not negative, since missing memory cannot be less than none.
package calibrate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/planner"
)

// Observation is the measured memory of a run, together with the replay of the same step.
type Observation struct {
	// Label names the run in messages: "b2.json: batch 8".
	Label string
	// Sample is the replay of the step at the run's batch size.
	Sample planner.Sample
	// Allocated, Reserved and Device are the measured peaks in bytes; zero was not measured.
	Allocated, Reserved, Device int64
	// Replayed reports whether Allocated and Reserved were counted by vprof's own allocator, so that they do not show
	// the needs of PyTorch's tensors and libraries.
	Replayed bool
	// Communication is the estimated device memory of NCCL in bytes; zero for a single GPU.
	Communication float64
}

// largestObserved returns the bytes of the highest measured level: device, else reserved, else allocated.
func (o Observation) largestObserved() int64 { return cmp.Or(o.Device, o.Reserved, o.Allocated) }

// estimateWith returns the estimate of the highest measured level with some coefficients, in bytes.
func (o Observation) estimateWith(c planner.Coefficients) int64 {
	t := c.Totals(o.Sample)
	switch {
	case o.Device > 0:
		return t.Device + int64(o.Communication*communicationShare(c))
	case o.Reserved > 0:
		return t.Reserved
	}
	return t.Allocated
}

// communicationShare returns the fitted share of NCCL's estimated bytes; one if it was not fitted.
func communicationShare(c planner.Coefficients) float64 {
	if k := c.Term(planner.CommunicationShare); k.Name != "" {
		return k.Value
	}
	return 1
}

// Result is the outcome of a fit.
type Result struct {
	// Coefficients are the initial coefficients, with the fitted terms replaced.
	Coefficients planner.Coefficients
	// Terms are the terms that the observations determined.
	Terms []planner.Term
	// Undetermined has a sentence for each other term with the reason why it was not fitted.
	Undetermined []string
	// Points are in the order of the observations.
	Points []Point
}

// Point is an observation with its estimates, in bytes of the highest measured level.
type Point struct {
	Label    string
	Batch    int
	Observed int64
	// Before is the estimate with the initial coefficients, After with the fitted ones, HeldOut with a fit to the other
	// observations. HeldOut is zero if those do not determine the coefficients.
	Before, After, HeldOut int64
}

// A ConditionError reports that the runs cannot separate the terms of a level.
type ConditionError struct {
	// What describes what the runs cannot separate: "what is constant from what grows".
	What string
	// Batches are the runs' batch sizes. Condition is the condition number of the scaled design matrix, maybe infinite.
	Batches   []int
	Condition float64
}

func (e *ConditionError) Error() string {
	if math.IsInf(e.Condition, 1) {
		return fmt.Sprintf("%s cannot tell %s", batchList(e.Batches), e.What)
	}
	return fmt.Sprintf("%s are too close to tell %s (condition number %.0f; up to %d will do)", batchList(e.Batches),
		e.What, e.Condition, maxCondition)
}

// Usage marks the error as bad input.
func (*ConditionError) Usage() bool { return true }

func batchList(batches []int) string {
	if len(batches) == 1 {
		return fmt.Sprintf("batch %d alone", batches[0])
	}
	words := lists.Map(batches, func(b int) string { return fmt.Sprint(b) })
	return "batches " + strings.Join(words, ", ")
}

// Fit fits the coefficients to observations of one GPU and software stack, starting from the given ones. The error is a
// [*ConditionError] if the observations cannot separate constant from growing memory.
func Fit(observations []Observation, from planner.Coefficients) (*Result, error) {
	if err := checkObservations(observations); err != nil {
		return nil, err
	}
	r, err := fitLevels(observations, from)
	if err != nil {
		return nil, err
	}
	for i, o := range observations {
		p := Point{
			Label: o.Label, Batch: o.Sample.Batch, Observed: o.largestObserved(), Before: o.estimateWith(from),
			After: o.estimateWith(r.Coefficients),
		}
		rest := slices.Delete(slices.Clone(observations), i, i+1)
		if without, err := fitLevels(rest, from); err == nil {
			p.HeldOut = o.estimateWith(without.Coefficients)
		}
		r.Points = append(r.Points, p)
	}
	return r, nil
}

// checkObservations returns an error for an observation that is impossible.
func checkObservations(observations []Observation) error {
	if len(observations) == 0 {
		return errors.New("calibration needs at least one run with measured bytes; name a result of vprof sweep " +
			"--device or vprof run")
	}
	for _, o := range observations {
		switch {
		case o.Sample.Batch < 1 || o.Sample.Allocated() <= 0 || o.Sample.Reserved < o.Sample.Allocated():
			return fmt.Errorf("%s: this run cannot be replayed; leave it out", o.Label)
		case o.largestObserved() == 0:
			return fmt.Errorf("%s: the run has no measured bytes; leave it out, or measure it again", o.Label)
		case min(o.Allocated, o.Reserved, o.Device) < 0:
			return fmt.Errorf("%s: the measured bytes are negative; measure the run again", o.Label)
		case o.Reserved > 0 && o.Allocated > o.Reserved:
			return fmt.Errorf("%s: the run has more allocated bytes (%d) than reserved bytes (%d); measure it again",
				o.Label, o.Allocated, o.Reserved)
		case o.Device > 0 && max(o.Allocated, o.Reserved) > o.Device:
			return fmt.Errorf("%s: the run has more reserved bytes (%d) than device bytes in use (%d); measure it "+
				"again", o.Label, max(o.Allocated, o.Reserved), o.Device)
		}
	}
	return nil
}

// fitLevels fits the levels one after another, each to the differences that earlier levels do not explain.
func fitLevels(observations []Observation, from planner.Coefficients) (*Result, error) {
	r := &Result{Coefficients: from}
	for _, level := range []func([]Observation, *planner.Coefficients) *system{
		allocatedSystem, reservedSystem,
		deviceSystem,
	} {
		s := level(observations, &r.Coefficients)
		if len(s.rows) == 0 {
			continue
		}
		solved, err := s.solve()
		if err != nil {
			return nil, err
		}
		if len(solved.terms) == 1 && solved.terms[0] == planner.CommunicationShare {
			solved.stderr[0] = math.Hypot(solved.stderr[0], from.Context.StdErr/largestObservation(observations))
		}
		r.Undetermined = append(r.Undetermined, solved.undetermined...)
		r.addSolution(solved, len(s.rows))
	}
	if len(r.Terms) == 0 {
		return nil, errors.New("calibration needs at least one run with measured bytes; name a result of vprof sweep " +
			"--device or vprof run")
	}
	return r, nil
}

// largestObservation returns the largest estimated memory of NCCL in a run, in bytes.
func largestObservation(observations []Observation) (bytes float64) {
	for _, o := range observations {
		bytes = max(bytes, o.Communication)
	}
	return bytes
}

// addSolution stores the solution of a level in the coefficients.
func (r *Result) addSolution(s *solution, runs int) {
	word := "runs"
	if runs == 1 {
		word = "run"
	}
	for i, t := range s.terms {
		r.Coefficients.Set(t, planner.Coefficient{
			Name: t.String(), Value: s.values[i], StdErr: s.stderr[i],
			Source: fmt.Sprintf("fitted to %d %s", runs, word),
		})
		for j, u := range s.terms {
			if i != j {
				r.Coefficients.Correlation[t][u] = s.correlation(i, j)
			}
		}
		r.Terms = append(r.Terms, t)
	}
}

const undeterminedReason = "what is constant from what grows with the batch"

// allocatedSystem returns the equations for the bytes that libraries and tensors add to the recorded bytes.
func allocatedSystem(observations []Observation, c *planner.Coefficients) *system {
	s := &system{terms: []planner.Term{planner.LibraryWorkspace, planner.AllocatedSlack}, quantity: undeterminedReason}
	for _, o := range observations {
		if o.Allocated > 0 && !o.Replayed {
			s.add(o, o.Sample.AllocatedRow(), o.Allocated-o.Sample.Allocated(),
				noiseBytes(o.Sample.Allocated(), c.Allocated))
		}
	}
	return s
}

// reservedSystem returns the equations for the reserved bytes beyond the replay's.
func reservedSystem(observations []Observation, c *planner.Coefficients) *system {
	s := &system{terms: []planner.Term{planner.ReservedSlack}, quantity: "anything of the cache"}
	for _, o := range observations {
		if o.Reserved == 0 || o.Replayed {
			continue
		}
		missing := o.Reserved - c.Totals(o.Sample).Reserved
		if o.Allocated > 0 {
			missing = (o.Reserved - o.Allocated) - o.Sample.Slack()
		}
		s.add(o, o.Sample.ReservedRow(), missing, noiseBytes(o.Sample.Reserved, c.Reserved))
	}
	return s
}

// deviceSystem returns the equations for the device bytes beyond the reserved bytes.
func deviceSystem(observations []Observation, c *planner.Coefficients) *system {
	s := &system{
		terms:    []planner.Term{planner.ContextBytes, planner.DeviceSlack},
		optional: []planner.Term{planner.Granularity},
		quantity: undeterminedReason,
	}
	alone := slices.ContainsFunc(observations, func(o Observation) bool { return o.Device > 0 && o.Communication == 0 })
	if !alone { // nothing tells the context from NCCL: it is taken as it was
		s.terms, s.optional, s.quantity = []planner.Term{planner.CommunicationShare}, nil, "anything of NCCL"
	} else if slices.ContainsFunc(observations, func(o Observation) bool {
		return o.Device > 0 && o.Communication > 0
	}) {
		s.terms = append(s.terms, planner.CommunicationShare)
	}
	for _, o := range observations {
		row := o.Sample.DeviceRow()
		row[planner.CommunicationShare] = o.Communication
		context := int64(0)
		if !alone {
			context = int64(c.Context.Value)
		}
		switch {
		case o.Device == 0:
		case o.Reserved > 0:
			s.add(o, row, o.Device-o.Reserved-context, noiseBytes(o.Sample.Reserved, planner.Residual{}))
		default:
			s.add(o, row, o.Device-c.Totals(o.Sample).Reserved-context, noiseBytes(o.Sample.Reserved, c.Reserved))
		}
	}
	return s
}

// Equal runs differ by one or two pages of the driver and a thousandth of their bytes.
const (
	repeatBytes = 1 << 20
	repeatShare = 1e-3
)

// noiseBytes returns the standard error of the difference between a run and a replay: from the model's residuals
// against PyTorch, whose range contains 95 %, and from the difference between equal runs.
func noiseBytes(bytes int64, r planner.Residual) float64 {
	share := math.Hypot(repeatShare, (r.High-r.Low)/2/1.96)
	return math.Hypot(repeatBytes, share*float64(bytes))
}

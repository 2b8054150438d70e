package calibrate

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/profiler/program"
)

// TimedStep is a measured step time with the step's work.
type TimedStep struct {
	Load    steptime.Load
	Seconds float64
}

// workGroups assign each class of work, and launches at the end, to a group with a common factor. There are three
// groupings, the finest first; with few runs only a coarse one can be fitted.
var workGroups = func() (groups [3][steptime.NumWorks + 1]int) {
	for w := range steptime.NumWorks {
		groups[0][w] = 1
	}
	for _, w := range []program.Work{program.Matmul, program.Convolution, program.Attention} {
		groups[0][w] = 0
	}
	groups[0][steptime.NumWorks], groups[1][steptime.NumWorks] = 2, 1
	return groups
}()

// timeNoiseShare is the relative standard error of a step's time that clocks and temperature cause.
const timeNoiseShare = 0.03

// FitSpeed corrects efficiencies by timed steps. Steps that waited for the host correct the host's time per kernel by
// one factor. The others correct the kernels by as many factors as they determine: for products, other kernels and
// launches; for kernels and launches; or one for all.
func FitSpeed(steps []TimedStep, from steptime.Efficiency) (steptime.Efficiency, error) {
	if len(steps) == 0 {
		return from, errors.New("calibration of times needs at least one timed step; add a result of vprof sweep " +
			"--device")
	}
	for _, s := range steps {
		if !(s.Seconds > 0) || math.IsInf(s.Seconds, 1) || !s.Load.IsKnown() {
			return from, fmt.Errorf("the step time is %v s, and the fastest possible is %v s: need a positive time "+
				"and the recorded work of the step; measure it again", s.Seconds, s.Load.Roofline())
		}
	}
	assumed := from
	if host := lists.Filter(steps, func(s TimedStep) bool { return assumed.HostBound(s.Load) }); len(host) > 0 {
		from = scaleHost(from, host)
	}
	steps = lists.Filter(steps, func(s TimedStep) bool { return !assumed.HostBound(s.Load) })
	if len(steps) == 0 {
		return from, nil
	}
	for _, g := range workGroups {
		n := slices.Max(g[:]) + 1
		a, b := speedDesign(steps, from, g, n)
		if len(steps) < n || a.condition() > maxCondition {
			continue
		}
		factors, err := nnls(a, b)
		if err != nil || slices.Min(factors) <= 0 && n > 1 {
			continue // a coarser grouping has no part that takes no time
		}
		inverse, err := covariance(a, (&system{}).residualSpread(a, factors, b))
		if err != nil {
			continue
		}
		return scaleEfficiency(from, g, factors, inverse, len(steps)), nil
	}
	return from, errors.New("no efficiency can be computed from these step times; add runs of other batch sizes")
}

// speedDesign returns the design matrix: for each step, the time of each group with the current efficiencies, divided
// by the measured time.
func speedDesign(steps []TimedStep, from steptime.Efficiency, g [steptime.NumWorks + 1]int, n int) (matrix, []float64) {
	a := newMatrix(len(steps), n)
	b := make([]float64, len(steps))
	for i, s := range steps {
		weight := 1 / (timeNoiseShare * s.Seconds)
		for w, t := range s.Load.Expected {
			a[g[w]][i] += weight * t / from.Share[w].Value
		}
		a[g[steptime.NumWorks]][i] += weight * float64(s.Load.Launches) * from.Launch.Value
		b[i] = weight * s.Seconds
	}
	return a, b
}

// scaleEfficiency applies the fitted factors. A class that takes twice as long has half the share of peak.
func scaleEfficiency(e steptime.Efficiency, g [steptime.NumWorks + 1]int, factors []float64, inverse matrix,
	steps int,
) steptime.Efficiency {
	source := fmt.Sprintf("fitted to the times of %s, in %s", phrase.CountText(steps, "step"),
		phrase.CountText(len(factors), "group"))
	// The relative error is limited to one.
	relative := func(i int) float64 { return min(1, math.Sqrt(inverse[i][i])/factors[i]) }
	for w := range e.Share {
		k := g[w]
		v := e.Share[w].Value / factors[k]
		e.Share[w] = planner.Coefficient{Name: e.Share[w].Name, Value: v, StdErr: v * relative(k), Source: source}
	}
	k := g[steptime.NumWorks]
	v := e.Launch.Value * factors[k]
	e.Launch = planner.Coefficient{Name: e.Launch.Name, Value: v, StdErr: v * relative(k), Source: source}
	return e
}

// scaleHost multiplies the host's time per kernel by the geometric mean of measured over estimated times.
func scaleHost(e steptime.Efficiency, steps []TimedStep) steptime.Efficiency {
	logs := lists.Map(steps, func(s TimedStep) float64 { return math.Log(s.Seconds / e.Host(&s.Load)) })
	var mean float64
	for _, v := range logs {
		mean += v / float64(len(logs))
	}
	apart := vector(lists.Map(logs, func(v float64) float64 { return v - mean }))
	deviation := apart.length() / math.Sqrt(float64(len(logs)-1))
	if len(steps) == 1 {
		deviation = e.Dispatch.StdErr / e.Dispatch.Value
	}
	for _, c := range []*planner.Coefficient{&e.Dispatch, &e.Module} {
		c.Value *= math.Exp(mean)
		c.StdErr = c.Value * max(timeNoiseShare, deviation)
		c.Source = fmt.Sprintf("fitted to the times of %s that the host held up", phrase.CountText(len(steps), "step"))
	}
	return e
}

package epoch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Law is a distribution that the lengths of a data set are drawn by.
type Law struct {
	// Name is [LogNormal], [Normal] or [Uniform].
	Name string `json:"name"`
	// Location and Scale are the mean and the standard deviation, of a log-normal law
	// those of the logarithm; of a uniform law the ends.
	Location float64 `json:"location"`
	Scale    float64 `json:"scale"`
	// Least and Most are where lengths are cut off.
	Least int64 `json:"least"`
	Most  int64 `json:"most"`
	// Samples is the number of samples of an epoch.
	Samples int64 `json:"samples"`
}

// The names of laws.
const (
	LogNormal = "lognormal"
	Normal    = "normal"
	Uniform   = "uniform"
)

// usualSamples is the number of samples of an epoch where the law gives none.
const usualSamples = 10_000

// quantile95 is the 95th percentile of the standard normal distribution.
const quantile95 = 1.6448536269514722

// parseLaw reads "lognormal:mean=512,p95=1500,max=4096,samples=50000"; ok tells that the
// text begins as a law does. Of mean and median one is given; uniform:min=64,max=512 has
// neither.
func parseLaw(text string) (law *Law, ok bool, err error) {
	name, rest, ok := strings.Cut(text, ":")
	keys := map[string][]string{
		LogNormal: {"mean", "median", "p95", "min", "max", "samples"}, Normal: {"mean", "p95", "min", "max", "samples"},
		Uniform: {"min", "max", "samples"},
	}[name]
	if !ok || keys == nil {
		return nil, false, nil
	}
	given := map[string]float64{}
	for field := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		known := false
		for _, k := range keys {
			known = known || k == key
		}
		v, err := strconv.ParseFloat(value, 64)
		switch {
		case !known:
			return nil, true, fmt.Errorf("%s: there is no %q; its keys are %s", name, key, strings.Join(keys, ", "))
		case given[key] != 0:
			return nil, true, fmt.Errorf("%s: %s is given twice", name, key)
		case err != nil || !(v >= 1 && v <= maxLength):
			return nil, true, fmt.Errorf("%s: %s: %q is not a number from 1 to %d", name, key, value, maxLength)
		}
		given[key] = v
	}
	law, err = lawOf(name, given)
	if err == nil {
		err = law.check()
	}
	if err != nil {
		return nil, true, fmt.Errorf("%s: %w", name, err)
	}
	return law, true, nil
}

// lawOf makes a law of its keys, which are positive where they are given.
func lawOf(name string, given map[string]float64) (*Law, error) {
	l := &Law{Name: name, Least: 1, Most: maxLength, Samples: usualSamples}
	for key, to := range map[string]*int64{"min": &l.Least, "max": &l.Most, "samples": &l.Samples} {
		if v, ok := given[key]; ok {
			*to = int64(v)
		}
	}
	mean, median, p95 := given["mean"], given["median"], given["p95"]
	switch {
	case name == Uniform && given["max"] == 0:
		return nil, fmt.Errorf("max is missing")
	case name == Uniform:
		l.Location, l.Scale = float64(l.Least), float64(l.Most)
		return l, nil
	case (mean == 0) == (median == 0):
		return nil, fmt.Errorf("one of mean and median is needed")
	case p95 == 0:
		return nil, fmt.Errorf("p95 is missing")
	case p95 <= max(mean, median):
		return nil, fmt.Errorf("p95=%g is not above %g", p95, max(mean, median))
	case name == Normal:
		l.Location, l.Scale = mean, (p95-mean)/quantile95
	case median > 0:
		l.Location, l.Scale = math.Log(median), math.Log(p95/median)/quantile95
	default:
		// With the mean m = exp(mu + s^2/2) and the percentile q = exp(mu + 1.64 s), s is
		// the smaller root of s^2/2 - 1.64 s + ln(q/m) = 0.
		under := quantile95*quantile95 - 2*math.Log(p95/mean)
		if under < 0 {
			return nil,
				fmt.Errorf("no such law has a 95th percentile of %.2f times its mean, 3.86 is the most; give median "+
					"in place of mean", p95/mean)
		}
		l.Scale = quantile95 - math.Sqrt(under)
		l.Location = math.Log(mean) - l.Scale*l.Scale/2
	}
	return l, nil
}

func (l *Law) check() error {
	switch {
	case l.Name != LogNormal && l.Name != Normal && l.Name != Uniform:
		return fmt.Errorf("there is no law %q", l.Name)
	case l.Least < 1 || l.Least > l.Most || l.Most > maxLength:
		return fmt.Errorf("lengths from %d to %d are no range within 1 to %d", l.Least, l.Most, maxLength)
	case l.Samples < 1 || l.Samples > maxSamples:
		return fmt.Errorf("%d is not a number of samples from 1 to %d", l.Samples, maxSamples)
	case math.IsNaN(l.Location) || math.IsNaN(l.Scale) || l.Scale < 0 || math.IsInf(l.Location, 0) ||
		math.IsInf(l.Scale, 0):
		return fmt.Errorf("%g and %g are no numbers of a law", l.Location, l.Scale)
	}
	return nil
}

// draw draws the lengths of an epoch.
func (l *Law) draw(r *rand.Rand) []int32 {
	all := make([]int32, l.Samples)
	for i := range all {
		var v float64
		switch l.Name {
		case Uniform:
			v = l.Location + r.Float64()*(l.Scale-l.Location)
		case Normal:
			v = l.Location + l.Scale*r.NormFloat64()
		default:
			v = math.Exp(l.Location + l.Scale*r.NormFloat64())
		}
		all[i] = int32(min(max(math.Round(v), float64(l.Least)),
			float64(l.Most))) //nolint:gosec // bounded by maxLength
	}
	return all
}

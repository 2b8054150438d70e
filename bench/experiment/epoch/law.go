package epoch

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/options"
)

// Distribution is a probability distribution of the sample lengths of a data set.
type Distribution struct {
	// Name is [LogNormal], [Normal], [Uniform] or [Quantiles].
	Name string `json:"name"`
	// Location and Scale are the mean and the standard deviation. For a log-normal distribution they describe the
	// logarithm, for a uniform one its two ends.
	Location float64 `json:"location"`
	Scale    float64 `json:"scale"`
	// Least and Most are the shortest and the longest length; draws beyond are cut to them.
	Least int64 `json:"least"`
	Most  int64 `json:"most"`
	// Samples is the number of samples of an epoch.
	Samples int64 `json:"samples"`
	// Points are the quantiles of a [Quantiles] distribution, ascending, from the least length to the most.
	Points []LengthQuantile `json:"points,omitempty"`
}

// LengthQuantile is a point of a distribution: Share of the samples have at most this length.
type LengthQuantile struct {
	Share  float64 `json:"share"`
	Length float64 `json:"length"`
}

// The names of distributions.
const (
	LogNormal = "lognormal"
	Normal    = "normal"
	Uniform   = "uniform"
	Quantiles = "quantiles"
)

// quantileShares are the accepted quantiles of a [Quantiles] distribution. One sample in a thousand is longer than the
// last, and decides the longest batch.
var quantileShares = map[string]float64{"p50": .5, "p75": .75, "p90": .9, "p95": .95, "p99": .99, "p99.9": .999}

// defaultSamples is the number of samples of an epoch if the distribution's text gives none.
const defaultSamples = 10_000

// quantile95 is the 95th percentile of the standard normal distribution.
const quantile95 = 1.6448536269514722

// parseDistribution parses "lognormal:mean=512,p95=1500,max=4096,samples=50000". ok reports whether the text begins
// with a distribution's name. lognormal needs mean or median; uniform:min=64,max=512 has neither.
// quantiles:p50=300,p99=2000,p99.9=4096,max=8192 only requires max.
func parseDistribution(text string) (law *Distribution, ok bool, err error) {
	name, rest, ok := strings.Cut(text, ":")
	if !ok || !slices.Contains([]string{LogNormal, Normal, Uniform, Quantiles}, name) {
		return nil, false, nil
	}
	given := givenKeys{}
	if err := distributionKeys.Read(&given, name, rest); err != nil {
		return nil, true, fmt.Errorf("%s: %w", name, err)
	}
	law, err = newDistribution(name, given)
	if err == nil {
		err = law.check()
	}
	if err != nil {
		return nil, true, fmt.Errorf("%s: %w", name, err)
	}
	return law, true, nil
}

// givenKeys holds the values of the keys in a distribution's text.
type givenKeys map[string]float64

var distributionKeys = options.Table[givenKeys]{
	distributionKey("mean", LogNormal, Normal), distributionKey("median", LogNormal), distributionKey("p50",
		Quantiles), distributionKey("p75", Quantiles),
	distributionKey("p90", Quantiles), distributionKey("p95", LogNormal, Normal, Quantiles), distributionKey("p99",
		Quantiles),
	distributionKey("p99.9", Quantiles), distributionKey("min"), distributionKey("max"), distributionKey("samples"),
}

// distributionKey returns the option for a key that the named distributions accept, or all distributions.
func distributionKey(key string, laws ...string) options.Option[givenKeys] {
	return options.Option[givenKeys]{Key: key, Names: laws, Read: func(g *givenKeys, text string) error {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 1 && v <= maxLength) {
			return fmt.Errorf("%q is not a number from 1 to %d", text, maxLength)
		}
		(*g)[key] = v
		return nil
	}}
}

// newDistribution makes a distribution from the keys in its text, which must be positive.
func newDistribution(name string, given givenKeys) (*Distribution, error) {
	l := &Distribution{Name: name, Least: 1, Most: maxLength, Samples: defaultSamples}
	for key, to := range map[string]*int64{"min": &l.Least, "max": &l.Most, "samples": &l.Samples} {
		if v, ok := given[key]; ok {
			*to = int64(v)
		}
	}
	mean, median, p95 := given["mean"], given["median"], given["p95"]
	switch {
	case (name == Uniform || name == Quantiles) && given["max"] == 0:
		return nil, fmt.Errorf("max=N is missing; add the largest length, like max=2048")
	case name == Quantiles:
		l.Points = []LengthQuantile{{0, float64(l.Least)}, {1, float64(l.Most)}}
		for key, share := range quantileShares {
			if v, ok := given[key]; ok {
				l.Points = append(l.Points, LengthQuantile{share, v})
			}
		}
		slices.SortFunc(l.Points, func(a, b LengthQuantile) int { return cmp.Compare(a.Share, b.Share) })
		return l, nil
	case name == Uniform:
		l.Location, l.Scale = float64(l.Least), float64(l.Most)
		return l, nil
	case (mean == 0) == (median == 0):
		return nil, fmt.Errorf("give either mean=N or median=N, like mean=512")
	case p95 == 0:
		return nil, fmt.Errorf("p95=N is missing; add the 95th percentile, like p95=1500")
	case p95 <= max(mean, median):
		return nil, fmt.Errorf("p95=%g is too small; need more than the mean or median of %g", p95, max(mean, median))
	case name == Normal:
		l.Location, l.Scale = mean, (p95-mean)/quantile95
	case median > 0:
		l.Location, l.Scale = math.Log(median), math.Log(p95/median)/quantile95
	default:
		// With the mean m = exp(mu + s^2/2) and the percentile q = exp(mu + 1.64 s), s is
		// the smaller root of s^2/2 - 1.64 s + ln(q/m) = 0.
		under := quantile95*quantile95 - 2*math.Log(p95/mean)
		if under < 0 {
			return nil, fmt.Errorf("p95 is %.2f times the mean, but a lognormal distribution allows at most 3.86; "+
				"give median=N instead of mean=N", p95/mean)
		}
		l.Scale = quantile95 - math.Sqrt(under)
		l.Location = math.Log(mean) - l.Scale*l.Scale/2
	}
	return l, nil
}

func (l *Distribution) check() error {
	switch {
	case !slices.Contains([]string{LogNormal, Normal, Uniform, Quantiles}, l.Name):
		return fmt.Errorf("unknown distribution %q: need lognormal, normal, uniform or quantiles", l.Name)
	case (l.Name == Quantiles) != (len(l.Points) >= 2):
		return fmt.Errorf("%d quantiles: need two or more for quantiles, and none for other distributions",
			len(l.Points))
	case l.Least < 1 || l.Least > l.Most || l.Most > maxLength:
		return fmt.Errorf("lengths from min=%d to max=%d: need 1 <= min <= max <= %d", l.Least, l.Most, maxLength)
	case l.Samples < 1 || l.Samples > maxSamples:
		return fmt.Errorf("samples=%d: need a number from 1 to %d", l.Samples, maxSamples)
	case math.IsNaN(l.Location) || math.IsNaN(l.Scale) || l.Scale < 0 || math.IsInf(l.Location, 0) ||
		math.IsInf(l.Scale, 0):
		return fmt.Errorf("location %g and scale %g: need finite numbers, and a scale of 0 or more",
			l.Location, l.Scale)
	}
	for i, p := range l.Points {
		switch {
		case i == 0 && p.Share != 0, i == len(l.Points)-1 && p.Share != 1, !(p.Length >= 1 && p.Length <= maxLength):
			return fmt.Errorf("invalid quantiles: need shares from 0 to 1, and lengths from 1 to %d", maxLength)
		case i > 0 && (p.Share <= l.Points[i-1].Share || p.Length < l.Points[i-1].Length):
			return fmt.Errorf("the lengths of quantiles must not fall: %g follows %g", p.Length, l.Points[i-1].Length)
		}
	}
	return nil
}

// quantile returns the length below which a share of all samples lies, interpolated linearly between the points.
func (l *Distribution) quantile(share float64) float64 {
	at, _ := slices.BinarySearchFunc(l.Points, share,
		func(p LengthQuantile, s float64) int { return cmp.Compare(p.Share, s) })
	at = min(max(at, 1), len(l.Points)-1)
	a, b := l.Points[at-1], l.Points[at]
	return a.Length + (share-a.Share)/(b.Share-a.Share)*(b.Length-a.Length)
}

func (l *Distribution) drawLengths(r *rand.Rand) []int32 {
	all := make([]int32, l.Samples)
	for i := range all {
		var v float64
		switch l.Name {
		case Uniform:
			v = l.Location + r.Float64()*(l.Scale-l.Location)
		case Quantiles:
			v = l.quantile(r.Float64())
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

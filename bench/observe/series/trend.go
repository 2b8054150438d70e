package series

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/vprof/vprof/internal/ceil"
)

// Trend is the result of a test for growth.
type Trend struct {
	// PerSample is the median of the slopes between all pairs of samples
	// (Theil and Sen), in bytes: outliers do not move it.
	PerSample float64
	// P is the probability of samples in such an order without a trend (the
	// test of Mann and Kendall, two-sided, with ties).
	P float64
}

// trendSamples is how many samples the test compares in pairs; more are
// thinned out to medians of stretches.
const trendSamples = 400

// TrendOf tests for growth or decline.
func TrendOf(values []float64) Trend {
	short, stretch := thin(values, trendSamples)
	n := len(short)
	if n < 4 {
		return Trend{P: 1}
	}
	var slopes []float64
	sum := 0.0
	ties := map[float64]int{}
	for i, a := range short {
		ties[a]++
		for j := i + 1; j < n; j++ {
			d := short[j] - a
			slopes = append(slopes, d/float64(j-i))
			switch {
			case d > 0:
				sum++
			case d < 0:
				sum--
			}
		}
	}
	variance := float64(n * (n - 1) * (2*n + 5))
	for _, t := range ties {
		variance -= float64(t * (t - 1) * (2*t + 5))
	}
	variance /= 18
	p := 1.0
	if variance > 0 && sum != 0 {
		z := (math.Abs(sum) - 1) / math.Sqrt(variance)
		p = 2 * distuv.UnitNormal.Survival(z)
	}
	return Trend{Median(slopes) / float64(stretch), min(1, p)}
}

// thin replaces stretches of equal length by their medians, so that at most n
// are left.
func thin(values []float64, n int) (short []float64, stretch int) {
	stretch = ceil.Div(len(values), max(n, 1))
	if stretch <= 1 {
		return values, 1
	}
	for part := range slices.Chunk(values, stretch) {
		short = append(short, Median(part))
	}
	return short, stretch
}

// Median is the middle value; zero of none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile is the value at a share of the sorted values, by the nearest rank;
// zero of none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Round(q*float64(len(sorted)-1)))]
}

package epoch

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func written(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "lengths.csv")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestLengthsAreRead(t *testing.T) {
	for text, want := range map[string][]Count{
		"12\n5\n12\n":                         {{5, 1}, {12, 2}},
		"length,count\n512, 3\n64,2\n512,1\n": {{64, 2}, {512, 4}},
		"\ufeff7\r\n\r\n# more\n8;2\n9\t3":    {{7, 1}, {8, 2}, {9, 3}},
		"5,0\n6,1\n":                          {{5, 0}, {6, 1}},
	} {
		l, err := ParseLengths(written(t, text))
		require.NoError(t, err, text)
		require.Equal(t, want, l.Counts, text)
	}
}

func TestBadLengthsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "the file has no lengths",
		"length\n":               "the file has no lengths",
		"5,0\n":                  "the file has no lengths",
		"5\n0\n":                 `:2: "0" is not a length; need a whole number from 1 to 16777216`,
		"5\nx\n":                 `:2: "x" is not a length`,
		"1 2 3\n":                "need a length, or a length and a count",
		"5,-1\n":                 `"-1" is not a number of samples`,
		"5,9000000\n6,9000000\n": ":2: the file has more than 10000000 samples",
	} {
		_, err := ParseLengths(written(t, text))
		require.ErrorContains(t, err, want, text)
	}
	_, err := ParseLengths("nowhere.csv")
	require.ErrorContains(t, err, "name a file of one length a line, or a distribution")
}

func FuzzReadLengths(f *testing.F) {
	for _, seed := range []string{"5\n6,2\n", "length,count\n1,1", "\ufeff#\n;;\n", "lognormal:mean=5,p95=9"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		counts, err := readLengths("lengths", strings.NewReader(text))
		if err != nil {
			return
		}
		l := Lengths{Counts: counts, Batching: Padded}
		require.NoError(t, l.Check())
	})
}

func FuzzParseLaw(f *testing.F) {
	for _, seed := range []string{
		"lognormal:mean=512,p95=1500", "normal:mean=5,p95=6,min=2",
		"uniform:min=1,max=2,samples=7", "lognormal:median=1,p95=NaN",
		"quantiles:p50=2,p99.9=9,max=10",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		law, ok, err := parseDistribution(text)
		if !ok || err != nil {
			return
		}
		law.Samples = min(law.Samples, 100)
		for _, n := range law.drawLengths(epochRandom(0)) {
			require.True(t, int64(n) >= law.Least && int64(n) <= law.Most)
		}
	})
}

// Laws have the mean and the percentile that they were asked for.
func TestLawsHaveTheirMeanAndPercentile(t *testing.T) {
	for text, want := range map[string][2]float64{
		"lognormal:mean=512,p95=1500,samples=200000":  {512, 1500},
		"lognormal:median=100,p95=300,samples=200000": {100 * math.Exp(0.668*0.668/2), 300},
		"normal:mean=512,p95=700,samples=200000":      {512, 700},
		"uniform:min=100,max=300,samples=200000":      {200, 290},
	} {
		l, err := ParseLengths(text)
		require.NoError(t, err)
		all := l.samples(epochRandom(1))
		slices.Sort(all)
		sum := 0.0
		for _, n := range all {
			sum += float64(n)
		}
		require.InEpsilon(t, want[0], sum/float64(len(all)), 0.01, text)
		require.InEpsilon(t, want[1], float64(all[len(all)*95/100]), 0.02, text)
	}
}

// A law by quantiles keeps each of them, the tail of a thousandth among them.
func TestQuantilesAreKept(t *testing.T) {
	l, err := ParseLengths("quantiles:p50=300,p90=900,p99=2000,p99.9=4096,max=8192,min=16,samples=400000")
	require.NoError(t, err)
	all := l.samples(epochRandom(1))
	slices.Sort(all)
	for thousandths, want := range map[int]float64{0: 16, 500: 300, 900: 900, 990: 2000, 999: 4096} {
		require.InEpsilon(t, want, float64(all[(len(all)-1)*thousandths/1000]), 0.02, thousandths)
	}
	require.InEpsilon(t, 8192, float64(all[len(all)-1]), 0.02)
	p := l.planEpoch(epochRandom(1), 4, 1<<20, 10)
	require.InEpsilon(t, 2000, float64(p.p99), 0.02)
	require.InEpsilon(t, 4096, float64(p.p999), 0.02)
}

func TestBadLawsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"lognormal:mean=512":                   "lognormal: p95=N is missing; add the 95th percentile",
		"lognormal:p95=512":                    "give either mean=N or median=N",
		"lognormal:mean=1,median=1,p95=5":      "give either mean=N or median=N",
		"lognormal:mean=100,p95=500":           "at most 3.86; give median",
		"lognormal:mean=100,p95=100":           "p95=100 is too small; need more than the mean or median of 100",
		"lognormal:mean=100,p95=NaN":           `"NaN" is not a number from 1`,
		"normal:median=5,p95=7":                `normal has no option "median", only lognormal`,
		"uniform:min=5":                        "max=N is missing; add the largest length, like max=2048",
		"quantiles:p50=5":                      "max=N is missing; add the largest length, like max=2048",
		"quantiles:p50=50,p99=40,max=60":       "the lengths of quantiles must not fall: 40 follows 50",
		"quantiles:p99=40,max=30":              "the lengths of quantiles must not fall: 30 follows 40",
		"uniform:min=5,max=4":                  "lengths from min=5 to max=4",
		"uniform:max=4,max=5":                  "max: given twice",
		"normal:mean=5,p95=7,samples=16777216": "samples=16777216: need a number",
	} {
		_, err := ParseLengths(text)
		require.ErrorContains(t, err, want, text)
	}
}

// Whatever the batching, a batch is as long as it must be, no longer than the limit, and the longest comes.
func TestEveryEpochHasItsLongestBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &Lengths{
			Batching: rapid.SampledFrom(Batchings()).Draw(t, "batching"),
			Multiple: rapid.Int64Range(0, 9).Draw(t, "multiple"),
		}
		n := rapid.IntRange(1, 80).Draw(t, "samples")
		longest := int64(0)
		for range n {
			length := rapid.Int64Range(1, 300).Draw(t, "length")
			longest = max(longest, length)
			l.Counts = append(l.Counts, Count{length, 1})
		}
		size, limit := rapid.IntRange(1, 7).Draw(t, "batch"), rapid.Int64Range(1, 300).Draw(t, "limit")
		most := rapid.IntRange(1, 90).Draw(t, "most")
		p := l.planEpoch(epochRandom(3), size, limit, most)
		require.Equal(t, n, p.samples)
		require.Len(t, p.lengths, min(most, p.batches))
		require.LessOrEqual(t, p.tokens, p.positions)
		require.LessOrEqual(t, slices.Max(p.lengths), limit)
		require.Equal(t, min(longest, limit), p.longest)
		if l.Batching == Packed {
			require.Equal(t, p.total, p.tokens)
			require.LessOrEqual(t, p.positions, int64(n)*limit)
			return
		}
		require.Equal(t, (n+size-1)/size, p.batches)
		require.Equal(t, l.paddedLength(p.longest, limit), slices.Max(p.lengths))
	})
}

func TestSamplesArePackedIntoTheFullestRow(t *testing.T) {
	l := &Lengths{Batching: Packed, Counts: []Count{{6, 1}, {5, 1}, {4, 1}, {3, 1}, {2, 1}}}
	p := l.planEpoch(epochRandom(0), 1, 10, 100)
	require.Equal(t, 2, p.batches) // 6+4, 5+3+2
	require.Equal(t, int64(20), p.positions)
}

// Groups are as transformers makes them: the longest first, then stretches in falling order.
func TestGroupsFallWithinStretches(t *testing.T) {
	samples := []int32{3, 9, 1, 7, 5, 2, 8, 4, 6, 10, 12, 11, 13, 14, 15, 16}
	groupByLength(samples, 2) // stretches of 16/8 batches of 2
	require.Equal(t, []int32{16, 7, 3, 1, 8, 5, 4, 2, 12, 11, 10, 6, 9, 15, 14, 13}, samples)
}

func TestClopperPearson(t *testing.T) {
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{{0, 20, 0, 0.1684}, {20, 20, 0.8316, 1}, {7, 20, 0.1539, 0.5922}, {1, 10, 0.0025, 0.4450}} {
		low, high := clopperPearson(c.k, c.n)
		require.InDelta(t, c.low, low, 1e-4)
		require.InDelta(t, c.high, high, 1e-4)
	}
}

package series

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const smi = `timestamp, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
2026/11/05 06:00:00.000, Tesla T4, 100 MiB, 15360 MiB, 5 %
2026/11/05 06:00:10.000, Tesla T4, 300 MiB, 15360 MiB, 90 %
`

func TestLogOfNvidiaSMIIsRead(t *testing.T) {
	require.True(t, IsCSV([]byte(smi)))
	require.False(t, IsCSV([]byte("a,b\nmemory.used,1")))
	all, err := Read(strings.NewReader(smi), "log")
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, Series{GPU: "Tesla T4", Used: []float64{100 << 20, 300 << 20}, Total: 15360 << 20, Elapsed: 10e9}, all[0])
}

func TestEveryGPUIsASeries(t *testing.T) {
	all, err := Read(strings.NewReader("index,memory.used\n0,1\n1,2\n0,3\n"), "log")
	require.NoError(t, err)
	require.Equal(t, []Series{{GPU: "0", Used: []float64{1 << 20, 3 << 20}}, {GPU: "1", Used: []float64{2 << 20}}}, all)
}

func TestDamageIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "log:1: no header",
		"a,b\n":                         "log:1: there is no column memory.used",
		"memory.used\n":                 "log:2: there are no samples",
		"memory.used\nmuch\n":           `log:2: memory.used: "much" is no number`,
		"memory.used\n1\nNaN\n":         `log:3: memory.used: "NaN" is no number`,
		"memory.used\n-1\n":             `"-1" is no number`,
		"memory.used,memory.total\n1,x": `memory.total: "x"`,
		"memory.used\n\"1\n":            "log:2:",
	} {
		_, err := Read(strings.NewReader(text), "log")
		require.ErrorAs(t, err, new(*FormatError))
		require.ErrorContains(t, err, want)
	}
}

// 3 bytes a sample stand out of noise of 100, whatever the outliers.
func TestGrowthIsFoundThroughNoiseAndOutliers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var grows, stays []float64
	for i := range 1000 {
		noise := 100 * r.NormFloat64()
		if i%97 == 0 {
			noise += 1e6
		}
		grows, stays = append(grows, 3*float64(i)+noise), append(stays, noise)
	}
	got := TrendOf(grows)
	require.InDelta(t, 3, got.PerSample, 0.1)
	require.Less(t, got.P, 1e-6)
	require.Greater(t, TrendOf(stays).P, 0.01)
	require.InDelta(t, 1, TrendOf([]float64{1, 2, 3}).P, 0)
}

// Values in reverse have the opposite slope and the same probability.
func TestTrendIsSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e3, 1e3), 4, 60).Draw(t, "values")
		back := make([]float64, len(values))
		for i, v := range values {
			back[len(back)-1-i] = v
		}
		a, b := TrendOf(values), TrendOf(back)
		require.InDelta(t, a.P, b.P, 1e-12)
		require.GreaterOrEqual(t, a.P, 0.0)
		require.LessOrEqual(t, a.P, 1.0)
	})
}

func FuzzRead(f *testing.F) {
	f.Add(smi)
	f.Add("index,memory.used\n0,1\n1,2\n0,3\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Read(strings.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		for _, s := range all {
			require.NotEmpty(t, s.Used)
			require.LessOrEqual(t, TrendOf(s.Used).P, 1.0)
		}
	})
}

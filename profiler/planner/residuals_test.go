package planner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// observations of a model whose reference needs shift per mille more than
// estimated, for shift = 0, 1, ..., n-1.
func observations(model string, n int) []Observation {
	var seen []Observation
	for i := range n {
		seen = append(seen, Observation{
			Model: model, EstimatedAllocated: 1000, EstimatedReserved: 2000,
			ReferenceAllocated: 1000 + int64(i), ReferenceReserved: 2000,
		})
	}
	return seen
}

// Of 40 residuals 0.000 ... 0.039 the middle 95 % leaves one out on each side.
func TestResidualsAreTheMiddle95PercentOfTheModel(t *testing.T) {
	data, err := EncodeResiduals("test", append(observations("toy", 40), observations("rare", 3)...))
	require.NoError(t, err)
	allocated, reserved, err := readResiduals(data, "toy")
	require.NoError(t, err)
	require.Equal(t, Residual{0.001, 0.038, 40, "toy"}, allocated)
	require.Equal(t, Residual{0, 0, 40, "toy"}, reserved)
}

func TestModelWithFewRecordsTakesTheResidualsOfAll(t *testing.T) {
	data, err := EncodeResiduals("test", append(observations("toy", 40), observations("rare", 3)...))
	require.NoError(t, err)
	for _, model := range []string{"rare", "unheard-of"} {
		allocated, _, err := readResiduals(data, model)
		require.NoError(t, err)
		require.Equal(t, "all models", allocated.Group)
		require.Equal(t, 43, allocated.Records)
	}
}

func TestAtMostFivePercentLieOutside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1, 1), 1, 300).Draw(t, "residuals")
		r := middle95(values)
		outside := 0
		for _, v := range values {
			if v < r[0] || v > r[1] {
				outside++
			}
		}
		require.LessOrEqual(t, float64(outside), 0.05*float64(len(values)))
	})
}

func TestShippedResidualsHoldEveryGroupTheyName(t *testing.T) {
	allocated, reserved, err := Residuals("no such model")
	require.NoError(t, err)
	require.Equal(t, "all models", allocated.Group)
	require.LessOrEqual(t, allocated.Low, allocated.High)
	require.LessOrEqual(t, reserved.Low, reserved.High)
}

func TestDamagedResidualsAreRefused(t *testing.T) {
	for data, want := range map[string]string{
		"{":                               "residuals: unexpected end",
		`{"schema":"other"}`:              `schema "other" is not vprof.residuals/v1`,
		`{"schema":"vprof.residuals/v1"}`: "no group for toy",
	} {
		_, _, err := readResiduals([]byte(data), "toy")
		require.ErrorContains(t, err, want)
	}
}

func FuzzReadResiduals(f *testing.F) {
	f.Add(shipped, "redimnet-b2")
	f.Fuzz(func(t *testing.T, data []byte, model string) {
		_, _, _ = readResiduals(data, model) // must not panic
	})
}

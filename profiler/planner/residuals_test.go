package planner

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// observations of a model whose reference needs shift per mille more than
// estimated, for shift = 0, 1, ..., n-1.
func observations(model, release string, n int) []Observation {
	var seen []Observation
	for i := range n {
		seen = append(seen, Observation{
			Subject: Subject{Model: model, Release: release}, EstimatedAllocated: 1000, EstimatedReserved: 2000,
			ReferenceAllocated: 1000 + int64(i), ReferenceReserved: 2000,
		})
	}
	return seen
}

// Of 40 residuals 0.000 ... 0.039 the middle 95 % leaves one out on each side.
func TestResidualsAreTheMiddle95PercentOfTheModel(t *testing.T) {
	data, err := EncodeResiduals("test", append(observations("toy", "2.11", 40), observations("rare", "2.11", 3)...))
	require.NoError(t, err)
	allocated, reserved, err := residualsIn(data, Subject{Model: "toy", Release: "2.11"})
	require.NoError(t, err)
	require.Equal(t, Residual{0.001, 0.038, 40, "toy on PyTorch 2.11"}, allocated)
	require.Equal(t, Residual{0, 0, 40, "toy on PyTorch 2.11"}, reserved)
}

func TestResidualsAreOfTheNearestGroupThatHasRecords(t *testing.T) {
	seen := slices.Concat(observations("toy", "2.9", 40), observations("rare", "2.9", 3),
		observations("toy", "2.15", 5))
	data, err := EncodeResiduals("test", seen)
	require.NoError(t, err)
	for _, c := range []struct {
		of    Subject
		group string
		count int
	}{
		{Subject{Model: "toy", Release: "2.9"}, "toy on PyTorch 2.9", 40},
		{Subject{Model: "toy", Release: "2.14"}, "toy on PyTorch 2.9", 40},
		{Subject{Model: "toy", Release: "2.8"}, "toy on PyTorch 2.9", 40},
		{Subject{Model: "rare", Release: "2.9"}, "all models on PyTorch 2.9 (3 of rare)", 43},
		{Subject{Model: "unheard-of", Release: "2.11"}, "all models on PyTorch 2.9 (none of unheard-of)", 43},
		{Subject{Model: "toy", Release: "2.15"}, "all models on PyTorch 2.15 (5 of toy)", 5},
		{Subject{Model: "toy", Release: "2.16"}, "all models on PyTorch 2.15 (5 of toy)", 5},
	} {
		allocated, reserved, err := residualsIn(data, c.of)
		require.NoError(t, err)
		require.Equal(t, c.group, allocated.Group)
		require.Equal(t, c.group, reserved.Group)
		require.Equal(t, c.count, allocated.Records)
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
	allocated, reserved, err := Residuals(Subject{Model: "no such model", Release: "2.11"})
	require.NoError(t, err)
	require.Equal(t, "all models on PyTorch 2.11 (none of no such model)", allocated.Group)
	require.LessOrEqual(t, allocated.Low, allocated.High)
	require.LessOrEqual(t, reserved.Low, reserved.High)
}

// A captured model whose convolutions cuDNN was not asked about is known less well than one with its answers, and so
// are a compiled step and one whose file lacks something.
func TestWhatIsModeledWidensTheIntervalOfCapturedModels(t *testing.T) {
	width := func(s Subject) (allocated, reserved float64) {
		a, r, err := Residuals(s)
		require.NoError(t, err)
		return a.High - a.Low, r.High - r.Low
	}
	of := Subject{Model: "pt2:mine", Release: "2.15"}
	asked, askedReserved := width(of)
	compiled, compiledReserved := width(Subject{Model: "pt2:mine", Release: "2.15", Compiled: true})
	require.Less(t, asked, compiled)
	require.Less(t, askedReserved, compiledReserved)
	of.Modeled = true
	modeled, modeledReserved := width(of)
	require.Less(t, asked, modeled)
	require.Less(t, askedReserved, modeledReserved)
	of.Partial = true
	partial, partialReserved := width(of)
	require.Less(t, modeled, partial)
	require.Less(t, modeledReserved, partialReserved)
}

func TestDamagedResidualsAreRefused(t *testing.T) {
	for data, want := range map[string]string{
		"{":                               "residuals: unexpected end",
		`{"schema":"other"}`:              `schema "other" is not vprof.residuals/v2`,
		`{"schema":"vprof.residuals/v2"}`: "no group for toy",
	} {
		_, _, err := residualsIn([]byte(data), Subject{Model: "toy", Release: "2.11"})
		require.ErrorContains(t, err, want)
	}
}

func FuzzReadResiduals(f *testing.F) {
	f.Add(shipped, "redimnet-b2", "2.15")
	f.Fuzz(func(t *testing.T, data []byte, model, release string) {
		_, _, _ = residualsIn(data, Subject{Model: model, Release: release}) // must not panic
	})
}

// residualsIn are a subject's residuals in the text of a file.
func residualsIn(data []byte, s Subject) (allocated, reserved Residual, err error) {
	f, err := readResiduals(data)
	if err != nil {
		return allocated, reserved, err
	}
	return f.residuals(s)
}

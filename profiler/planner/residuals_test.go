package planner

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestResidualsAreOfTheNearestGroupThatHasRecords(t *testing.T) {
	f := residualFile{Groups: []residualGroup{
		{Release: "2.9", Group: everything, Records: 43},
		{Release: "2.9", Group: "rare", Records: 3},
		{Release: "2.9", Group: "toy", Records: 40},
		{Release: "2.15", Group: everything, Records: 5},
		{Release: "2.15", Group: "toy", Records: 5},
	}}
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
		allocated, reserved, err := f.residuals(c.of)
		require.NoError(t, err)
		require.Equal(t, c.group, allocated.Group)
		require.Equal(t, c.group, reserved.Group)
		require.Equal(t, c.count, allocated.Records)
	}
}

func TestShippedResidualsHoldEveryGroupTheyName(t *testing.T) {
	allocated, reserved, err := Residuals(Subject{Model: "no such model", Release: "2.11"})
	require.NoError(t, err)
	require.Equal(t, "all models on PyTorch 2.11 (none of no such model)", allocated.Group)
	require.LessOrEqual(t, allocated.Low, allocated.High)
	require.LessOrEqual(t, reserved.Low, reserved.High)
}

// A captured model whose convolutions cuDNN was not asked about is known less well than one with its answers, as is
// a compiled step and one whose file lacks something.
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

// residualsIn returns a subject's residuals in the text of a file.
func residualsIn(data []byte, s Subject) (allocated, reserved Residual, err error) {
	f, err := readResiduals(data)
	if err != nil {
		return allocated, reserved, err
	}
	return f.residuals(s)
}

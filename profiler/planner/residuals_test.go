package planner

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestResidualsAreOfTheNearestReleaseThatHasRecords(t *testing.T) {
	f := residualFile{Groups: []residualGroup{
		{Release: "2.9", Allocated: Residual{Records: 43}}, {Release: "2.15", Allocated: Residual{Records: 5}},
	}}
	for release, records := range map[string]int{"2.8": 43, "2.9": 43, "2.14": 43, "2.15": 5, "2.16": 5} {
		allocated, _, known, err := f.groupOf(ResidualSubject{Model: "toy", Release: release})
		require.NoError(t, err)
		require.Equal(t, records, allocated.Records, release)
		require.Equal(t, release == "2.9" || release == "2.15", known)
	}
}

func TestShippedResidualsHoldEveryGroupTheyName(t *testing.T) {
	for _, name := range []string{modeledGroup, capturedGroup, compiledSteps, knownLoopsGroup, reportedGroup} {
		allocated, reserved, err := populationOf(name)
		require.NoError(t, err)
		require.Equal(t, name, reserved.Group)
		require.LessOrEqual(t, allocated.Low, 0.)
		require.Less(t, allocated.Low, allocated.High)
		require.Less(t, reserved.Low, reserved.High)
	}
	_, _, err := populationOf("no such group")
	require.Error(t, err)
}

// The source of an interval has how often it held where it was not fitted, and says where that was not counted.
func TestSourcesSayHowOftenIntervalsHeld(t *testing.T) {
	a := Residual{Records: 5, KeptRecords: 4, Group: "toys", SeparateGroup: "their shop"}
	r := Residual{Records: 6, KeptRecords: 5, SeparateGroup: "each"}
	require.Equal(t, "5 reference records of toys; held in 4 of 5 with their shop left out; reserved bytes held in 5 "+
		"of 6 with each left out", ResidualSource(a, r))
	r = Residual{Records: 5, KeptRecords: 3, SeparateGroup: "their shop"}
	require.Equal(t, "5 reference records of toys; held in 4 of 5 with their shop left out, reserved bytes in 3",
		ResidualSource(a, r))
	require.Equal(t, "5 reference records of toys; not counted for others", a.plusIndependent(Residual{High: 1}).Source())
	require.Equal(t, a, a.plusIndependent(Residual{}))
}

// A captured model whose convolutions cuDNN was not asked about is known less well than one with its answers, as is
// a compiled step and one whose file lacks something.
func TestWhatIsModeledWidensTheIntervalOfCapturedModels(t *testing.T) {
	width := func(s ResidualSubject) (allocated, reserved float64) {
		a, r, err := Residuals(s)
		require.NoError(t, err)
		return a.High - a.Low, r.High - r.Low
	}
	of := ResidualSubject{Model: "pt2:mine", Release: "2.15"}
	asked, askedReserved := width(of)
	compiled, compiledReserved := width(ResidualSubject{Model: "pt2:mine", Release: "2.15", Compiled: true})
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
		`{"schema":"other"}`:              `the schema is "other": need vprof.residuals/v3`,
		`{"schema":"vprof.residuals/v3"}`: "no residuals for model toy",
	} {
		_, _, err := residualsIn([]byte(data), ResidualSubject{Model: "toy", Release: "2.11"})
		require.ErrorContains(t, err, want)
	}
}

func FuzzReadResiduals(f *testing.F) {
	f.Add(residualsJSON, "redimnet-b2", "2.15")
	f.Fuzz(func(t *testing.T, data []byte, model, release string) {
		_, _, _ = residualsIn(data, ResidualSubject{Model: model, Release: release}) // must not panic
	})
}

// residualsIn returns a subject's residuals in the text of a file.
func residualsIn(data []byte, s ResidualSubject) (allocated, reserved Residual, err error) {
	f, err := readResiduals(data)
	if err != nil {
		return allocated, reserved, err
	}
	return f.residuals(s)
}

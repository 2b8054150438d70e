package report

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two releases that differ in one component of 100 MiB.
func TestReleasesShowWhatChangesBetweenThem(t *testing.T) {
	old, updated := toyPlan(2), toyPlan(2)
	updated.Case.Torch = "2.15"
	for i := range updated.Points {
		e := *updated.Points[i].Estimate
		e.Components = append([]Component(nil), e.Components...)
		e.Components[0].Bytes += 100 * mib
		e.Allocated.Bytes += 100 * mib
		updated.Points[i].Estimate = &e
	}
	sheets := Releases{old, updated}.Sheets()
	require.Len(t, sheets, 2, "one for each GPU")
	var text bytes.Buffer
	require.NoError(t, WriteTable(&text, Releases{old, updated}, Layout{}))
	for _, want := range []string{"PyTorch 2.11  PyTorch 2.15", old.Points[0].Estimate.Components[0].Name, "verdict"} {
		require.Contains(t, text.String(), want)
	}
	require.NotContains(t, text.String(), " "+old.Points[0].Estimate.Components[1].Name+" ",
		"a part that is alike is left out")
	require.Empty(t, Releases{}.Sheets())
}

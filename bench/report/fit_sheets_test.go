package report_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
)

// A GPU that nothing fits has a row as long as the others', with "none" for a batch,
// and does not keep columns that are empty otherwise.
func TestAGPUThatNothingFitsHasNoBatch(t *testing.T) {
	f := report.Fit{
		Model: "toy",
		Devices: []report.Device{
			{Name: "sim:t4", GPU: "t4", Memory: 16 << 30},
			{Name: "sim:k80", GPU: "k80", Memory: 12 << 30},
		},
		Choices: []report.Choice{{Device: "sim:t4", Recommended: true, Batch: 8, Largest: 8}},
	}
	sheet := f.Sheets()[0]
	var heads []string
	for _, c := range sheet.Columns {
		heads = append(heads, c.Head)
	}
	require.NotContains(t, heads, "strategy")
	require.Len(t, sheet.Rows, 2)
	for i, batch := range []string{"8", "none"} {
		require.Len(t, sheet.Rows[i], len(heads))
		require.Equal(t, batch, sheet.Rows[i][slices.Index(heads, "batch")])
	}
}

package page

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
)

// A cell whose search ended at its largest batch says so, as in the terminal.
func TestCellsSayWhereASearchEnded(t *testing.T) {
	cell := report.MatrixCell{Batch: 256, Largest: 4096, Fits: report.Fits}
	require.Equal(t, "256 (4096)", newMatrixCell(cell).Largest)
	cell.Capped = true
	require.Equal(t, "256 (4096+)", newMatrixCell(cell).Largest)
	require.Contains(t, newMatrixCell(cell).Words, "the largest safe batch is 4096+")
}

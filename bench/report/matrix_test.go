package report

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatrixSaysWhatNoGPURan(t *testing.T) {
	cell := func(device, run string) MatrixCell {
		return MatrixCell{
			Model: "toy", Case: "full", GPU: device, Device: device, Memory: 16 << 30, Batch: 8,
			RunKind: run,
		}
	}
	for want, rows := range map[string][]MatrixCell{
		"all runs were simulated; no GPU was used.": {cell("t4", "simulated"), cell("h100", "simulated")},
		"simulated, not measured: t4.":              {cell("t4", "simulated"), cell("h100", "measured")},
	} {
		var text bytes.Buffer
		require.NoError(t, WriteTable(&text, &Matrix{Name: "lab", Rows: rows}, Layout{}))
		require.Contains(t, text.String(), want)
	}
	var text bytes.Buffer
	require.NoError(t, WriteTable(&text, &Matrix{Name: "lab", Rows: []MatrixCell{cell("h100", "measured")}}, Layout{}))
	require.NotContains(t, text.String(), "simulated")
}

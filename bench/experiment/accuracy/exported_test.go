package accuracy_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/accuracy"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/internal/sample"
	"github.com/vprof/vprof/models/all"
)

// TestExportedModelsNeedWhatPyTorchSays estimates the records of models of other
// libraries whose files are test data.
func TestExportedModelsNeedWhatPyTorchSays(t *testing.T) {
	f, err := reference.Open("testdata/anymodel.jsonl.gz")
	require.NoError(t, err)
	require.Greater(t, len(f.Records), 300)
	var records []reference.Record
	for _, r := range f.Records {
		require.True(t, r.Exported)
		r.Model = filepath.Join("../../../models/pt2/testdata", reference.FileName(r.Model))
		if _, err := os.Stat(r.Model); err == nil {
			records = append(records, r)
		}
	}
	records = sample.Of(records)
	a, err := accuracy.Compare(context.Background(), records, accuracy.Recorder{Models: all.Models()}, nil)
	require.NoError(t, err)
	require.Empty(t, a.Unknown)
	require.Len(t, a.Rows, len(records))
	var allocated, reserved []float64
	for _, r := range a.Rows {
		require.NotNil(t, r.Error)
		allocated = append(allocated, math.Abs(r.Error.Allocated))
		reserved = append(reserved, math.Abs(r.Error.Reserved))
	}
	at := func(errors []float64, share float64) float64 {
		slices.Sort(errors)
		return errors[int(share*float64(len(errors)-1))]
	}
	require.LessOrEqual(t, at(allocated, 0.5), 0.001)
	require.LessOrEqual(t, at(allocated, 0.95), 0.02)
	require.LessOrEqual(t, at(allocated, 1), 0.05)
	require.LessOrEqual(t, at(reserved, 0.5), 0.01)
	require.LessOrEqual(t, at(reserved, 0.95), 0.06)
}

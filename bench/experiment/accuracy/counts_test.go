package accuracy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
)

// TestParameterCountsAreThoseOfPyTorch builds the model of every reference
// record that vprof knows and compares element counts.
func TestParameterCountsAreThoseOfPyTorch(t *testing.T) {
	paths, err := filepath.Glob("../../reference/data/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	registry := all.Models()
	type built struct{ model, stage string }
	seen := map[built]models.Counts{}
	for _, path := range paths {
		f, err := os.Open(path)
		require.NoError(t, err)
		records, err := reference.Read(f, path)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		for _, r := range records.Records {
			m, err := registry.Lookup(r.Model)
			if err != nil {
				continue
			}
			key := built{r.Model, r.Stage}
			counts, ok := seen[key]
			if !ok {
				c, err := m.Complete(models.Case{Stage: r.Stage, Batch: 2})
				require.NoError(t, err, r.Model)
				trainer, err := m.Build(c)
				require.NoError(t, err, r.Model)
				counts = trainer.Counts()
				seen[key] = counts
			}
			want := models.Counts{
				Total: r.Params.Total, Trainable: r.Params.Trainable, Criterion: r.Params.Criterion,
				Buffers: r.Params.Buffers, Gradients: 4 * r.Params.Trainable,
			}
			require.Equal(t, want, counts, "%s stage %s", r.Model, r.Stage)
		}
	}
	require.NotEmpty(t, seen)
}

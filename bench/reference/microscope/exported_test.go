package microscope_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/sample"
)

// exportedLosses are the losses of libraries whose models are not classifiers.
var exportedLosses = map[string]string{"diffusers": "mse", "hf": "output"}

// TestExportedModelsRunAsInPyTorch compares recorded steps of models of other
// libraries with what the recorder makes of their files.
func TestExportedModelsRunAsInPyTorch(t *testing.T) {
	paths, err := filepath.Glob("testdata/exported/*.txt.bz2")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var table strings.Builder
	var shares []float64
	for _, path := range sample.Of(paths) {
		name := strings.TrimSuffix(filepath.Base(path), ".txt.bz2")
		m := regexp.MustCompile(`^((\w+)-.+)-b(\d+)-(none|bf16)-adamw$`).FindStringSubmatch(name)
		require.NotNil(t, m, name)
		c := models.Case{Model: "../../../models/pt2/testdata/" + m[1] + ".pt2", Batch: 4, Loss: exportedLosses[m[2]]}
		if m[4] == "bf16" {
			c.AMP = "bf16"
		}
		model, err := all.Models().Lookup(c.Model)
		require.NoError(t, err)
		gpu, err := device.Lookup("rtx-3090")
		require.NoError(t, err)
		r, err := model.Record(c, recorderGPU(gpu), models.Options{})
		require.NoError(t, err, name)
		result, err := Compare(readList(t, path), steps(ours(t, r.Program), "batch"))
		require.NoError(t, err, name)
		shares = append(shares, result.Allocations.Share())
		addRow(&table, 52, name, result)
	}
	slices.Sort(shares)
	require.GreaterOrEqual(t, shares[0], 0.9)
	require.GreaterOrEqual(t, shares[len(shares)/2], 0.98)
	if !sample.All() {
		return
	}
	requireTable(t, "testdata/exported.golden", table.String())
}

// steps returns phases of the set-up and whole steps as phases, as the lists of these models.
func steps(events []event, setUp ...string) []event {
	var out []event
	for _, e := range events {
		if e.Kind == marked {
			switch {
			case e.Phase.Name == "step_end":
				e.Phase.Name = "step"
			case !slices.Contains(setUp, e.Phase.Name):
				continue
			}
		}
		out = append(out, e)
	}
	return out
}

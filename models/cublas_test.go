package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// largestWorkspace returns the bytes of the largest workspace in a step of BERT, on a GPU whose default workspace
// is 8 MiB and 128 KiB.
func largestWorkspace(t require.TestingT, config string) (bytes int64) {
	m, err := all.Models().Lookup("bert-base")
	require.NoError(t, err)
	c := m.Default
	c.Batch, c.Settings, c.CublasWorkspace = 1, models.Settings{"seq-len": 16}, config
	rec, err := m.Record(c, trace.GPU{Capability: 86, SMs: 82}, models.Options{})
	require.NoError(t, err)
	for _, b := range rec.Program.Buffers {
		if b.Class == program.Workspace {
			bytes = max(bytes, b.Bytes)
		}
	}
	return bytes
}

func TestProductsTakeTheWorkspaceThatTheEnvironmentSets(t *testing.T) {
	require.EqualValues(t, 8<<20+128<<10, largestWorkspace(t, ""))
	require.EqualValues(t, 32<<20, largestWorkspace(t, ":4096:8"))
	require.EqualValues(t, 8<<20+128<<10, largestWorkspace(t, ":4096:2:16:8"))
}

func TestWorkspacesOfCublasAreReadOrRefused(t *testing.T) {
	for _, text := range []string{"4096", ":4096", ":4096:8;", ":4096:x", ":-1:8", ":999999999:9999", "::", ":1:1 "} {
		_, err := models.FieldNamed("cublas-workspace").Parse(text)
		require.ErrorContains(t, err, "like :4096:8", text)
	}
	for _, text := range []string{"", ":4096:8", ":16:8", ":4096:2:16:8"} {
		_, err := models.FieldNamed("cublas-workspace").Parse(text)
		require.NoError(t, err, text)
	}
}

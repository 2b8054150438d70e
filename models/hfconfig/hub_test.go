package hfconfig

import (
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// Models of the hub are known by their names without a file, with as many parameters as their names say.
func TestModelsOfTheHubAreKnownByName(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	for name, parameters := range map[string]int64{
		"Qwen/Qwen3-4B": 4_022_468_096, "Qwen/Qwen3-8B": 8_190_735_360, "Qwen/Qwen2.5-7B": 7_615_616_512,
		"meta-llama/Llama-3.1-8B": 8_030_261_248, "meta-llama/Llama-3.2-3B": 3_212_749_824,
	} {
		m, err := Open(name)
		require.NoError(t, err, name)
		require.Equal(t, Scheme+":"+path.Base(name), m.Name)
		rec, err := m.Record(models.Case{Batch: 1}, testGPU, models.Options{})
		require.NoError(t, err, name)
		require.Equal(t, parameters, rec.Counts.Total, name)
	}
	for name, c := range ofHub() {
		require.NotEmpty(t, c.Source, name)
		_, err := Open(name)
		require.NoError(t, err, name)
	}
	_, err := Open("nobody/nothing")
	require.ErrorContains(t, err, "hf download nobody/nothing config.json")
}

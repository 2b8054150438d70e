package systems

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// single returns a file with one key.
func single(t *testing.T, at string, v any) string {
	var text strings.Builder
	for i, key := range strings.Split(at, ".") {
		fmt.Fprintf(&text, "\n%s%s:", strings.Repeat("  ", i), key)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text.String()[1:]+fmt.Sprintf(" %v\n", v)), 0o600))
	return path
}

// Each key is read, said where another value is planned, or refused; none is passed over.
func TestEveryFactIsReadSaidOrRefused(t *testing.T) {
	all, err := AllProjects()
	require.NoError(t, err)
	for _, s := range all {
		require.Equal(t, s.Config != "", len(s.Facts) > 0, s.Project)
		model := strings.Replace(s.Models[0], "*", "b2", 1)
		for _, f := range s.Facts {
			settings, unplanned, err := s.ReadOtherKeys(single(t, f.Path, 3), model)
			switch {
			case f.Model != "":
				require.ErrorContains(t, err, f.Path+": 3 is "+fmt.Sprintf(f.Model, 3)+", not "+model)
			case f.Setting != "":
				require.NoError(t, err)
				require.Equal(t, map[string]int64{f.Setting: int64(3 * f.Scale)}, settings)
				_, _, err = s.ReadOtherKeys(single(t, f.Path, "long"), model)
				require.ErrorContains(t, err, "long is not a positive number")
			default:
				require.NotEmpty(t, f.Reason, f.Path)
				require.Equal(t, []Unplanned{{f.Path, int64(3), f.Reason}}, unplanned)
				_, unplanned, err = s.ReadOtherKeys(single(t, f.Path, f.Planned), model)
				require.NoError(t, err)
				require.Empty(t, unplanned, f.Path)
			}
		}
		for group, why := range s.Harmless {
			require.NotEmpty(t, why, group)
		}
	}
}

func TestKeysThatNobodyReadsAreSaid(t *testing.T) {
	s, ok, err := Lookup("redimnet-b2")
	require.NoError(t, err)
	require.True(t, ok)
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`
training: {batch_size: 8, epochs: 3, compile: true}
evaluation: {batch_size: 64}
model_name: b5
logging: {model_name: run-7}
seed: 1
remat: [1, 2]
`), 0o600))
	_, _, err = s.ReadOtherKeys(path, "redimnet-b2")
	require.ErrorContains(t, err, "model_name: b5 is redimnet-b5, not redimnet-b2",
		"also where the project does not look")
	_, unplanned, err := s.ReadOtherKeys(path, "redimnet-b5")
	require.NoError(t, err)
	require.Equal(t, []Unplanned{
		{Path: "logging.model_name", Reason: s.Project + " has it as advanced.model_name"},
		{Path: "model_name", Reason: s.Project + " has it as advanced.model_name"},
		{Path: "remat", Reason: s.Project + " has no such key that vprof knows"},
		{Path: "training.compile", Reason: s.Project + " has it as hardware.compile"},
	}, unplanned)
}

func TestAFileIsKnownByItsKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte("training: {batch_size: 8}\nadvanced: {model_name: b5}\n"), 0o600))
	model, found := ModelOfConfig(path)
	require.True(t, found)
	require.Equal(t, "redimnet-b5", model)
	model, found = ModelOfConfig(single(t, "data_loader.batch_size", 8))
	require.True(t, found)
	require.Equal(t, "naics-embedder", model)
	require.NoError(t, os.WriteFile(path, []byte("training: {batch_size: 8}\nhardware: {compile: true}\n"), 0o600))
	model, found = ModelOfConfig(path)
	require.True(t, found, "one of its models, which the command line must name")
	require.Equal(t, "redimnet-*", model)
	for _, other := range []string{"batch", "training.batch_size"} {
		_, found = ModelOfConfig(single(t, other, 8))
		require.False(t, found, other)
	}
}

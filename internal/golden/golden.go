// Package golden compares what a test made with a file that holds what it
// should be. With -update the test writes the file instead.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Updating tells whether the test run rewrites golden files.
func Updating() bool { return *update }

// Equal fails the test unless the file at path holds got.
func Equal(t testing.TB, path string, got []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to make the file")
	require.Equal(t, string(want), string(got), "%s is not current; if the change is meant, run the test with -update", path)
}

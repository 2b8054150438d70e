// Package golden compares the output of a test with a file. With -update the test writes the file instead.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Updating reports whether the test run rewrites golden files.
func Updating() bool { return *update }

// Equal fails the test unless the file at path contains got.
func Equal(t testing.TB, path string, got []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to make the file")
	if line, w, g := firstDifference(string(want), string(got)); line > 0 {
		t.Fatalf("%s:%d is not current; if the change is meant, run the test with -update\n  file: %s\n  made: %s",
			path, line, w, g)
	}
}

// firstDifference returns the number of the first line that differs, counted from 1, and both texts; zero if none does.
func firstDifference(want, got string) (line int, w, g string) {
	if want == got {
		return 0, "", ""
	}
	ws, gs := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(ws), len(gs)) {
		w, g = "(end)", "(end)"
		if i < len(ws) {
			w = ws[i]
		}
		if i < len(gs) {
			g = gs[i]
		}
		if w != g {
			return i + 1, w, g
		}
	}
	panic("golden: texts differ but no line does")
}

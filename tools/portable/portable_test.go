package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// An error in a file for one system is found only for that system.
func TestFaultsAreFoundForTheirSystem(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module x\n\ngo 1.26\n",
		"a.go":         "package x\n",
		"b_windows.go": "package x\n\nvar b int = \"no number\"\n",
		"a_test.go":    "package x\n\nvar c int = \"no number\"\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, c := range []struct {
		target string
		tests  bool
		faults int
	}{
		{"linux/arm64", false, 0},
		{"linux/arm64", true, 1},
		{"windows/amd64", false, 1},
	} {
		faults, err := check(dir, c.target, c.tests, "./...")
		require.NoError(t, err, c.target)
		require.Len(t, faults, c.faults, "%v", c)
	}
	for target, want := range map[string]string{"windows": "write GOOS/GOARCH", "vax/vms": "vax"} {
		_, err := check(dir, target, false, "./...")
		require.ErrorContains(t, err, want)
	}
}

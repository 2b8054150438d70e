package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of what holds answers to be right names no test that is gone.
func TestTrustNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../docs/trust.md")
	require.NoError(t, err)
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+|[a-z]+\\.txtar)`").FindAllSubmatch(text, -1)
	require.NotEmpty(t, named)
	var tests bytes.Buffer
	for _, room := range []string{"bench", "cmd", "internal", "models", "profiler"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("../..", room), func(path string, _ fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case strings.HasSuffix(path, "_test.go"):
				code, err := os.ReadFile(path)
				tests.Write(code)
				return err
			}
			return nil
		}))
	}
	for _, n := range named {
		name := string(n[1])
		if strings.HasSuffix(name, ".txtar") {
			require.FileExists(t, filepath.Join("testdata/script", name))
			continue
		}
		require.Contains(t, tests.String(), "func "+name+"(", name)
	}
}

package cli

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

// The table of safeguards names no test that is gone.
func TestTrustNamesTestsThatExist(t *testing.T) {
	tests := allTests(t)
	for _, name := range namedIn(t, "../docs/lab/trust.md", "`((?:Test|Fuzz)[A-Za-z0-9]+|[a-z]+\\.txtar)`") {
		if strings.HasSuffix(name, ".txtar") {
			require.FileExists(t, filepath.Join("testdata/script", name))
			continue
		}
		require.True(t, strings.Contains(tests, "func "+name+"("), name)
	}
}

// Nor do the pages that say how a figure can be checked: go test -run NAME.
func TestPagesNameTestsThatExist(t *testing.T) {
	tests := allTests(t)
	for _, page := range []string{"../docs/lab/finetuning.md", "../CONTRIBUTING.md"} {
		for _, name := range namedIn(t, page, `-run\s+([A-Za-z]+)`) {
			there := regexp.MustCompile(`func Test[A-Za-z0-9]*` + strings.TrimPrefix(name, "Test")).MatchString(tests)
			require.True(t, there, "%s: -run %s", page, name)
		}
	}
}

// namedIn returns the names that a pattern finds in a file.
func namedIn(t *testing.T, path, pattern string) (names []string) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, found := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
		names = append(names, string(found[1]))
	}
	require.NotEmpty(t, names)
	return names
}

// allTests returns the code of all tests.
func allTests(t *testing.T) string {
	var tests bytes.Buffer
	for _, room := range []string{"bench", "cli", "internal", "models", "profiler"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", room),
			func(path string, _ fs.DirEntry, err error) error {
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
	return tests.String()
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/golden"
)

// consoleBlock is a block of a page that shows a command and its output.
var consoleBlock = regexp.MustCompile("(?s)```console\n\\$ vprof ([^\n]*)\n.*?```\n")

// The README and the guide show what their commands really print.
func TestPagesShowWhatCommandsPrint(t *testing.T) {
	for _, path := range []string{"../../README.md", "../../docs/guide.md"} {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		blocks := 0
		current := consoleBlock.ReplaceAllFunc(page, func(block []byte) []byte {
			blocks++
			line := string(consoleBlock.FindSubmatch(block)[1])
			a := system()
			var out bytes.Buffer
			a.stdout = &out
			require.Equal(t, exitFine, run(t.Context(), a, strings.Fields(line)), line)
			return []byte("```console\n$ vprof " + line + "\n" + out.String() + "```\n")
		})
		require.Positive(t, blocks, path)
		golden.Equal(t, path, current)
	}
}

// Whoever meets the project reads the README to its end.
func TestTheREADMEIsShort(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.LessOrEqual(t, len(strings.Fields(string(readme))), 1000)
}

// link is a link of a page to a file of the repository.
var link = regexp.MustCompile(`\]\(([^):#]+)[^):]*\)`)

func TestLinksOfPagesLeadToFiles(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, path := range append(pages, "../../README.md", "../../ARCHITECTURE.md", "../../CONTRIBUTING.md") {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, to := range link.FindAllSubmatch(page, -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(path), string(to[1])))
			require.NoError(t, err, path)
		}
	}
}

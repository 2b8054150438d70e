package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/golden"
)

// consoleBlock is a block of the README that shows a command and its output.
var consoleBlock = regexp.MustCompile("(?s)```console\n\\$ vprof ([^\n]*)\n.*?```\n")

// The README shows what its commands really print.
func TestREADMEShowsWhatCommandsPrint(t *testing.T) {
	const path = "../../README.md"
	readme, err := os.ReadFile(path)
	require.NoError(t, err)
	blocks := 0
	current := consoleBlock.ReplaceAllFunc(readme, func(block []byte) []byte {
		blocks++
		line := string(consoleBlock.FindSubmatch(block)[1])
		a := system()
		var out bytes.Buffer
		a.stdout = &out
		require.Equal(t, exitFine, run(t.Context(), a, strings.Fields(line)), line)
		return []byte("```console\n$ vprof " + line + "\n" + out.String() + "```\n")
	})
	require.Positive(t, blocks)
	golden.Equal(t, path, current)
}

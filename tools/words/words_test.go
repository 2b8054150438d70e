package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Texts of one line, with the beginning of each finding.
func TestPhrasesAreFoundInProse(t *testing.T) {
	for text, want := range map[string][]string{
		"The board is full.":                     {`"board"`},
		"Pass --board, or set boards: [t4].":     nil,
		"TensorBoard shows it.":                  nil,
		"A row is of the table.":                 {`"is of the"`},
		"it has the tensor be freed":             {`"has the tensor be"`},
		"It lets go of the block for want of it": {`"lets go of"`, `"for want of"`},
		"It ends for want\nof memory.":           {`"for want of"`},
		"A stub returns the bytes.":              nil,
	} {
		found := check("page.md", []byte(text))
		require.Len(t, found, len(want), text)
		for i, f := range found {
			require.Contains(t, f.what, want[i], text)
			require.Equal(t, 1, f.line)
		}
	}
}

func TestCommentsOfFunctionsBeginWithAVerb(t *testing.T) {
	for comment, good := range map[string]bool{
		"// Peak returns the bytes.":          true,
		"// Peak is the bytes.":               false,
		"// Peak has the bytes.":              false,
		"// The bytes at the peak.":           false,
		"// Peak reports, in bytes, the top.": true,
		"// Peak of a run.":                   false,
	} {
		source := "package x\n\n" + comment + "\nfunc Peak() {}\n"
		require.Equal(t, good, len(check("x.go", []byte(source))) == 0, comment)
	}
	found := check("x.go", []byte("package x\n\n// What ends\n// for want\n// of memory.\nvar x int\n"))
	require.Len(t, found, 1)
	require.Equal(t, 4, found[0].line)
	require.Empty(t, check("x.go", []byte("package x\n\n// What holds.\nfunc TestPeak() {}\n\nfunc plain() {}\n")))
}

// Strings are checked only if they are sentences, not if they are keys or tags.
func TestStringsThatAreNoSentencesAreKeys(t *testing.T) {
	require.Empty(t, check("x.go", []byte("package x\n\nvar a = \"board\"\n\ntype b struct {\n\tC int `json:\"board c\"`\n}\n")))
	require.Len(t, check("x.go", []byte("package x\n\nvar a = \"the board is full\"\n")), 1)
}

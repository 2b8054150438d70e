// Package shellword quotes words for a shell.
package shellword

import (
	"strings"

	"github.com/vprof/vprof/internal/lists"
)

// Quote returns s as one word, in single quotes if the shell would change it.
func Quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, needsQuotes) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Join returns words as one command.
func Join(words []string) string { return strings.Join(lists.Map(words, Quote), " ") }

// needsQuotes reports whether a character may have a meaning in a shell.
func needsQuotes(r rune) bool {
	return !strings.ContainsRune("/._-+=:,@%", r) &&
		(r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

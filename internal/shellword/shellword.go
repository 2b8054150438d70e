// Package shellword writes words as a shell reads them.
package shellword

import (
	"strings"

	"github.com/vprof/vprof/internal/lists"
)

// Quote makes one word of s, in single quotes if the shell would change it.
func Quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, special) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Join makes one command of words.
func Join(words []string) string { return strings.Join(lists.Map(words, Quote), " ") }

// special reports whether a character may mean something to a shell.
func special(r rune) bool {
	return !strings.ContainsRune("/._-+=:,@%", r) &&
		(r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}
